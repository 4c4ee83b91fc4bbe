"""The request of ``/v1/score``, with the fields that vLLM gave it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BeforeValidator

from gateway.api.openai.encoder_fields import PairFields, Texts
from gateway.serving.encoder_model import EncoderModel
from gateway.text.bad_request import BadRequestError
from gateway.text.tokens.encoder_tokenizer import EncoderInput

_OneOrMore = Annotated[Texts, BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


class ScoreRequest(PairFields):
    """Pairs of texts: one with each of several, or as many as there are others."""

    text_1: _OneOrMore | None = None
    text_2: _OneOrMore | None = None
    queries: _OneOrMore | None = None
    documents: _OneOrMore | None = None

    def check_model(self, model: EncoderModel) -> None:
        """Check that both sides have texts, in fitting numbers; see ``EncoderFields``."""
        del model
        for names in (("text_1", "queries"), ("text_2", "documents")):
            given = [name for name in names if getattr(self, name) is not None]
            if len(given) != 1:
                message = f"Set either '{names[0]}' or '{names[1]}'."
                raise BadRequestError(message, param=names[0], code="invalid_value" if given else _MISSING)
        first, second = self._sides()
        if len(first) not in (1, len(second)):
            name = self.path(0).partition("[")[0]
            one = "queries" if self.text_1 is None else "text_1"
            message = f"'{one}' must have one text or as many as '{name}' ({len(second)}), but has {len(first)}."
            raise BadRequestError(message, param=name, code="invalid_value")

    def _sides(self) -> tuple[Sequence[str], Sequence[str]]:
        return self.text_1 or self.queries or (), self.text_2 or self.documents or ()

    def inputs(self) -> Sequence[EncoderInput]:
        """The pairs; see ``EncoderFields``."""
        first, second = self._sides()
        return [EncoderInput(first[index if len(first) > 1 else 0], text) for index, text in enumerate(second)]

    def path(self, index: int, *, of_query: bool = False) -> str:
        """The path of one text of a pair; see ``EncoderFields``."""
        if of_query:
            return f"{'text_1' if self.queries is None else 'queries'}[{index if len(self._sides()[0]) > 1 else 0}]"
        return f"{'text_2' if self.documents is None else 'documents'}[{index}]"


_MISSING = "missing_required_parameter"
