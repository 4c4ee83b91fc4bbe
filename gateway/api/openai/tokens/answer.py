"""Responses of the token endpoints: ids, texts, the tokenizer, and the engine's request for a chat."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from gateway.api.openai.chat.answer import ChatAnswer
from gateway.api.openai.endpoint import find_for_task, find_model, models_of_caller
from gateway.api.openai.errors import from_engine
from gateway.api.openai.tokens.protocol import DetokenizeRequest, TokenizeRequest
from gateway.generation import DescribingEngine, EngineError, EngineFeatures, ErrorKind, GenerationRequest
from gateway.serving import prompts
from gateway.serving.encoder_model import EncoderModel
from gateway.serving.generator_model import GeneratorModel
from gateway.serving.prompts import ChatPrompt, TextPrompt
from gateway.serving.registry import Registry
from gateway.text.bad_request import BadRequestError

_DEFAULT_CLASS = "PreTrainedTokenizerFast"  # transformers uses this class if tokenizer.json names none


def tokenizing_model(registry: Registry, name: str | None) -> GeneratorModel | EncoderModel:
    """Find the served model with an id, of any task; see ``model_or_only``."""
    named = [find_model(registry, name)] if name is not None else [each for _, each in models_of_caller(registry)]
    if named and isinstance(named[0], EncoderModel) and len({each.name for each in named}) == 1:
        return named[0]
    return model_or_only(registry, name)


def model_or_only(registry: Registry, name: str | None) -> GeneratorModel:
    """Find the served model with an id; without an id the only served model.

    Raises:
        OpenAIError: 404 for an unknown id, 400 when several are served and none is named.
    """
    if name is not None:
        return find_for_task(registry, name, GeneratorModel, ("generate",))
    every = {model.name: model for _, model in models_of_caller(registry)}
    models = [model for model in every.values() if isinstance(model, GeneratorModel)]
    if not models:
        return find_for_task(registry, "", GeneratorModel, ("generate",))
    if len(models) > 1:
        message = "Several models are served; set 'model' to one of them."
        raise BadRequestError(message, param="model", code="missing_required_parameter")
    return models[0]


def tokenize(
    request: TokenizeRequest,
    source: ChatPrompt | TextPrompt,
    model: GeneratorModel,
    cancel: threading.Event | None = None,
) -> bytes:
    """Write the token ids of a text or a conversation as a JSON object, without the engine.

    Args:
        request: parsed and validated.
        source: of the prompt.
        model: has the tokenizer.
        cancel: set when the client has left.

    Raises:
        EngineError: UNAVAILABLE while the tokenizer is not loaded.
        LeftError: the client has left.
        BadRequestError: when the model cannot take the prompt, or it has more than ``prompts.most_tokens``.
        TemplateError: when the chat template rejects the messages.
    """
    parts = model.parts
    try:
        ids = _ids(request, source, model, cancel)
    except EngineError as error:
        if error.kind is not ErrorKind.CONTEXT_LENGTH:
            raise
        param = "prompt" if request.messages is None else "messages"
        raise BadRequestError(error.message, param, "context_length_exceeded") from None
    strings = [parts.tokenizer.raw_token(index) or "" for index in ids] if request.return_token_strs else None
    # Not the standard library's JSON: it holds up all other requests for half a second over a million ids.
    return orjson.dumps({"count": len(ids), "max_model_len": parts.max_seq_len, "tokens": ids, "token_strs": strings})


def _ids(
    request: TokenizeRequest, source: ChatPrompt | TextPrompt, model: GeneratorModel, cancel: threading.Event | None
) -> list[int]:
    parts = model.parts
    most = prompts.most_tokens(parts)
    bound = prompts.LengthBound(parts, most, cancel)
    if isinstance(source, TextPrompt):
        bound.check_source(source)
        ids = list(parts.prompts.text(source.text, add_special_tokens=source.add_special_tokens, how=bound).ids)
        bound.check_count(len(ids))
        return ids
    ids = list(prompts.build(source, parts, model.settings, limit=most, cancel=cancel, recall=model.recall()).ids)
    bound.check_count(len(ids))
    tokenizer = parts.tokenizer
    if request.add_special_tokens and tokenizer.adds_bos and tokenizer.bos_id is not None:
        return ids if ids[:1] == [tokenizer.bos_id] else [tokenizer.bos_id, *ids]
    return ids


def detokenize(request: DetokenizeRequest, model: GeneratorModel) -> bytes:
    """Write the text of token ids as a JSON object, special tokens shown.

    Raises:
        EngineError: UNAVAILABLE while the tokenizer is not loaded.
        BadRequestError: when an id is not in the vocabulary, or there are more than ``prompts.most_tokens``.
    """
    parts = model.parts
    most = prompts.most_tokens(parts)
    if len(request.tokens) > most:
        message = f"'tokens' must have at most {most} token ids, but has {len(request.tokens)}."
        raise BadRequestError(message, "tokens", "array_above_max_length")
    prompts.check_ids(request.tokens, parts.tokenizer, "tokens[{place}]")
    return orjson.dumps({"prompt": parts.tokenizer.decode(request.tokens, skip_special_tokens=False)})


def tokenizer_info(model: GeneratorModel) -> dict[str, Any]:
    """Describe the tokenizer: the keys of tokenizer_config.json, and the gateway's own.

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


async def render(answer: ChatAnswer, model: GeneratorModel) -> bytes:
    """Write the prompt, its token ids and the tensors of a chat request as a JSON object.

    Args:
        answer: prepared, and never run.
        model: named by the request.

    Raises:
        BadRequestError: when the engine does not show its requests, or cannot serve the request.
        OpenAIError: when the request cannot be encoded.
    """
    engine = model.engine
    if not isinstance(engine, DescribingEngine):
        raise BadRequestError("The engine of this model does not list its requests.", param="model")
    requests = [generation.request for generation in answer.generations]
    write = functools.partial(_rendered, requests, engine.describe, engine.features, model)
    work = prompts.work_of(len(requests[0].prompt.ids))
    try:
        return write() if work is None else await work.run(write)
    except EngineError as error:
        raise from_engine(error, answer.names()) from None


def _rendered(
    requests: Sequence[GenerationRequest],
    tensors: Callable[[GenerationRequest], list[dict[str, Any]]],
    features: EngineFeatures,
    model: GeneratorModel,
    cancel: threading.Event | None = None,
) -> bytes:
    del cancel
    first, prompt = requests[0], requests[0].prompt
    # These engines draw their own seeds, which are not known, unless a request has one.
    own = features.path not in ("tokens", "ensemble")
    return orjson.dumps(
        {
            "object": "chat.completion.render",
            "model": model.name,
            "prompt": prompt.text,
            "prompt_token_ids": list(prompt.ids),
            "count": len(prompt.ids),
            "max_model_len": model.parts.max_seq_len,
            "max_tokens": first.max_tokens,
            "seeds": [request.seed for request in requests] if first.params.seed is not None or not own else [],
            "path": features.path,
            "triton_model": features.model,
            "tensors": tensors(first),
        }
    )
