"""Request fields of the endpoints of encoders: inputs, truncation, and the form of vectors."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, Literal, cast

import numpy as np
from pydantic import BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from gateway.api.openai.validation import BRANCH, RequestPart
from gateway.generation.encoder import EncoderParams, unit_rows
from gateway.generation.engine import MalformedOutputError
from gateway.serving.encoder_model import EncoderModel, EncoderResult
from gateway.text.bad_request import BadRequestError
from gateway.text.tokens.encoder_tokenizer import EncoderInput, Truncation

TRUNCATIONS: dict[str, Truncation] = {"none": "none", "start": "start", "left": "start", "end": "end", "right": "end"}
"""Of inputs that are too long, by the values of ``truncate`` and ``truncation_side``."""
_LARGEST_ID = 2**31 - 1
_Ids = Annotated[list[Annotated[int, Field(ge=0, le=_LARGEST_ID)]], Field(min_length=1, fail_fast=True)]

Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[list[Text], Field(min_length=1, fail_fast=True)]


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


class EncoderFields(RequestPart):
    """The fields that all endpoints of encoders have; null means absent."""

    model: Annotated[str, Field(min_length=1)]
    user: str | None = None
    input_type: Annotated[str | None, Field(min_length=1, max_length=256)] = None
    truncate: Annotated[Literal["none", "start", "left", "end", "right"] | None, BeforeValidator(_lower)] = None
    truncate_prompt_tokens: Annotated[int | None, Field(ge=-1)] = None
    truncation_side: Literal["left", "right"] | None = None

    @abstractmethod
    def inputs(self) -> Sequence[EncoderInput]:
        """The inputs to encode, at least one."""

    @abstractmethod
    def path(self, index: int, *, of_query: bool = False) -> str:
        """The path of an input in the request, such as ``input[3]``; of a pair, its second text or its query."""

    def check_model(self, model: EncoderModel) -> None:
        """Check the conditions that only this endpoint sets for a model.

        Raises:
            BadRequestError: naming the parameter at fault.
        """

    def effective_fields(self) -> set[str]:
        """The given fields that change anything."""
        return {name for name in self.model_fields_set if name != "truncate" or self.truncation() != "none"}

    def truncation(self) -> Truncation:
        """The side on which inputs that are too long are cut."""
        by_length = "none" if self.truncate_prompt_tokens is None else self.truncation_side or "end"
        return TRUNCATIONS[self.truncate or by_length]

    def params(self) -> EncoderParams:
        """The parameters for all inputs."""
        most = self.truncate_prompt_tokens
        return EncoderParams(self.input_type, self.truncation(), most_tokens=None if most == -1 else most)

    async def checked_params(self, model: EncoderModel) -> EncoderParams:
        """The parameters, once those are checked of which only the running model knows the bounds.

        Raises:
            BadRequestError: naming the parameter at fault.
            EngineError: the model is not ready, or has failed.
        """
        del model
        return self.params()


class PairFields(EncoderFields):
    """Pairs of a query and a document."""

    max_tokens_per_doc: Annotated[int | None, Field(ge=1)] = None

    def params(self) -> EncoderParams:
        """The parameters, with the most tokens of a document; see ``EncoderFields``."""
        return dataclasses.replace(super().params(), document_tokens=self.max_tokens_per_doc)


def _of_one_kind(value: Any) -> Any:
    """The inputs as they were sent, unless texts and token ids are mixed."""
    if isinstance(value, list) and len({type(item) for item in value} - {bool}) > 1:
        raise PydanticCustomError("input", "must be texts or token ids, not both")
    return value


def _branch(value: Any) -> str | None:
    """One text or several, or the token ids of one or of several, by the first item."""
    if isinstance(value, str):
        return BRANCH + "text"
    if not isinstance(value, list):
        return None
    first = value[0] if value else ""
    return BRANCH + ("ids" if isinstance(first, int) else "lists" if isinstance(first, list) else "texts")


class InputFields(EncoderFields):
    """Texts, or the token ids of texts."""

    input: Annotated[
        Annotated[Text, Tag(BRANCH + "text")]
        | Annotated[Texts, Tag(BRANCH + "texts")]
        | Annotated[_Ids, Tag(BRANCH + "ids")]
        | Annotated[list[_Ids], Field(min_length=1, fail_fast=True), Tag(BRANCH + "lists")],
        Discriminator(_branch, custom_error_type="input", custom_error_message="must be a text or an array of texts"),
        BeforeValidator(_of_one_kind),
    ]

    def _items(self) -> Sequence[str | list[int]]:
        """The inputs, of which one may have been sent by itself."""
        alone = isinstance(self.input, str) or isinstance(self.input[0], int)
        return cast("Sequence[str | list[int]]", [self.input] if alone else self.input)

    def check_model(self, model: EncoderModel) -> None:
        """Check that token ids are those of the model; see ``EncoderFields``."""
        items = [each for each in self._items() if not isinstance(each, str)]
        if not items:
            return
        vocab_size = model.vocab_size
        if model.settings.encoder.token_ids != "own" or vocab_size is None:  # noqa: S105 - no password
            message = (
                "This model takes texts, but 'input' has token ids, which may be of another model's vocabulary. "
                "LangChain's OpenAIEmbeddings sends texts with check_embedding_ctx_length=False."
            )
            raise BadRequestError(message, param="input", code="invalid_value")
        for index, item in enumerate(items):
            if max(item) >= vocab_size:
                path = self.path(index)
                message = f"{path!r} has a token id beyond the vocabulary of {vocab_size} tokens."
                raise BadRequestError(message, param=path, code="invalid_value")

    def inputs(self) -> Sequence[EncoderInput]:
        """The texts or token ids; see ``EncoderFields``."""
        return [
            EncoderInput(item) if isinstance(item, str) else EncoderInput("", ids=item, type_ids=[0] * len(item))
            for item in self._items()
        ]

    def path(self, index: int, *, of_query: bool = False) -> str:
        """The path of an input; see ``EncoderFields``."""
        del of_query
        return f"input[{index}]" if self.input is self._items() else "input"


class VectorFields(InputFields):
    """Inputs whose vectors are returned."""

    dimensions: Annotated[int | None, Field(ge=1, le=65536)] = None
    encoding_format: Literal["float", "base64"] = "float"
    normalize: bool | None = None

    def check_model(self, model: EncoderModel) -> None:
        """Check that vectors may keep their lengths; see ``EncoderFields``."""
        super().check_model(model)
        if self.normalize is False and model.settings.encoder.normalize is not False:
            message = "The vectors of this model may have been scaled to length 1; 'normalize' can only be true."
            raise BadRequestError(message, param="normalize", code="unsupported_parameter")

    async def checked_params(self, model: EncoderModel) -> EncoderParams:
        """The parameters, with the length of vectors unless it is the model's own; see ``EncoderFields``."""
        if self.dimensions is None or self.dimensions == (width := await model.width()):
            return self.params()
        if self.dimensions > width:
            message = f"'dimensions' is {self.dimensions}, but the vectors of this model have {width}."
            raise BadRequestError(message, param="dimensions", code="integer_above_max_value")
        if (found := model.capabilities["dimensions"]).how == "impossible":
            message = f"'dimensions' can only be {width}. {found.note}"
            raise BadRequestError(message, param="dimensions", code="unsupported_parameter")
        return dataclasses.replace(self.params(), dimensions=self.dimensions)

    def rows(self, model: EncoderModel, encoded: EncoderResult) -> Sequence[Any]:
        """The vectors, or the scores by class, little-endian: as arrays, or as their bytes for base64.

        Raises:
            MalformedOutputError: the model returned another number of dimensions, or zeros only.
        """
        vectors, width = encoded.values, encoded.values.shape[1]
        asked = self.dimensions or width
        if asked != width:
            if asked > width or model.capabilities["dimensions"].how != "emulated":
                detail = f"{width} dimensions, not {asked}"
                raise MalformedOutputError(detail, f"The model returned vectors with {detail}.")
            vectors = vectors[:, :asked]
        if asked != width or self.normalize:
            vectors = vectors if self.normalize is False else unit_rows(vectors)
            if not vectors.any(axis=1).all():
                raise MalformedOutputError("zeros", "The model returned a vector of zeros.")
        vectors = np.ascontiguousarray(vectors, "<f4")
        return [row.data for row in vectors] if self.encoding_format == "base64" else list(vectors)
