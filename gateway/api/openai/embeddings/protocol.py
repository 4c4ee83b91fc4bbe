"""The request of ``/v1/embeddings``: OpenAI's fields, with extensions of NVIDIA NIM and vLLM."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from gateway.api.openai.encoder_endpoint import EncoderFields
from gateway.api.openai.validation import BRANCH
from gateway.generation.encoder import EncoderParams
from gateway.serving.encoder_model import EncoderModel
from gateway.text.bad_request import BadRequestError
from gateway.text.tokens.encoder_tokenizer import EncoderInput

_LARGEST_ID = 2**31 - 1
_Text = Annotated[str, Field(min_length=1)]
_Ids = Annotated[list[Annotated[int, Field(ge=0, le=_LARGEST_ID)]], Field(min_length=1, fail_fast=True)]


def _items(value: Any) -> Any:
    """The inputs as a list, whether one or several were sent; texts and token ids are not mixed."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and value and all(isinstance(item, int) for item in value):
        return [value]
    if isinstance(value, list) and len({type(item) for item in value}) > 1:
        raise PydanticCustomError("input", "must be texts or token ids, not both")
    return value


def _branch(value: Any) -> str | None:
    """Texts or token ids, by the first input."""
    if not isinstance(value, list):
        return None
    return BRANCH + ("ids" if value and isinstance(value[0], list) else "texts")


class EmbeddingsRequest(EncoderFields):
    """Texts, or the token ids of texts, to be turned into vectors."""

    input: Annotated[
        Annotated[list[_Text], Field(min_length=1), Tag(BRANCH + "texts")]
        | Annotated[list[_Ids], Field(min_length=1), Tag(BRANCH + "ids")],
        Discriminator(_branch, custom_error_type="input", custom_error_message="must be a text or an array of texts"),
        BeforeValidator(_items),
    ]
    dimensions: Annotated[int | None, Field(ge=1, le=65536)] = None
    encoding_format: Literal["float", "base64"] = "float"

    @property
    def has_ids(self) -> bool:
        """Whether it has token ids in place of texts."""
        return not isinstance(self.input[0], str)

    def check_model(self, model: EncoderModel) -> None:
        """Check that token ids are those of the model; see ``EncoderFields``."""
        if not self.has_ids:
            return
        features, vocab_size = model.features, model.vocab_size
        takes_ids = model.settings.encoder.token_ids == "own"  # noqa: S105 - no password
        if not takes_ids or vocab_size is None or not (features and features.prompt_ids):
            message = (
                "This model takes texts, but 'input' has token ids, which may be of another model's vocabulary. "
                "LangChain's OpenAIEmbeddings sends texts with check_embedding_ctx_length=False."
            )
            raise BadRequestError(message, param="input", code="invalid_value")
        for index, each in enumerate(self.inputs()):
            if max(each.ids) >= vocab_size:
                message = f"'input[{index}]' has a token id beyond the vocabulary of {vocab_size} tokens."
                raise BadRequestError(message, param=f"input[{index}]", code="invalid_value")

    def inputs(self) -> Sequence[EncoderInput]:
        """Its inputs; see ``EncoderFields``."""
        return [
            EncoderInput(item) if isinstance(item, str) else EncoderInput("", ids=item, type_ids=[0] * len(item))
            for item in self.input
        ]

    def path(self, index: int) -> str:
        """The path of an input; see ``EncoderFields``."""
        return f"input[{index}]"

    def params(self) -> EncoderParams:
        """With the length of the vectors; see ``EncoderFields``."""
        return dataclasses.replace(super().params(), dimensions=self.dimensions)
