"""The endpoint of scores."""

from __future__ import annotations

from typing import Any

from gateway.api.openai.encoder_endpoint import EncoderEndpoint, list_of, relevance
from gateway.api.openai.score.protocol import ScoreRequest
from gateway.serving.encoder_model import EncoderModel, EncoderResult


def _body(fields: ScoreRequest, model: EncoderModel, encoded: EncoderResult) -> dict[str, Any]:
    del fields
    data = [{"index": index, "object": "score", "score": score} for index, score in enumerate(relevance(encoded))]
    return list_of("score", model, data, encoded)


SCORE = EncoderEndpoint(
    {"/v1/score": "score", "/score": "score_without_version"},
    "Score how well the texts of each pair match; by the cosine of their vectors, if the model embeds.",
    ScoreRequest,
    ("rerank", "embed"),
    _body,
)
