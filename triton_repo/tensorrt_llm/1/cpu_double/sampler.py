"""From logits to a token, with TensorRT-LLM's order of operations and its traps (wire contract 2.1 and 2.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from wire.log_probs import best, best_log_probs, log_softmax
from wire.word_lists import banned_next

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cpu_double.guided import Matcher
    from wire.log_probs import Doubles
    from wire.request import Request

_NUCLEUS = 1024  # a nucleus rarely needs more candidates; sorting these first is much cheaper


class Draw(NamedTuple):
    """A drawn token, its log-prob and its alternatives (0 and empty where not asked for)."""

    token: int
    log_prob: float
    top: list[tuple[int, float]]


class Guess(NamedTuple):
    """A draft's next token, which is accepted or replaced.

    Attributes:
        token: its id.
        logits: [vocab], raw, that it was drawn from.
        threshold: the part of its probability there that it must have here; None draws it at random.
    """

    token: int
    logits: NDArray[np.float32]
    threshold: float | None


class Sampler:
    """Draws the tokens of one sequence.

    Attributes:
        vocab: size of the logits.
    """

    def __init__(
        self, request: Request, vocab: int, *, normalize_log_probs: bool, matcher: Matcher | None = None
    ) -> None:
        """Prepare.

        Args:
            request: taken as valid.
            vocab: size of the logits.
            normalize_log_probs: log-probs over the candidates that survive top-k and top-p, instead of all.
            matcher: what the answer is held to.
        """
        self._matcher = matcher
        sampling = request.sampling
        self._request, self._sampling = request, sampling
        self.vocab = vocab
        self._normalize = normalize_log_probs
        temperature, top_k, top_p = sampling.temperature, sampling.top_k or 0, max(sampling.top_p or 0.0, 0.0)
        if temperature == 0:
            # The executor rewrites 0 to 1 and forces only what was supplied: top_p alone then samples at 1.
            temperature, top_k, top_p = 1.0, int(sampling.top_k is not None), float(top_p > 0)
        if not top_k and not top_p:
            top_k = 1  # neither given: greedy, whatever the temperature
        self._temperature = 1.0 if temperature is None else temperature
        self._top_k, self._top_p = top_k, top_p or 1.0
        self._first_top_p = self._top_p
        # A draft with logits was drawn with this seed: the decision on its tokens must not follow from it.
        seed = sampling.seed if request.draft.logits is None else [sampling.seed, 1]
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._counts: NDArray[np.int64] | None = None
        if sampling.repetition_penalty != 1 or sampling.presence_penalty or sampling.frequency_penalty:
            real = [token for token in request.prompt if token < vocab]  # the others are rows of a prompt table
            self._counts = np.bincount(real, minlength=vocab)

    def draw(self, logits: NDArray[np.float32], tokens: Sequence[int], guess: Guess | None = None) -> Draw:
        """Draw the next token.

        Args:
            logits: [vocab], float32.
            tokens: prompt and everything generated so far.
            guess: a token to accept or to replace so that, without a threshold, the outcome is distributed as if there
                were none (speculative sampling, https://arxiv.org/abs/2211.17192). Greedy, only the best is accepted.

        Raises:
            GuideError: the guide is too complex to go on.
        """
        scores = self._guide(self._process(logits, tokens), logits)
        wants_log_probs = self._request.log_probs or self._request.top_log_probs > 0
        if self._top_k == 1:
            token = int(scores.argmax())
            survivors = 0.0
        else:
            ids, mass = self._survivors(self._apply_min_p(scores))
            place = self._pick(mass) if guess is None else self._check(ids, mass, guess, tokens)
            token = int(ids[place])
            survivors = float(np.log(mass[place] / mass.sum())) if wants_log_probs else 0.0
        if self._counts is not None:
            self._counts[token] += 1
        if self._matcher is not None:
            self._matcher.advance(token)
        if self._sampling.top_p_decay < 1:
            self._decay_top_p(token)
        if not wants_log_probs:
            return Draw(token, 0.0, [])
        full = log_softmax(scores)
        top = best_log_probs(full, self._request.top_log_probs)
        return Draw(token, survivors if self._normalize else float(full[token]), top)

    def _decay_top_p(self, token: int) -> None:
        """Shrink the nucleus for the next token, or reset it."""
        sampling = self._sampling
        decayed = max(self._top_p * sampling.top_p_decay, sampling.top_p_min)
        self._top_p = self._first_top_p if token == sampling.top_p_reset_id else decayed

    def _pick(self, mass: Doubles) -> int:
        """The place of a candidate, drawn by mass."""
        total = np.cumsum(mass)
        place = int(np.searchsorted(total, self._rng.random() * total[-1], side="right"))
        return min(place, len(mass) - 1)

    def _check(self, ids: NDArray[np.int64], mass: Doubles, guess: Guess, tokens: Sequence[int]) -> int:
        """The place of the guess where it is accepted, else of a candidate that the draft gave too little."""
        drafted = np.zeros(self.vocab)
        others, other_mass = self._survivors(self._apply_min_p(self._process(guess.logits, tokens)))
        drafted[others] = other_mass / other_mass.sum()
        own = mass / mass.sum()
        threshold = self._rng.random() if guess.threshold is None else guess.threshold
        places = np.flatnonzero(ids == guess.token)
        if places.size and own[places[0]] >= threshold * drafted[guess.token]:
            return int(places[0])
        left = np.maximum(own - drafted[ids], 0.0)
        return self._pick(left if left.any() else own)

    @property
    def ended(self) -> bool:
        """Whether the guide lets nothing more follow."""
        return self._matcher is not None and self._matcher.ended

    def _guide(self, scores: Doubles, logits: NDArray[np.float32]) -> Doubles:
        """Without what the guide forbids. It wins: bans and ``min_tokens`` that leave it nothing do not hold."""
        if self._matcher is None:
            return scores
        allowed = self._matcher.allowed()
        if not np.isfinite(scores[allowed]).any():
            scores = logits.astype(np.float64)
        return np.where(allowed, scores, -np.inf)

    def _process(self, logits: NDArray[np.float32], tokens: Sequence[int]) -> Doubles:
        """Bias, temperature, penalties, bans: in this order. Doubles, so that a tiny temperature cannot overflow."""
        sampling = self._sampling
        scores = logits.astype(np.float64)
        if sampling.bias is not None:
            scores += sampling.bias
        if self._temperature != 1:
            scores /= self._temperature
        if self._counts is not None:
            seen = np.flatnonzero(self._counts)
            values = scores[seen]
            values = np.where(values < 0, values * sampling.repetition_penalty, values / sampling.repetition_penalty)
            scores[seen] = values - sampling.presence_penalty - sampling.frequency_penalty * self._counts[seen]
        scores[banned_next(tokens, sampling.bad_words)] = -np.inf
        generated = len(tokens) - len(self._request.prompt)
        if self._request.end_id >= 0 and generated < sampling.min_tokens:
            scores[self._request.end_id] = -np.inf
        return scores

    def _apply_min_p(self, scores: Doubles) -> Doubles:
        """Without the candidates that are too improbable beside the best; the temperature is in ``scores`` already."""
        least = self._sampling.min_p
        return np.where(scores < scores.max() + np.log(least), -np.inf, scores) if least else scores

    def _survivors(self, scores: Doubles) -> tuple[NDArray[np.int64], Doubles]:
        """Candidates that top-k and top-p leave, best first (in id order when all survive), and their mass."""
        if self._top_k:
            ids = best(scores, self._top_k)
            mass = np.exp(scores[ids] - scores[ids[0]])
            return _nucleus(ids, mass, self._top_p * mass.sum())
        mass = np.exp(scores - scores.max())
        if self._top_p >= 1:
            return np.arange(len(mass)), mass
        wanted = self._top_p * mass.sum()
        ids = best(scores, _NUCLEUS)
        if mass[ids].sum() < wanted:
            ids = best(scores, len(scores))
        return _nucleus(ids, mass[ids], wanted)


def _nucleus(ids: NDArray[np.int64], mass: Doubles, wanted: float) -> tuple[NDArray[np.int64], Doubles]:
    """The shortest head of ``ids`` that holds ``wanted`` mass."""
    count = int(np.searchsorted(np.cumsum(mass), wanted)) + 1
    return ids[:count], mass[:count]
