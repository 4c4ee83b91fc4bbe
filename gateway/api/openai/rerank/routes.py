"""The endpoints of rerank: ``/v2/rerank`` responds as Cohere does, the others as Jina and vLLM do."""

from __future__ import annotations

from typing import Any

import numpy as np

from gateway.api.openai.encoder_endpoint import EncoderEndpoint, relevance, usage
from gateway.api.openai.rerank.protocol import RerankRequest
from gateway.generation.ids import new_id
from gateway.serving.encoder_model import EncoderModel, EncoderResult

_DOCUMENTS_OF_UNIT = 100  # of a query, by Cohere's definition of a search unit


def _results(fields: RerankRequest, encoded: EncoderResult, *, documents: bool) -> dict[str, Any]:
    scores, texts = relevance(encoded), fields.texts()
    shown = documents if fields.return_documents is None else fields.return_documents
    results = [
        {"index": index, "relevance_score": scores[index], **({"document": {"text": texts[index]}} if shown else {})}
        for index in np.argsort(-scores, kind="stable").tolist()[: fields.top_n or None]
    ]
    return {"id": f"rerank-{new_id()}", "results": results}


def _jina_body(fields: RerankRequest, model: EncoderModel, encoded: EncoderResult) -> dict[str, Any]:
    return {**_results(fields, encoded, documents=True), "model": model.name, "usage": usage(encoded)}


def _cohere_body(fields: RerankRequest, model: EncoderModel, encoded: EncoderResult) -> dict[str, Any]:
    del model
    meta = {
        "api_version": {"version": "2"},
        "billed_units": {"search_units": -(-len(fields.documents) // _DOCUMENTS_OF_UNIT)},
        "tokens": {"input_tokens": encoded.tokens},
    }
    return {**_results(fields, encoded, documents=False), "meta": meta}


RERANK = EncoderEndpoint(
    {"/v1/rerank": "rerank", "/rerank": "rerank_without_version"},
    "Put documents in order by their relevance for a query.",
    RerankRequest,
    ("rerank",),
    _jina_body,
)
COHERE_RERANK = EncoderEndpoint(
    {"/v2/rerank": "rerank_v2"},
    "Put documents in order by their relevance for a query, as Cohere does.",
    RerankRequest,
    ("rerank",),
    _cohere_body,
)
