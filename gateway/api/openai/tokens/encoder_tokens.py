"""Responses of ``/tokenize`` and ``/detokenize`` for models that encode."""

from __future__ import annotations

import orjson

from gateway.api.openai.tokens.protocol import DetokenizeRequest, TokenizeRequest
from gateway.generation import too_many_tokens
from gateway.serving.encoder_model import EncoderModel
from gateway.serving.prompts import check_ids
from gateway.text.bad_request import BadRequestError
from gateway.text.tokens.encoder_tokenizer import EncoderInput, EncoderTokenizer, InputTooLongError


def tokenize(request: TokenizeRequest, model: EncoderModel) -> bytes:
    """Write the token ids of a text, with the model's special tokens, as a JSON object.

    Raises:
        BadRequestError: the model has no tokenizer, or the request is a chat, or has more than ``max_tokens``.
    """
    tokenizer, text, most = _tokenizer(model), request.prompt, model.settings.encoder.max_tokens
    if text is None:
        message = f"The task of the model {model.name!r} is {model.task}: it has no chats; send 'prompt'."
        raise BadRequestError(message, "messages", "unsupported_parameter")
    try:
        (found,) = tokenizer.tokenize([EncoderInput(text)], most, total=most)
    except InputTooLongError as error:
        message = too_many_tokens(error.tokens, most)
        raise BadRequestError(message, "prompt", "context_length_exceeded") from None
    ids = tokenizer.plain.encode(text) if request.add_special_tokens is False else list(found.ids)
    strings = [tokenizer.plain.raw_token(index) or "" for index in ids] if request.return_token_strs else None
    return orjson.dumps({"count": len(ids), "max_model_len": model.max_seq_len, "tokens": ids, "token_strs": strings})


def detokenize(request: DetokenizeRequest, model: EncoderModel) -> bytes:
    """Write the text of token ids as a JSON object, special tokens shown.

    Raises:
        BadRequestError: the model has no tokenizer, an id is not in its vocabulary, or there are too many.
    """
    tokenizer, ids, most = _tokenizer(model), request.tokens, model.settings.encoder.max_tokens
    if len(ids) > most:
        message = f"'tokens' must have at most {most} token ids, but has {len(ids)}."
        raise BadRequestError(message, "tokens", "array_above_max_length")
    check_ids(ids, tokenizer.plain, "tokens[{place}]")
    return orjson.dumps({"prompt": tokenizer.plain.decode(ids, skip_special_tokens=False)})


def _tokenizer(model: EncoderModel) -> EncoderTokenizer:
    if model.tokenizer is None:
        message = f"The gateway has no tokenizer of the model {model.name!r}; set tokenizer in its settings."
        raise BadRequestError(message, "model", "invalid_value")
    return model.tokenizer
