"""Scores of pairs of texts by a model that embeds each text: the cosine of their vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gateway.generation import EngineError
from gateway.generation.encoder import EncoderParams, unit_rows
from gateway.serving.encoder_model import EncoderModel, EncoderResult
from gateway.text.tokens.encoder_tokenizer import EncoderInput, InputTooLongError


async def score_pairs(
    model: EncoderModel, pairs: Sequence[EncoderInput], params: EncoderParams, request_id: str, arrived: float
) -> EncoderResult:
    """Score pairs, each different first text being encoded once; see ``EncoderModel.encode``.

    Returns:
        A cosine for each pair, float32 [pairs, 1].
    """
    firsts = list(dict.fromkeys(each.text for each in pairs))
    texts = [*(each.pair or "" for each in pairs), *firsts]  # errors name the second texts by their places
    try:
        encoded = await model.encode([EncoderInput(text) for text in texts], params, request_id, arrived)
    except InputTooLongError as error:
        if error.index >= len(pairs):
            error.of_query = True
            error.index = _pair_of(texts[error.index], pairs)
        raise
    except EngineError as error:
        if error.item is not None and error.item >= len(pairs):
            found, error.param = error.item, "query"
            error.item = _pair_of(texts[found], pairs)
            error.message = error.message.replace(f"(input {found})", f"(first text of pair {error.item})")
        raise
    units = unit_rows(encoded.values)
    places = {text: len(pairs) + place for place, text in enumerate(firsts)}
    scores = (units[: len(pairs)] * units[[places[each.text] for each in pairs]]).sum(axis=1, keepdims=True)
    return EncoderResult(scores.astype(np.float32, copy=False).clip(-1, 1), encoded.tokens)


def _pair_of(first: str, pairs: Sequence[EncoderInput]) -> int:
    """The place of the first pair with a first text."""
    return next(place for place, each in enumerate(pairs) if each.text == first)
