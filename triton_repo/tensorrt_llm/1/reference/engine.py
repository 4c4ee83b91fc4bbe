"""The scheduler: requests join and leave between steps, one forward pass per step serves all of them."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reference.llama import BLOCK, Chunk
from reference.request import Finish, RefusedError, Request, Response
from reference.sampling import Sampler
from reference.words import ends_with

if TYPE_CHECKING:
    from reference.llama import Floats, KVCache, Llama

PREFILL_TOKENS = 64  # prompt tokens computed per step, shared by all prompts: a long one never stalls the others


@dataclass(frozen=True)
class Limits:
    """Bounds of an engine.

    Attributes:
        max_seq_len: prompt plus generated tokens.
        max_batch_size: sequences computed together.
        max_queue_size: requests waiting for a slot.
    """

    max_seq_len: int
    max_batch_size: int = 8
    max_queue_size: int = 64


@dataclass(frozen=True)
class Stats:
    """A snapshot of the engine, in the terms of TensorRT-LLM's metrics (contract section 6.5)."""

    active: int
    max_active: int
    scheduled: int
    context: int
    waiting: int
    kv_blocks_max: int
    kv_blocks_used: int
    iteration: int


@dataclass(eq=False)
class _Sequence:
    """A request in a slot. ``tokens`` runs ahead of the cache by what is still to be computed."""

    request: Request
    sampler: Sampler
    cache: KVCache
    limit: int
    tokens: list[int]
    log_probs: list[float] = field(default_factory=list)
    top: list[list[tuple[int, float]]] = field(default_factory=list)
    cum_log_prob: float = 0.0

    @property
    def pending(self) -> int:
        return len(self.tokens) - self.cache.length

    @property
    def generated(self) -> int:
        return len(self.tokens) - len(self.request.prompt)


class ReferenceEngine:
    """In-flight batching over a `Llama`. ``submit`` and ``cancel`` may be called from any thread, ``step`` from one."""

    def __init__(self, model: Llama, limits: Limits, *, normalize_log_probs: bool = True) -> None:
        """Make an idle engine.

        Args:
            model: the weights.
            limits: bounds; ``max_seq_len`` at most the model's positions.
            normalize_log_probs: contract section 2.5.
        """
        self._model, self.limits = model, limits
        self._normalize = normalize_log_probs
        self._lock = threading.Lock()  # guards the four below
        self._waiting: deque[Request] = deque()
        self._slots: list[_Sequence] = []
        self._ids: set[str] = set()
        self._to_cancel: set[str] = set()
        self._iteration = 0
        self._scheduled = 0

    @property
    def vocab_size(self) -> int:
        """Length of the logits, and of an embedding bias."""
        return self._model.config.vocab

    @property
    def busy(self) -> bool:
        """Whether ``step`` has anything to do."""
        return bool(self._slots or self._waiting)

    def submit(self, request: Request) -> None:
        """Queue a request.

        Raises:
            RefusedError: invalid, over-long, a duplicate id, or the queue is full.
        """
        self._check(request)
        with self._lock:
            if request.id and request.id in self._ids:
                raise RefusedError(f"requestId {request.id} is already in progress, request is ignored.")
            free = self.limits.max_batch_size - len(self._slots)
            if len(self._waiting) >= self.limits.max_queue_size + max(free, 0):
                size = self.limits.max_queue_size
                raise RefusedError(
                    f"Maximum queue size of {size} has been reached, please try again later", queue_full=True
                )
            if request.id:
                self._ids.add(request.id)
            self._waiting.append(request)

    def cancel(self, request_id: str) -> None:
        """End the request with this id at the next step; an unknown id is harmless."""
        with self._lock:
            if request_id in self._ids:
                self._to_cancel.add(request_id)

    def step(self) -> list[Response]:
        """Run one iteration: drop what was cancelled, admit what waits, compute, draw.

        Returns:
            The responses of this iteration, in the order of arrival of their requests.
        """
        self._iteration += 1
        responses = self._drop_cancelled()
        self._admit()
        scheduled, chunks = self._schedule()
        self._scheduled = len(chunks)
        if not chunks:
            return responses
        logits = self._model.forward(chunks)
        drawing = [sequence for sequence, chunk in zip(scheduled, chunks, strict=True) if chunk.logits]
        for row, sequence in zip(logits, drawing, strict=True):
            response = self._advance(sequence, row)
            if response is not None:
                responses.append(response)
        return responses

    def abort(self) -> list[Request]:
        """Forget every request in flight, after a failure of ``step``; returns them."""
        with self._lock:
            requests = [sequence.request for sequence in self._slots] + list(self._waiting)
            self._slots.clear()
            self._waiting.clear()
            self._ids.clear()
            self._to_cancel.clear()
        return requests

    def stats(self) -> Stats:
        """A snapshot."""
        with self._lock:
            slots, waiting = list(self._slots), len(self._waiting)
        return Stats(
            active=len(slots),
            max_active=self.limits.max_batch_size,
            scheduled=self._scheduled if slots else 0,
            context=sum(not sequence.generated for sequence in slots),
            waiting=waiting,
            kv_blocks_max=self.limits.max_batch_size * -(-self.limits.max_seq_len // BLOCK),
            kv_blocks_used=sum(sequence.cache.blocks for sequence in slots),
            iteration=self._iteration,
        )

    def _check(self, request: Request) -> None:
        length, longest = len(request.prompt), self.limits.max_seq_len - 1
        if length > longest:
            raise RefusedError(f"Prompt length ({length}) exceeds maximum input length ({longest}).")
        if not length:
            raise RefusedError("input_ids must hold at least one token")
        if min(request.prompt) < 0 or max(request.prompt) >= self.vocab_size:
            raise RefusedError(f"input_ids must be within the vocabulary of {self.vocab_size} tokens")
        if request.max_tokens < 1:
            raise RefusedError("request_output_len must be at least 1")
        if request.end_id >= self.vocab_size:
            raise RefusedError(f"end_id must be within the vocabulary of {self.vocab_size} tokens")
        bias = request.sampling.bias
        if bias is not None and bias.shape != (self.vocab_size,):
            raise RefusedError(f"embedding_bias must have {self.vocab_size} values, not {bias.size}")
        if any(max(word) >= self.vocab_size or min(word) < 0 for word in request.sampling.bad_words):
            raise RefusedError(f"bad_words_list must be within the vocabulary of {self.vocab_size} tokens")

    def _drop_cancelled(self) -> list[Response]:
        with self._lock:
            wanted, self._to_cancel = self._to_cancel, set()
            slots, waiting = list(self._slots), list(self._waiting)

        def gone(request: Request) -> bool:
            return request.id in wanted or request.is_cancelled()

        dropped = [sequence for sequence in slots if gone(sequence.request)]
        unstarted = [request for request in waiting if gone(request)]
        responses = [self._finish(sequence, "cancelled", []) for sequence in dropped]
        with self._lock:
            for request in unstarted:
                self._waiting.remove(request)
                self._ids.discard(request.id)
        return responses + [
            Response(request, ids=_echo(request), final=True, finish="cancelled") for request in unstarted
        ]

    def _admit(self) -> None:
        with self._lock:
            while self._waiting and len(self._slots) < self.limits.max_batch_size:
                request = self._waiting.popleft()
                self._slots.append(
                    _Sequence(
                        request=request,
                        sampler=Sampler(request, self.vocab_size, normalize_log_probs=self._normalize),
                        cache=self._model.new_cache(),
                        limit=min(request.max_tokens, self.limits.max_seq_len - len(request.prompt)),
                        tokens=list(request.prompt),
                    )
                )

    def _schedule(self) -> tuple[list[_Sequence], list[Chunk]]:
        """One token of every sequence that decodes; prompts share the prefill budget evenly, shortest rest first."""
        counts = {id(sequence): 1 for sequence in self._slots if sequence.pending == 1}
        prompts = sorted((s for s in self._slots if s.pending > 1), key=lambda s: s.pending)
        budget = PREFILL_TOKENS
        for place, sequence in enumerate(prompts):
            share = min(sequence.pending, -(-budget // (len(prompts) - place)))
            counts[id(sequence)] = share
            budget -= share
        scheduled = [sequence for sequence in self._slots if counts.get(id(sequence))]
        chunks = []
        for sequence in scheduled:
            count, done = counts[id(sequence)], sequence.cache.length
            wanted = int(count == sequence.pending)
            chunks.append(Chunk(sequence.tokens[done : done + count], sequence.cache, wanted))
        return scheduled, chunks

    def _advance(self, sequence: _Sequence, logits: Floats) -> Response | None:
        request = sequence.request
        draw = sequence.sampler.draw(logits, sequence.tokens)
        if draw.token == request.end_id:
            return self._finish(sequence, "stop", [])
        sequence.tokens.append(draw.token)
        if request.log_probs:
            sequence.log_probs.append(draw.log_prob)
            sequence.cum_log_prob += draw.log_prob
        if request.top_log_probs:
            sequence.top.append(draw.top)
        if any(ends_with(sequence.tokens, word) for word in request.stop_words):
            return self._finish(sequence, "stop", [draw.token])
        if sequence.generated >= sequence.limit:
            return self._finish(sequence, "length", [draw.token])
        return self._answer(sequence, [draw.token]) if request.streaming else None

    def _finish(self, sequence: _Sequence, finish: Finish, new: list[int]) -> Response:
        with self._lock:
            self._slots.remove(sequence)
            self._ids.discard(sequence.request.id)
            self._to_cancel.discard(sequence.request.id)
        return self._answer(sequence, new, finish)

    def _answer(self, sequence: _Sequence, new: list[int], finish: Finish | None = None) -> Response:
        request = sequence.request
        ids, top = new, sequence.top[len(sequence.top) - len(new) :]
        if not request.streaming:
            ids = _echo(request) + sequence.tokens[len(request.prompt) :]
            top = list(sequence.top)
        return Response(
            request,
            ids=ids,
            log_probs=list(sequence.log_probs),
            cum_log_prob=sequence.cum_log_prob,
            top_log_probs=top if request.top_log_probs else [],
            final=finish is not None,
            finish=finish,
        )


def _echo(request: Request) -> list[int]:
    """The part of the prompt that a non-streaming answer repeats."""
    return list(request.prompt) if request.echo and not request.streaming else []
