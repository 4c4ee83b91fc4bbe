"""Answers of the token endpoints."""

from __future__ import annotations

import threading
from typing import Any

import orjson

from gateway.bad_request import BadRequestError
from gateway.generation import EngineError, ErrorKind
from gateway.openai.models.lookup import find_model
from gateway.openai.tokens.objects import Detokenized, Tokenized
from gateway.openai.tokens.protocol import DetokenizeRequest, TokenizeRequest
from gateway.serving import prompts
from gateway.serving.prompt_source import ChatPrompt, TextPrompt
from gateway.serving.registry import Registry
from gateway.serving.served_model import ServedModel

_DEFAULT_CLASS = "PreTrainedTokenizerFast"  # what transformers loads from a tokenizer.json that names no class


def model_or_only(registry: Registry, name: str | None) -> ServedModel:
    """The served model with this id; without an id the only one there is.

    Raises:
        OpenAIError: 404 for an unknown id, 400 when several are served and none is named.
    """
    if name is not None:
        return find_model(registry, name)
    models = list(registry)
    if len(models) != 1:
        message = "Several models are served: name one of them in 'model'."
        raise BadRequestError(message, param="model", code="missing_required_parameter")
    return models[0]


def tokenize(
    request: TokenizeRequest,
    source: ChatPrompt | TextPrompt,
    model: ServedModel,
    left: threading.Event | None = None,
) -> bytes:
    """Token ids of a text or a conversation as a JSON object; needs the tokenizer only, not the engine.

    Args:
        request: what is asked.
        source: of the prompt.
        model: whose tokenizer.
        left: set when nobody waits for the answer any more.

    Raises:
        EngineError: UNAVAILABLE while the tokenizer is not loaded.
        LeftError: nobody waits.
        BadRequestError: when the model cannot take the prompt, or it has more than ``prompts.most_tokens``.
        TemplateError: when the chat template refuses the messages.
    """
    parts = model.parts
    try:
        ids = _ids(request, source, model, left)
    except EngineError as error:
        if error.kind is not ErrorKind.CONTEXT_LENGTH:
            raise
        param = "prompt" if request.messages is None else "messages"
        raise BadRequestError(error.message, param, "context_length_exceeded") from None
    strings = [parts.tokenizer.raw_token(index) or "" for index in ids] if request.return_token_strs else None
    # Not the standard library's JSON: it holds up everybody else for half a second where there are a million ids.
    told = Tokenized(count=len(ids), max_model_len=parts.max_seq_len, tokens=ids, token_strs=strings)
    return orjson.dumps(told)


def _ids(
    request: TokenizeRequest, source: ChatPrompt | TextPrompt, model: ServedModel, left: threading.Event | None
) -> list[int]:
    parts = model.parts
    most = prompts.most_tokens(parts)
    bound = prompts.Bound(parts, most, left)
    if isinstance(source, TextPrompt):
        bound.check_text(source.text)
        ids = list(parts.prompts.text(source.text, add_special_tokens=source.add_special_tokens).ids)
        bound.check_count(len(ids))
        return ids
    ids = list(prompts.build(source, parts, model.settings, as_ids=True, most=most, left=left).ids)
    bound.check_count(len(ids))
    tokenizer = parts.tokenizer
    if request.add_special_tokens and tokenizer.adds_bos and tokenizer.bos_id is not None:
        return ids if ids[:1] == [tokenizer.bos_id] else [tokenizer.bos_id, *ids]
    return ids


def detokenize(request: DetokenizeRequest, model: ServedModel) -> bytes:
    """Text of token ids as a JSON object, special tokens shown.

    Raises:
        EngineError: UNAVAILABLE while the tokenizer is not loaded.
        BadRequestError: when an id is not in the vocabulary, or there are more than ``prompts.most_tokens``.
    """
    parts = model.parts
    most = prompts.most_tokens(parts)
    if len(request.tokens) > most:
        message = f"At most {most} tokens are turned into text, but {len(request.tokens)} were given."
        raise BadRequestError(message, "tokens", "array_above_max_length")
    prompts.check_ids(request.tokens, parts, "tokens[{place}]")
    return orjson.dumps(Detokenized(prompt=parts.tokenizer.decode(request.tokens, skip_special_tokens=False)))


def tokenizer_info(model: ServedModel) -> dict[str, Any]:
    """What the tokenizer is: the keys of tokenizer_config.json, and what the gateway knows besides.

    Raises:
        EngineError: UNAVAILABLE while the tokenizer is not loaded.
    """
    parts = model.parts
    tokenizer = parts.tokenizer
    return {
        "tokenizer_class": tokenizer.tokenizer_class or _DEFAULT_CLASS,
        "model": model.name,
        "vocab_size": tokenizer.vocab_size,
        "model_max_length": parts.max_seq_len,
        "max_model_len": parts.max_seq_len,
        "add_bos_token": tokenizer.adds_bos,
        **tokenizer.special_tokens,
        "bos_token": tokenizer.bos_token,
        "bos_token_id": tokenizer.bos_id,
        "eos_token": tokenizer.eos_token,
        "eos_token_id": tokenizer.eos_ids[0] if tokenizer.eos_ids else None,
        "eos_token_ids": list(tokenizer.eos_ids),
        "control_tokens": list(tokenizer.control_tokens),
        "chat_template": parts.prompts.template.source,
    }
