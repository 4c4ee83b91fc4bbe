"""The endpoint of classification."""

from __future__ import annotations

from typing import Any

import numpy as np

from gateway.api.openai.classify.protocol import ClassifyRequest
from gateway.api.openai.encoder_endpoint import EncoderEndpoint, list_of
from gateway.generation.engine import MalformedOutputError
from gateway.serving.encoder_model import EncoderModel, EncoderResult


def _body(fields: ClassifyRequest, model: EncoderModel, encoded: EncoderResult) -> dict[str, Any]:
    del fields
    count = encoded.values.shape[1]
    labels = model.labels or [f"LABEL_{index}" for index in range(count)]
    if len(labels) != count:
        detail = f"{count} scores, but it has {len(labels)} labels"
        raise MalformedOutputError(detail, f"The model returned {detail}.")
    best = np.argmax(encoded.values, axis=1).tolist()
    data = [
        {"index": index, "label": labels[place], "probs": row, "num_classes": count}
        for index, (place, row) in enumerate(zip(best, encoded.values, strict=True))
    ]
    return list_of("classify", model, data, encoded)


CLASSIFY = EncoderEndpoint(
    {"/v1/classify": "classify", "/classify": "classify_without_version"},
    "Tell the class of each text, with the probabilities of all classes.",
    ClassifyRequest,
    ("classify",),
    _body,
)
