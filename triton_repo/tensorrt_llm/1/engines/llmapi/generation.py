"""One request's answers: from the LLM API's growing outputs to responses of the wire contract."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np

from engines.llmapi.extensions import performance
from wire.log_probs import score_prompt
from wire.request import Request
from wire.response import Finish, Perf, PromptScores, Response
from wire.word_lists import ends_with

if TYPE_CHECKING:
    from numpy.typing import NDArray


class EngineError(RuntimeError):
    """The engine answered something that cannot be passed on as it is."""


class Generation:
    """The answers to one request, as its outputs grow.

    Attributes:
        request: the request.
        matched: True when a stop word was completed here, not in the engine, which must then be stopped.
    """

    def __init__(
        self, request: Request, to_array: Callable[[Any], NDArray[np.float32]] | None = None, limit: int = 0
    ) -> None:
        """Start with nothing generated.

        Args:
            request: the request.
            to_array: makes an array of the engine's tensors, for logits.
            limit: tokens that may be generated.
        """
        self.request = request
        self._to_array = to_array
        self.matched = False
        self._prompt_tail = request.prompt[-max((len(word) for word in request.stop_words), default=1) :]
        self._ids: list[int] = []
        self._log_probs: list[float] = []
        self._top: list[list[tuple[int, float]]] = []
        self._first_token_ns = self._last_token_ns = 0
        self._prompt: PromptScores | None = None
        self._prompt_scored = request.prompt_log_probs is None and not request.context_logits
        self._metrics: Any = None
        self._said = 0  # tokens that the engine has spoken of
        self._logits = GatheredLogits(to_array, limit) if request.generation_logits and to_array else None

    def step(self, step: Any) -> Response | None:
        """Take the engine's result after a step; see `advance`."""
        return self.advance(
            step.outputs[0], finished=step.finished, context_logits=getattr(step, "context_logits", None)
        )

    def advance(self, output: Any, *, finished: bool, context_logits: Any = None) -> Response | None:
        """Take the engine's output after a step.

        Args:
            output: `CompletionOutput`: ``token_ids`` and ``logprobs`` of everything generated so far.
            finished: whether this is the last step.
            context_logits: [prompt, vocab], a tensor, where asked for.

        Returns:
            The response to send, None where there is nothing to say yet.

        Raises:
            EngineError: asked-for log-probs or logits are missing, or the end has no known reason.
        """
        finish = finish_reason(output.finish_reason) if finished else None
        ids = ended_ids(self.request, output, finish)
        self._gather(output)
        start = len(self._ids)
        for token in ids[start:]:
            self._append(token, output)
            if any(ends_with(self._prompt_tail + self._ids, word) for word in self.request.stop_words):
                self.matched = not finished
                finish = "stop"
                break
        if finish is None and (not self.request.streaming or len(self._ids) == start):
            return None
        if not self._prompt_scored:
            self._prompt, self._prompt_scored = self._score_prompt(context_logits), True
        self._metrics = getattr(output, "request_perf_metrics", None)
        return self._respond(start, finish)

    def cancel(self) -> Response:
        """The last response of a cancelled request."""
        return self._respond(len(self._ids), "cancelled")

    def _append(self, token: int, output: Any) -> None:
        place = len(self._ids)
        self._ids.append(token)
        self._last_token_ns = time.monotonic_ns()
        self._first_token_ns = self._first_token_ns or self._last_token_ns
        if not (self.request.log_probs or self.request.top_log_probs):
            return
        given = output.logprobs or []
        if place >= len(given):
            raise EngineError(f"output_log_probs: the engine gave {len(given)} values for more tokens")
        entry = given[place]
        values = {id_: _value(item) for id_, item in entry.items()} if isinstance(entry, Mapping) else {token: entry}
        if self.request.log_probs:
            self._log_probs.append(chosen_log_prob(entry, token))
        if wanted := self.request.top_log_probs:
            best = sorted(values.items(), key=lambda item: (-item[1], item[0]))[:wanted]
            if len(best) < wanted:
                raise EngineError(f"num_top_log_probs is {wanted}, the engine gave {len(best)}")
            self._top.append([(int(id_), float(value)) for id_, value in best])

    def _respond(self, start: int, finish: Finish | None) -> Response:
        request = self.request
        if request.streaming:
            ids, top = self._ids[start:], self._top[start:]
        else:
            ids, top = (request.prompt if request.echo else []) + self._ids, list(self._top)
        return Response(
            request,
            ids=ids,
            log_probs=list(self._log_probs),
            cum_log_prob=sum(self._log_probs),
            top_log_probs=top,
            final=finish is not None,
            finish=finish,
            prompt=self._take_prompt(),
            logits=self._take_logits(),
            perf=self._perf() if request.perf_metrics and finish else None,
        )

    def _score_prompt(self, context_logits: Any) -> PromptScores:
        logits = None if self._to_array is None or context_logits is None else self._to_array(context_logits)
        request = self.request
        if logits is None or len(logits) != len(request.prompt):
            name = "return_context_logits" if request.context_logits else "num_prompt_log_probs"
            given = 0 if logits is None else len(logits)
            raise EngineError(f"{name}: the engine gave logits of {given} of the prompt's {len(request.prompt)} tokens")
        scores = PromptScores()
        if request.prompt_log_probs is not None:
            score_prompt(scores, logits, request.prompt[1:], request.prompt_log_probs)
        return replace(scores, logits=logits) if request.context_logits else scores

    def _gather(self, output: Any) -> None:
        new, self._said = len(output.token_ids) - self._said, len(output.token_ids)
        if self._logits is None or not new:
            return
        given = self._logits.take(output.generation_logits, new)
        if given != new:
            raise EngineError(f"return_generation_logits: the engine gave logits of {given} tokens for {new}")

    def _take_logits(self) -> NDArray[np.float32] | None:
        if self._logits is None:
            return None
        return (self._logits.new if self.request.streaming else self._logits.whole)(len(self._ids))

    def _take_prompt(self) -> PromptScores | None:
        scores, self._prompt = self._prompt, None
        return scores

    def _perf(self) -> Perf:
        """By the engine's own account, else the times known here; then what the KV cache did is left out."""
        arrival = self.request.arrival_ns
        own = Perf(arrival, first_token_ns=self._first_token_ns, last_token_ns=self._last_token_ns)
        return performance(own, self._metrics)


def finish_reason(reason: str | None) -> Finish:
    """The reason why an answer ended.

    Raises:
        EngineError: a reason that the contract does not know.
    """
    if reason not in get_args(Finish):
        raise EngineError(f"the engine ended with the finish reason {reason!r}")
    return cast("Finish", reason)


def ended_ids(request: Request, output: Any, finish: Finish | None) -> list[int]:
    """All tokens of an output so far; the end id is not part of an answer."""
    ids = list(output.token_ids)
    if finish == "stop" and request.end_id >= 0 and ids[-1:] == [request.end_id]:
        ids.pop()
    return ids


def chosen_log_prob(entry: Any, token: int) -> float:
    """The log-prob of a token, out of the engine's values for its position.

    Raises:
        EngineError: it is not among them.
    """
    if not isinstance(entry, Mapping):
        return _value(entry)
    if token not in entry:
        raise EngineError(f"output_log_probs: the engine gave no log-prob of token {token}")
    return _value(entry[token])


def _value(item: Any) -> float:
    return float(getattr(item, "logprob", item))  # a Logprob; a plain number in the compact format


class GatheredLogits:
    """The logits of one request, which the LLM API gives step by step while it streams, and else at the end."""

    def __init__(self, to_array: Callable[[Any], NDArray[np.float32]], limit: int) -> None:
        """Begin.

        Args:
            to_array: makes an array of the engine's tensors.
            limit: tokens that may be generated.
        """
        self._to_array, self._limit = to_array, limit
        self._rows: list[NDArray[np.float32]] = []
        self._shown = 0

    @property
    def count(self) -> int:
        """Tokens whose logits are there."""
        return len(self._rows)

    def take(self, logits: Any, tokens: int) -> int:
        """Take the logits of a step.

        Args:
            logits: [tokens, vocab], a tensor; None where the engine gave none.
            tokens: tokens of the step, an end id included.

        Returns:
            How many rows the engine gave; another number than ``tokens`` cannot be assigned, and is not taken.
        """
        rows = [] if logits is None else list(self._to_array(logits))
        if len(rows) == tokens:
            self._rows += rows
        return len(rows)

    def new(self, until: int) -> NDArray[np.float32] | None:
        """[new tokens, vocab] since the last call, up to a place in the answer; None while there were none at all."""
        rows, self._shown = self._rows[self._shown : until], until
        if not self._rows:
            return None
        return np.stack(rows) if rows else np.zeros((0, len(self._rows[0])), np.float32)

    def whole(self, until: int) -> NDArray[np.float32] | None:
        """[limit, vocab], up to a place in the answer and zeros after it; None where there were none at all."""
        if not self._rows:
            return None
        every = np.zeros((max(self._limit, until), len(self._rows[0])), np.float32)
        every[:until] = self._rows[:until]
        return every
