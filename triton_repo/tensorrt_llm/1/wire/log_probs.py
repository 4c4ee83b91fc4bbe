"""Log-probs and ranks of tokens, by logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wire.response import PromptScores

Doubles = NDArray[np.float64]


def best(scores: Doubles, count: int) -> NDArray[np.int64]:
    """Ids of the ``count`` highest scores, best first; equal scores by id."""
    everything = count >= len(scores)
    candidates = np.arange(len(scores)) if everything else np.sort(np.argpartition(-scores, count)[:count])
    return candidates[np.argsort(-scores[candidates], kind="stable")]


def log_softmax(scores: Doubles) -> Doubles:
    """Log-probs over the last axis."""
    shifted = scores - scores.max(axis=-1, keepdims=True)
    full: Doubles = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return full


def rank(full: Doubles, token: int) -> int:
    """The place of a token among all by their log-probs, from 1; of equal ones the lower id comes first."""
    own = full[token]
    return 1 + int(np.count_nonzero(full > own)) + int(np.count_nonzero(full[:token] == own))


def best_log_probs(full: Doubles, count: int) -> list[tuple[int, float]]:
    """The ``count`` best of log-probs [vocab] as (id, log-prob), best first; equal ones by id."""
    return [(int(i), float(full[i])) for i in best(full, count)] if count else []


def score_prompt(scores: PromptScores, logits: NDArray[np.float32], tokens: Sequence[int], alternatives: int) -> None:
    """Add the log-probs and ranks of prompt tokens, and their alternatives, to the scores.

    Args:
        scores: those of the tokens before.
        logits: [positions, vocab] of the model itself, at least as many positions as tokens.
        tokens: what the prompt has after each position.
        alternatives: how many each token gets.
    """
    for row, token in zip(logits, tokens, strict=False):
        full = log_softmax(row.astype(np.float64))
        scores.log_probs.append(float(full[token]))
        scores.ranks.append(rank(full, token))
        scores.top_log_probs.append(best_log_probs(full, alternatives))
