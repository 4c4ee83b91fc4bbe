"""The event loop that owns all generations of a `tensorrt_llm.LLM`."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engines.llmapi.beams import BeamSearch
from engines.llmapi.extensions import Extensions
from engines.llmapi.generation import Generation
from engines.llmapi.sampling_params import has_long_words, sampling_arguments, set_bad_words
from wire.request import RejectedError, Request
from wire.response import Response

if TYPE_CHECKING:
    from engines.llmapi.options import Options

_NO_EXTENSIONS = Extensions()
CANCEL_CHECK_S = 0.05  # how often clients are asked whether they are gone
_LOG = logging.getLogger("tensorrt_llm.llmapi")


@dataclass(eq=False)
class _Live:
    """A request in flight."""

    generation: Generation | BeamSearch
    arguments: dict[str, Any]
    more: dict[str, Any]
    result: Any = None
    task: asyncio.Task[None] | None = None


class LlmEngine:
    """Submits to an LLM and reports responses. All methods may be called from any thread but the loop's own."""

    def __init__(
        self,
        llm: Any,
        sampling_params: type[Any],
        options: Options,
        *,
        applies_penalties: bool,
        to_tensor: Callable[[Any], Any],
        on_response: Callable[[Response], None],
        on_failure: Callable[[Request, str], None],
        extensions: Extensions = _NO_EXTENSIONS,
    ) -> None:
        """Start the loop's thread.

        Args:
            llm: `tensorrt_llm.LLM`, or what behaves like one.
            sampling_params: the class `tensorrt_llm.SamplingParams`.
            options: limits.
            applies_penalties: whether the sampler applies penalties and bad words.
            to_tensor: makes a `torch.Tensor` of a NumPy array.
            on_response: called in the loop's thread with each response.
            on_failure: called in the loop's thread with a request that ends by an error, and the message.
            extensions: what this LLM has beyond the rest.
        """
        self._llm, self._sampling_params, self._options = llm, sampling_params, options
        self._applies_penalties, self._to_tensor = applies_penalties, to_tensor
        self._on_response, self._on_failure = on_response, on_failure
        self._extensions = extensions
        self._lock = threading.Lock()  # guards the next two
        self._live: dict[Request, _Live] = {}
        self._ids: set[str] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="llmapi", daemon=True)
        self._thread.start()

    @property
    def active(self) -> int:
        """Requests in flight."""
        return len(self._live)

    def submit(self, request: Request) -> None:
        """Start a request.

        Raises:
            RejectedError: invalid, over-long, a duplicate id, the queue is full, or the LLM API cannot do it.
        """
        request.check(max_seq_len=self._options.max_seq_len, vocab=self._options.vocab_size)
        request.arrival_ns = time.monotonic_ns()
        room = self._options.max_seq_len - len(request.prompt)
        limit = min(request.max_tokens, room)
        arguments = sampling_arguments(
            request,
            max_tokens=limit,
            applies_penalties=self._applies_penalties,
            to_tensor=self._to_tensor,
            extensions=self._extensions,
        )
        searches = request.beams.width > 1
        followed = BeamSearch(request) if searches else Generation(request, self._extensions.to_array, limit)
        live = _Live(followed, arguments, self._extensions.generate_arguments(request))
        with self._lock:
            if request.id and request.id in self._ids:
                raise RejectedError(f"requestId {request.id} is already in progress, request is ignored.")
            if len(self._live) >= self._options.max_in_flight:
                size = self._options.max_queue_size
                raise RejectedError(
                    f"Maximum queue size of {size} has been reached, please try again later", queue_full=True
                )
            self._live[request] = live
            self._ids.add(request.id)
        self._loop.call_soon_threadsafe(self._start, live)

    def cancel(self, request_id: str) -> None:
        """End the request with this id; an unknown id is harmless."""
        self._loop.call_soon_threadsafe(self._cancel_if, lambda request: request.id == request_id)

    def close(self) -> None:
        """Fail what is in flight, shut the LLM down and end the thread."""
        asyncio.run_coroutine_threadsafe(self._abandon(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._llm.shutdown()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        watch = self._loop.create_task(self._watch())
        self._loop.run_forever()
        watch.cancel()
        self._loop.run_until_complete(asyncio.gather(watch, return_exceptions=True))
        self._loop.close()

    async def _watch(self) -> None:
        """Look for clients that are gone: Triton does not tell of them unasked."""
        while True:
            await asyncio.sleep(CANCEL_CHECK_S)
            self._cancel_if(lambda request: request.is_cancelled())

    def _start(self, live: _Live) -> None:
        live.task = self._loop.create_task(self._generate(live))
        live.task.add_done_callback(lambda task: self._settle(live, task))

    async def _generate(self, live: _Live) -> None:
        request = live.generation.request
        params = self._sampling_params(**live.arguments)
        if has_long_words(request.sampling):
            set_bad_words(params, request.sampling)
        live.result = self._llm.generate_async(**generate_arguments(request, params), **live.more)
        async for step in live.result:
            response = live.generation.step(step)
            if live.generation.matched:
                live.result.abort()
            if response is None:
                continue
            if response.final:
                self._forget(live)
                self._on_response(response)
                return
            self._on_response(response)
        raise RuntimeError("the engine ended without a last answer")

    def _settle(self, live: _Live, task: asyncio.Task[None]) -> None:
        """Answer a request whose task died: whatever went wrong, its client must hear of it."""
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        request = live.generation.request
        _LOG.error("request %s failed", request.id, exc_info=error)
        if live.result is not None and not live.result.finished:
            live.result.abort()
        if self._forget(live):
            self._on_failure(request, str(error).split("\n", 1)[0])

    def _cancel_if(self, chosen: Callable[[Request], bool]) -> None:
        for live in self._in_flight():
            if live.task is not None and chosen(live.generation.request) and self._end(live):
                self._on_response(live.generation.cancel())

    def _end(self, live: _Live) -> bool:
        """Stop a request that has started; False where it has ended already."""
        if live.task is None or not self._forget(live):
            return False
        live.task.cancel()
        if live.result is not None:
            live.result.abort()
        return True

    def _forget(self, live: _Live) -> bool:
        """Take a request off the books; False when it was off already."""
        request = live.generation.request
        with self._lock:
            if self._live.pop(request, None) is None:
                return False
            self._ids.discard(request.id)
        return True

    def _in_flight(self) -> list[_Live]:
        with self._lock:
            return list(self._live.values())

    async def _abandon(self) -> None:
        ended = [live for live in self._in_flight() if self._end(live)]
        for live in ended:
            self._on_failure(live.generation.request, "the model is unloading")
        await asyncio.gather(*(live.task for live in ended if live.task), return_exceptions=True)


def generate_arguments(request: Request, sampling_params: Any) -> dict[str, Any]:
    """Keyword arguments of `LLM.generate_async`.

    Stop words of several tokens are matched here, so such a request is followed step by step even where its client
    wants one answer.
    """
    follow = request.streaming or any(len(word) > 1 for word in request.stop_words)
    return {"inputs": request.prompt, "sampling_params": sampling_params, "streaming": follow}
