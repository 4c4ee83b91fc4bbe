"""Types of the responses of the token endpoints."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict
from typing_extensions import TypedDict

from gateway.settings import EngineForm


class Tokenized(TypedDict):
    """Token ids of a text or a conversation."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Detokenized(TypedDict):
    """Text of token ids."""

    prompt: str


class TokenizerInfo(TypedDict):
    """The tokenizer of a model, with further special tokens of its configuration."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]  # pydantic reads it

    tokenizer_class: str
    model: str
    vocab_size: int
    model_max_length: int
    max_model_len: int
    add_bos_token: bool
    bos_token: str | None
    bos_token_id: int | None
    eos_token: str | None
    eos_token_id: int | None
    eos_token_ids: list[int]
    control_tokens: list[str]
    chat_template: str


class RenderedTensor(TypedDict):
    """An input tensor of the engine, with its first elements in row-major order."""

    name: str
    datatype: str
    shape: list[int]
    size: int
    data: list[Any]


class RenderedChat(TypedDict):
    """The request to the engine that a chat request makes."""

    object: Literal["chat.completion.render"]
    model: str
    prompt: str
    prompt_token_ids: list[int]
    count: int
    max_model_len: int
    max_tokens: int
    seeds: list[int]
    path: EngineForm
    triton_model: str
    tensors: list[RenderedTensor]
