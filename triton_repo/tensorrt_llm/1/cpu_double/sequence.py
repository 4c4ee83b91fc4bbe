"""A sequence in a slot of the engine: its tokens, its scores, and the responses made of them."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from cpu_double.kv_cache import BLOCK
from cpu_double.llama import Chunk
from cpu_double.sampler import Guess
from wire.log_probs import score_prompt
from wire.request import Request
from wire.response import Finish, Perf, PromptScores, Response
from wire.word_lists import ends_with

if TYPE_CHECKING:
    from cpu_double.kv_cache import Floats, KVCache
    from cpu_double.lora import Adapter
    from cpu_double.sampler import Draw, Sampler


@dataclass(eq=False)
class RunningSequence:
    """A request in a slot. ``tokens`` runs ahead of the cache by what is still to be computed.

    A draft follows ``tokens``: it is computed with them, and each of its tokens moves over when the same is drawn.

    Attributes:
        request: what it answers.
        sampler: draws its tokens.
        cache: keys and values of the first tokens.
        limit: tokens to generate at most.
        tokens: the prompt and everything generated so far.
        adapter: the LoRA adapter that is added to the model.
        reused_blocks: blocks of the cache that another sequence had computed.
    """

    request: Request
    sampler: Sampler
    cache: KVCache
    limit: int
    tokens: list[int]
    adapter: Adapter | None = None
    reused_blocks: int = 0
    _draft: list[int] = field(default_factory=list)
    _accepted: int = 0
    _log_probs: list[float] = field(default_factory=list)
    _top: list[list[tuple[int, float]]] = field(default_factory=list)
    _logits: list[Floats] = field(default_factory=list)
    _cum_log_prob: float = 0.0
    _prompt: PromptScores | None = None
    _context: list[Floats] = field(default_factory=list)
    _scheduled_ns: int = field(default_factory=time.monotonic_ns)
    _first_token_ns: int = 0
    _last_token_ns: int = 0

    def __post_init__(self) -> None:
        """Begin the prompt's scores where they are wanted, and cut the draft to what can be of use."""
        self._draft = list(self.request.draft.ids[: self.limit - 1])
        if self.scores_prompt:
            self._prompt = PromptScores()

    @property
    def pending(self) -> int:
        """Tokens still to be computed, those of the draft among them."""
        return len(self.tokens) + len(self._draft) - self.cache.length

    @property
    def generated(self) -> int:
        """Tokens drawn."""
        return len(self.tokens) - len(self.request.prompt)

    @property
    def scores_prompt(self) -> bool:
        """Whether every position of the prompt must be computed, since its log-probs or logits are wanted."""
        return self.request.prompt_log_probs is not None or self.request.context_logits

    def next_chunk(self, count: int) -> Chunk:
        """The next ``count`` tokens to compute, with the logits that are wanted of them."""
        request, done = self.request, self.cache.length
        wanted = count if self.scores_prompt and not self.generated else max(0, done + count - len(self.tokens) + 1)
        table = None if request.prompt_table is None else request.prompt_table.rows
        ids = (self.tokens[done:] + self._draft)[:count]
        return Chunk(ids, self.cache, wanted, self.adapter, table)

    def next_logits(self, logits: Floats) -> Floats:
        """The logits from which tokens are drawn, of a chunk [count, vocab] that the cache holds by now."""
        count = max(0, self.cache.length - len(self.tokens) + 1)
        return logits[len(logits) - count :]

    def guess(self) -> Guess | None:
        """The next token of the draft with the logits that it was drawn from; None where there are none of it."""
        logits = self.request.draft.logits
        if logits is None or not self._draft:
            return None
        return Guess(self._draft[0], logits[self._accepted], self.request.draft.threshold)

    def take_draft(self, token: int) -> bool:
        """Whether the drawn token is the next one of the draft; if not, the draft is over."""
        if self._draft and self._draft[0] == token:
            del self._draft[0]
            self._accepted += 1
            return True
        self._draft.clear()
        return False

    def drop_rejected(self) -> None:
        """Forget the keys and values of draft tokens that were not accepted."""
        if self.request.draft.ids:
            self.cache.length = min(self.cache.length, max(len(self.request.prompt), len(self.tokens) - 1))

    @property
    def salt(self) -> bytes:
        """A digest of everything but the tokens that the keys and values depend on."""
        request = self.request
        salt = hashlib.sha256(request.cache_salt.encode()).digest() if request.cache_salt else b""
        salt += b"" if self.adapter is None else self.adapter.digest
        if request.prompt_table is not None:
            salt += hashlib.sha256(request.prompt_table.rows.tobytes()).digest()
            # Without the zeros of the tokens after the table, which say nothing and are as many as the prompt is long.
            extra = np.array(request.prompt_table.extra_ids, np.uint64).tobytes().rstrip(b"\0")
            salt += hashlib.sha256(extra).digest()
        return salt

    def score_prompt(self, logits: Floats) -> None:
        """Take the logits [count, vocab] of a chunk of the prompt; its cache holds that chunk by now."""
        if self._prompt is None or self.generated:
            return
        if self.request.context_logits:
            done = self.cache.length - len(logits)
            self._context.append(logits[: len(self.request.prompt) - done].copy())
        if self.request.prompt_log_probs is None:
            return
        following = self.request.prompt[self.cache.length - len(logits) + 1 : self.cache.length + 1]
        score_prompt(self._prompt, logits, following, self.request.prompt_log_probs)

    def append(self, draw: Draw, logits: Floats) -> Finish | None:
        """Take a drawn token and the logits [vocab] it came from; returns why the sequence ends with it."""
        request = self.request
        self._last_token_ns = time.monotonic_ns()
        self._first_token_ns = self._first_token_ns or self._last_token_ns
        if draw.token == request.end_id:
            return "stop"
        self.tokens.append(draw.token)
        if request.log_probs:
            self._log_probs.append(draw.log_prob)
            self._cum_log_prob += draw.log_prob
        if request.top_log_probs:
            self._top.append(draw.top)
        if request.generation_logits:
            self._logits.append(logits.copy())
        if self.sampler.ended or any(ends_with(self.tokens, word) for word in request.stop_words):
            return "stop"
        return "length" if self.generated >= self.limit else None

    def answer(self, new: int, finish: Finish | None = None) -> Response:
        """The response that follows the last ``new`` tokens."""
        request = self.request
        shown = new if request.streaming else self.generated
        ids = self.tokens[len(self.tokens) - shown :]
        return Response(
            request,
            ids=echo(request) + ids,
            log_probs=list(self._log_probs),
            cum_log_prob=self._cum_log_prob,
            top_log_probs=self._top[len(self._top) - shown :] if request.top_log_probs else [],
            final=finish is not None,
            finish=finish,
            prompt=self._take_prompt(),
            logits=self._shown_logits(shown) if request.generation_logits else None,
            perf=self._perf() if request.perf_metrics and finish else None,
        )

    def _take_prompt(self) -> PromptScores | None:
        """The prompt's scores, once, when they are complete."""
        scores = self._prompt
        if scores is None or self.cache.length < len(self.request.prompt):
            return None
        self._prompt = None
        if not self._context:
            return scores
        logits, self._context = np.concatenate(self._context), []
        return PromptScores(scores.log_probs, scores.top_log_probs, logits, scores.ranks)

    def _shown_logits(self, shown: int) -> Floats:
        vocab = self.sampler.vocab
        rows = np.zeros((shown if self.request.streaming else self.limit, vocab), np.float32)
        if shown:
            rows[:shown] = self._logits[len(self._logits) - shown :]
        if self.request.streaming:
            self._logits.clear()  # sent; the log-probs of a long answer would be large
        return rows

    def _perf(self) -> Perf:
        return Perf(
            arrival_ns=self.request.arrival_ns,
            first_scheduled_ns=self._scheduled_ns,
            first_token_ns=self._first_token_ns,
            last_token_ns=self._last_token_ns,
            blocks=(self.cache.blocks, self.reused_blocks),
            cached_tokens=self.reused_blocks * BLOCK,
            drafts=(len(self.request.draft.ids), self._accepted) if self.request.draft.ids else None,
        )


def echo(request: Request) -> list[int]:
    """The part of the prompt that a non-streaming answer repeats."""
    return list(request.prompt) if request.echo and not request.streaming else []
