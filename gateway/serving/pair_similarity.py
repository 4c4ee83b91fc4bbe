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
    texts = [*(each.pair or "" for each in pairs), *firsts]
    try:
        encoded = await model.encode([EncoderInput(text) for text in texts], params, request_id, arrived)
    except InputTooLongError as error:
        error.index, error.of_query = _place(error.index, pairs, firsts)
        raise
    except EngineError as error:
        error.items = [_place(index, pairs, firsts) for index, _ in error.items]
        raise
    units = unit_rows(encoded.values)
    places = {text: len(pairs) + place for place, text in enumerate(firsts)}
    scores = (units[: len(pairs)] * units[[places[each.text] for each in pairs]]).sum(axis=1, keepdims=True)
    return EncoderResult(scores.astype(np.float32, copy=False).clip(-1, 1), encoded.tokens)


def _place(index: int, pairs: Sequence[EncoderInput], firsts: Sequence[str]) -> tuple[int, bool]:
    """The pair of an encoded text, the first one that has it, and whether it is the pair's first text."""
    if index < len(pairs):
        return index, False
    return next(at for at, each in enumerate(pairs) if each.text == firsts[index - len(pairs)]), True
