"""The request of ``/v1/classify``, with the fields that vLLM gave it."""

from __future__ import annotations

from gateway.api.openai.encoder_fields import InputFields


class ClassifyRequest(InputFields):
    """Texts, or the token ids of texts, to be classified."""
