"""Settings of a served model that turns texts into vectors or scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from gateway.settings.section import Section, split_commas

TokenTensor = Literal["input_ids", "attention_mask", "token_type_ids", "position_ids"]
EncoderTensor = TokenTensor | Literal["text", "pair", "query", "document", "embedding_request"]
"""The content of an input tensor of an encoder."""

Constant = bool | int | float | str
RequestField = Literal["input_type", "truncate", "dimensions"]


class InputTypeSettings(Section):
    """Changes that an ``input_type`` of requests makes.

    Attributes:
        prefix: text before each input.
        inputs: values of further input tensors, by name.
        parameters: request parameters for Triton, by name.
    """

    prefix: str = ""
    inputs: Mapping[str, Constant] = Field(default_factory=dict)
    parameters: Mapping[str, Constant] = Field(default_factory=dict)


class EncoderSettings(Section):
    """Properties of an encoder that its configuration in Triton does not tell.

    Attributes:
        tensors: names of its input tensors, by what they hold; what is not named is found by name and type.
        inputs: values of further input tensors, the same for every request, by name.
        parameters: request parameters for Triton, the same for every request, by name.
        request_fields: fields of requests that the model takes as request parameters of the same name.
        output: name of the tensor with the vectors or scores.
        count: name of the tensor with the tokens of each input.
        input_types: what each ``input_type`` changes, by its name, such as ``query`` and ``passage``.
        default_input_type: the ``input_type`` of requests without one.
        pooling: makes one vector of the vectors of all tokens, if the model returns those.
        normalize: whether vectors are scaled to length 1; None: if the gateway pools them.
        dimensions: whether a request may ask for shorter vectors, which the gateway cuts and scales to length 1.
        activation: turns scores into probabilities; ``auto``: ``sigmoid`` for one score that the model calls logit,
            ``softmax`` for classes unless the model calls them probabilities, or they are.
        labels: names of the classes, in order; empty: those of the tokenizer folder's ``config.json``, or ``LABEL_0``.
        batch: most inputs of one request to Triton; None: the model's ``max_batch_size``, or 1 if that is 0.
        batch_tokens: most tokens of one request to Triton with several inputs, each counted as the longest.
        max_items: most inputs of a request of a client.
        max_tokens: most tokens of all inputs of such a request, where the gateway has the tokenizer.
        token_ids: whether requests may have token ids, of the model's own tokenizer (``own``), in place of texts.
    """

    tensors: Mapping[EncoderTensor, str] = Field(default_factory=dict)
    inputs: Mapping[str, Constant] = Field(default_factory=dict)
    parameters: Mapping[str, Constant] = Field(default_factory=dict)
    request_fields: Annotated[tuple[RequestField, ...], BeforeValidator(split_commas)] = ()
    output: str | None = Field(default=None, min_length=1)
    count: str | None = Field(default=None, min_length=1)
    input_types: Mapping[str, InputTypeSettings] = Field(default_factory=dict)
    default_input_type: str | None = None
    pooling: Literal["mean", "cls", "last"] = "mean"
    normalize: bool | None = None
    dimensions: bool = False
    activation: Literal["auto", "sigmoid", "softmax", "none"] = "auto"
    labels: Annotated[tuple[str, ...], BeforeValidator(split_commas)] = ()
    batch: int | None = Field(default=None, ge=1, le=4096)
    batch_tokens: int = Field(default=16_384, ge=1)
    max_items: int = Field(default=2048, ge=1, le=65536)
    max_tokens: int = Field(default=300_000, ge=1)
    token_ids: Literal["reject", "own"] = "reject"  # noqa: S105 - no password

    @field_validator("token_ids")
    @classmethod
    def _can_be_sent(cls, value: str, info: ValidationInfo) -> str:
        if value == "own" and info.data.get("tensors", {}).keys() - {*get_args(TokenTensor)}:
            raise ValueError("own is of models that take token ids, but tensors names an input of texts")
        return value
