"""The request of ``/v1/embeddings``: OpenAI's fields, with extensions of NVIDIA NIM and vLLM."""

from __future__ import annotations

from gateway.api.openai.encoder_fields import VectorFields


class EmbeddingsRequest(VectorFields):
    """Texts, or the token ids of texts, to be turned into vectors."""
