"""The scheduler: requests join and leave between steps, one forward pass per step serves all of them."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from cpu_double.gbnf import GuideError
from cpu_double.kv_cache import BLOCK, BlockPool
from cpu_double.lora import AdapterCache
from cpu_double.sampler import Sampler
from cpu_double.sequence import RunningSequence, echo
from wire.request import NO_GUIDED_DECODER, LoraTask, RejectedError, Request
from wire.response import Finish, Perf, Response

if TYPE_CHECKING:
    from cpu_double.guided import GuidedDecoder
    from cpu_double.kv_cache import Floats
    from cpu_double.llama import Chunk, Llama
    from cpu_double.lora import Adapter

# Prompt tokens computed per step, shared by all prompts. In company a token counts as much as it costs, which grows
# with what stands before it (`Llama.cost`), so that no step takes longer because a prompt is long.
PREFILL_TOKENS = 64
PREFILL_BESIDE_DECODING = 32  # the same while others wait for their next token
GUIDE_WAIT_S = 0.01  # how long a step waits for a guide to be compiled when there is nothing else to do


@dataclass(frozen=True)
class Limits:
    """Bounds of an engine.

    Attributes:
        max_seq_len: prompt plus generated tokens.
        max_batch_size: sequences computed together.
        max_queue_size: requests waiting for a slot.
        kv_reuse_blocks: KV-cache blocks of finished sequences that are kept for reuse; 0 is no reuse.
        lora_cache_bytes: weights of adapters that are kept, in bytes as they arrive.
    """

    max_seq_len: int
    max_batch_size: int = 8
    max_queue_size: int = 64
    kv_reuse_blocks: int = 0
    lora_cache_bytes: int = 1 << 30


@dataclass(frozen=True)
class Stats:
    """A snapshot of the engine, in the terms of TensorRT-LLM's metrics (wire contract 6.5).

    ``kv_blocks_used`` and ``kv_blocks_max`` count the blocks of sequences in slots; ``kv_blocks_reused`` is a sum since
    the start.
    """

    active: int
    max_active: int
    scheduled: int
    context: int
    waiting: int
    kv_blocks_max: int
    kv_blocks_used: int
    kv_blocks_reused: int
    iteration: int


class _Waiting(NamedTuple):
    """A request that waits for a slot, its adapter, and its guide, which may still be compiled."""

    request: Request
    adapter: Adapter | None
    guide: Future[Any] | None


class ReferenceEngine:
    """In-flight batching over a `Llama`. ``submit`` and ``cancel`` may be called from any thread, ``step`` from one."""

    def __init__(
        self, model: Llama, limits: Limits, *, normalize_log_probs: bool = True, guided: GuidedDecoder | None = None
    ) -> None:
        """Make an idle engine.

        Args:
            model: the weights.
            limits: bounds; ``max_seq_len`` at most the model's positions.
            normalize_log_probs: wire contract 2.5.
            guided: holds answers to guides; without one, requests that have a guide are rejected.
        """
        self._guided = guided
        self._model, self.limits = model, limits
        self._normalize = normalize_log_probs
        self._lock = threading.Lock()  # guards the four below
        self._waiting: deque[_Waiting] = deque()
        self._slots: list[RunningSequence] = []
        self._ids: set[str] = set()
        self._to_cancel: set[str] = set()
        self._pool = BlockPool(limits.kv_reuse_blocks)
        self._adapters = AdapterCache(model.config, model.norms, limits.lora_cache_bytes)  # guarded by the lock too
        self._responses: list[Response] = []  # of the step under way
        self._iteration = 0
        self._scheduled = 0
        self._reused_blocks = 0

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
            RejectedError: invalid, over-long, a duplicate id, the queue is full, its adapter is not held and came
                without weights, or it has a guide and nothing holds answers to guides. A mistake in a guide is the
                request's answer.
        """
        request.check(max_seq_len=self.limits.max_seq_len, vocab=self.vocab_size)
        _check_table(request, self._model.config.hidden, reuse=self.limits.kv_reuse_blocks > 0)
        if request.guide is not None and self._guided is None:
            raise RejectedError(NO_GUIDED_DECODER)
        request.arrival_ns = time.monotonic_ns()
        with self._lock:
            if request.id and request.id in self._ids:
                raise RejectedError(f"requestId {request.id} is already in progress, request is ignored.")
            free = self.limits.max_batch_size - len(self._slots)
            if len(self._waiting) >= self.limits.max_queue_size + max(free, 0):
                size = self.limits.max_queue_size
                raise RejectedError(
                    f"Maximum queue size of {size} has been reached, please try again later", queue_full=True
                )
            adapter = guide = None
            if request.lora is not None:
                adapter = self._adapters.find(request.lora)
                request.lora = LoraTask(request.lora.id)  # a waiting request need not hold the weights as they came
            if request.id:
                self._ids.add(request.id)
            if request.guide is not None and self._guided is not None:
                guide = self._guided.compile(request.guide)
            self._waiting.append(_Waiting(request, adapter, guide))

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
        self._drop_cancelled()
        self._admit()
        scheduled, chunks = self._schedule()
        self._scheduled = len(chunks)
        if chunks:
            logits = self._model.forward(chunks)
            start = 0
            for sequence, chunk in zip(scheduled, chunks, strict=True):
                if chunk.logits:
                    self._advance(sequence, logits[start : start + chunk.logits])
                start += chunk.logits
        else:
            self._await_guide()
        responses, self._responses = self._responses, []
        return responses

    def abort(self) -> list[Request]:
        """Forget every request in flight, after a failure of ``step``; returns them."""
        with self._lock:
            requests = [response.request for response in self._responses if response.final]
            requests += [sequence.request for sequence in self._slots if sequence.request not in requests]
            requests += [waiting.request for waiting in self._waiting]
            self._responses = []
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
            kv_blocks_reused=self._reused_blocks,
            iteration=self._iteration,
        )

    def _drop_cancelled(self) -> None:
        with self._lock:
            wanted, self._to_cancel = self._to_cancel, set()
            slots, waiting = list(self._slots), list(self._waiting)

        def gone(request: Request) -> bool:
            return request.id in wanted or request.is_cancelled()

        for sequence in [sequence for sequence in slots if gone(sequence.request)]:
            self._finish(sequence, "cancelled", 0)
        for one in [one for one in waiting if gone(one.request)]:
            request = one.request
            perf = Perf(request.arrival_ns) if request.perf_metrics else None
            self._responses.append(Response(request, ids=echo(request), final=True, finish="cancelled", perf=perf))
            with self._lock:
                self._waiting.remove(one)
                self._ids.discard(request.id)

    def _admit(self) -> None:
        """Give free slots to waiting requests, in their order, but for those whose guide is still being compiled."""
        admitted = []
        with self._lock:
            for waiting in list(self._waiting):
                if len(self._slots) >= self.limits.max_batch_size:
                    break
                if waiting.guide is not None and not waiting.guide.done():
                    continue
                try:
                    sequence = self._start(waiting)
                except GuideError as error:
                    self._responses.append(_guide_failed(waiting.request, error))
                    self._ids.discard(waiting.request.id)
                else:
                    self._slots.append(sequence)
                    admitted.append(sequence)
                self._waiting.remove(waiting)  # not before: a failure must not lose it
        for sequence in admitted:
            self._reuse(sequence)

    def _start(self, waiting: _Waiting) -> RunningSequence:
        request, matcher = waiting.request, None
        if waiting.guide is not None and self._guided is not None:
            matcher = self._guided.start(request, waiting.guide)
        return RunningSequence(
            request=request,
            sampler=Sampler(request, self.vocab_size, normalize_log_probs=self._normalize, matcher=matcher),
            cache=self._model.new_cache(),
            limit=min(request.max_tokens, self.limits.max_seq_len - len(request.prompt)),
            tokens=list(request.prompt),
            adapter=waiting.adapter,
        )

    def _await_guide(self) -> None:
        with self._lock:
            pending = [waiting.guide for waiting in self._waiting if waiting.guide is not None]
        if pending and not self._slots:
            wait(pending, GUIDE_WAIT_S, FIRST_COMPLETED)

    def _reuse(self, sequence: RunningSequence) -> None:
        if sequence.scores_prompt:
            return  # what is reused is not computed again, and nothing could be said of it
        blocks = self._pool.match(sequence.request.prompt, sequence.salt)
        sequence.cache.load(blocks)
        sequence.reused_blocks = len(blocks)
        self._reused_blocks += len(blocks)

    def _schedule(self) -> tuple[list[RunningSequence], list[Chunk]]:
        """One token of every sequence that decodes; prompts share the prefill budget evenly, shortest rest first."""
        counts = {id(sequence): 1 for sequence in self._slots if sequence.pending == 1}
        prompts = sorted((s for s in self._slots if s.pending > 1), key=lambda s: s.pending)
        budget = float(PREFILL_BESIDE_DECODING if counts else PREFILL_TOKENS)
        for place, sequence in enumerate(prompts):
            cost = 1.0 if len(self._slots) == 1 else self._model.cost(sequence.cache.length)
            share = min(sequence.pending, math.ceil(budget / (len(prompts) - place) / cost))
            counts[id(sequence)] = share
            budget = max(0.0, budget - share * cost)
        scheduled = [sequence for sequence in self._slots if counts.get(id(sequence))]
        return scheduled, [sequence.next_chunk(counts[id(sequence)]) for sequence in scheduled]

    def _advance(self, sequence: RunningSequence, logits: Floats) -> None:
        """Take the logits [positions, vocab] of a sequence's chunk."""
        sequence.score_prompt(logits)
        before, finish = len(sequence.tokens), None
        for row in sequence.next_logits(logits):
            try:
                draw = sequence.sampler.draw(row, sequence.tokens, sequence.guess())
            except GuideError as error:
                self._responses.append(_guide_failed(sequence.request, error))
                self._free(sequence)
                return
            accepted = sequence.take_draft(draw.token)
            finish = sequence.append(draw, row)
            if finish or not accepted:
                break
        sequence.drop_rejected()
        new = len(sequence.tokens) - before
        if finish:
            self._finish(sequence, finish, new)
        elif new and sequence.request.streaming:
            self._responses.append(sequence.answer(new))

    def _finish(self, sequence: RunningSequence, finish: Finish, new: int) -> None:
        self._responses.append(sequence.answer(new, finish))
        self._free(sequence)

    def _free(self, sequence: RunningSequence) -> None:
        self._pool.store(sequence.tokens, sequence.cache, sequence.salt)
        with self._lock:
            self._slots.remove(sequence)
            self._ids.discard(sequence.request.id)
            self._to_cancel.discard(sequence.request.id)


def _check_table(request: Request, hidden: int, *, reuse: bool) -> None:
    table = request.prompt_table
    if table is None:
        return
    if reuse and not table.extra_ids:  # as TensorRT-LLM, for which all tables have the same token ids
        raise RejectedError("Input token extra ids must be provided when enabling kv cache reuse with prompt table")
    if table.rows.ndim != 2 or table.rows.shape[1] != hidden:
        raise RejectedError(f"prompt_embedding_table must have shape [1, rows, {hidden}]")


def _guide_failed(request: Request, error: GuideError) -> Response:
    return Response(request, final=True, error=f"Guided decoding error: {error}")
