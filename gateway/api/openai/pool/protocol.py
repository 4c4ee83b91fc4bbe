"""The request of ``/pooling``, with the fields that vLLM gave it."""

from __future__ import annotations

from gateway.api.openai.encoder_fields import VectorFields
from gateway.serving.encoder_model import EncoderModel
from gateway.text.bad_request import BadRequestError, printable


class PoolingRequest(VectorFields):
    """Texts, or the token ids of texts, to be turned into vectors or the scores of classes."""

    task: str | None = None

    def check_model(self, model: EncoderModel) -> None:
        """Check that the model has the requested task; see ``EncoderFields``."""
        super().check_model(model)
        if self.task not in (None, model.task):
            message = f"The task of this model is {model.task!r}, not {printable(self.task or '')!r}."
            raise BadRequestError(message, param="task", code="invalid_value")
