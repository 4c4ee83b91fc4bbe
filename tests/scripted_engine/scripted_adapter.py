"""``TRITON_ENGINE=scripted``: the tensors of TensorRT-LLM's engine, with answers of a script in place of computed ones.

Environment: ENGINE_PATH is this folder; SCRIPT_FILE names the script, JOURNAL_FILE the journal; MODEL_DIR needs a
``tokenizer.json`` and nothing more. What a script is, `turns` says. Log-probs follow from the ids. There are none of
the prompt and no logits: they are rejected by name.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from cpu_double.sequence import echo
from tests.scripted_engine.turns import Answer, Asked, Journal, Script, ScriptedError, UnknownPromptError, play
from wire.base_adapter import BaseAdapter
from wire.request import RejectedError, Request
from wire.response import Perf, Response

_LOGITS = ("context_logits", "generation_logits")


class Adapter(BaseAdapter):
    """Plays a script for Triton."""

    _blocks = (0, 0)

    def __init__(self, args: dict[str, str], folder: Path) -> None:
        super().__init__(args)
        self._model, self._folder = args["model_name"], folder
        self._script = self._open_script()
        self._journal = Journal(Path(os.environ["JOURNAL_FILE"]))
        self._keys = (f"{self._model}-{os.getpid()}-{number}" for number in itertools.count())
        self._stopped: set[str] = set()
        self._live: set[str] = set()
        self._lock = threading.Lock()
        self._players = ThreadPoolExecutor(128, "player")
        self._engine = self

    def _open_script(self) -> Script:
        return Script(Path(os.environ["SCRIPT_FILE"]), Tokenizer.from_file(str(self._folder / "tokenizer.json")))

    def finalize(self) -> None:
        """Let what plays come to its end."""
        with self._lock:
            self._stopped |= self._live
        self._players.shutdown()

    def submit(self, request: Request) -> None:
        """Find the answer and play it; see `adapter.Engine`."""
        self._check(request)
        request.arrival_ns = time.monotonic_ns()
        with self._lock:
            if request.id in self._live:
                raise RejectedError(f"requestId {request.id} is already in progress, request is ignored.")
        key, told = next(self._keys), self._told(request)
        try:
            answer = self._script.answer(self._asked(request))
            told |= answer.told()
        except (UnknownPromptError, ScriptedError) as error:
            raise RejectedError(str(error)) from error
        finally:
            self._journal.write(key, **told)
        with self._lock:
            self._live |= {request.id} - {""}
        self._players.submit(self._play, request, answer, key)

    def cancel(self, request_id: str) -> None:
        """See `adapter.Engine`."""
        with self._lock:
            self._stopped |= {request_id} & self._live

    def _take(self, request: Any) -> None:
        self._guided = self._script.read().get("guided", True)
        super()._take(request)

    def _check(self, request: Request) -> None:
        for name in _LOGITS:
            if getattr(request, name):
                raise RejectedError(f"return_{name}: the scripted engine replays tokens without them")
        if request.prompt_log_probs is not None:
            raise RejectedError("num_prompt_log_probs: the scripted engine replays tokens without them")

    def _asked(self, request: Request) -> Asked:
        ends = frozenset({request.end_id} - {-1})
        return Asked(
            request.prompt,
            request.max_tokens,
            ends,
            request.stop_words,
            heeded=[request.sampling.seed],
            sampling=request.sampling,
        )

    def _told(self, request: Request) -> dict[str, Any]:
        """What the journal tells of a request."""
        return {
            "id": request.id,
            "model": self._model,
            "prompt": self._script.decode(request.prompt),
            "prompt_ids": request.prompt,
            "max_tokens": request.max_tokens,
            "end_id": request.end_id,
            "stop_words": request.stop_words,
            "temperature": request.sampling.temperature,
            "guide": request.guide and request.guide._asdict(),
        }

    def _play(self, request: Request, answer: Answer, key: str) -> None:
        said: list[int] = []
        try:
            steps = play(answer, answer.ids, lambda: self._is_over(request), end_alone=answer.end is not None)
            for step in steps:
                said += step.ids
                if step.finish:
                    self._end(request, key, self._ending(request, step.finish), said)
                if step.finish or request.streaming:
                    self._send(self._response(request, answer, step.ids, said, step.finish))
        except ScriptedError as error:
            self._end(request, key, "failed", said)
            self._fail(request, str(error))

    def _response(self, request: Request, answer: Answer, new: list[int], said: list[int], finish: Any) -> Response:
        made_up = [self._log_prob(request, token) for token in said] if request.log_probs else []
        scores = list(answer.log_probs[: len(said)]) or made_up
        shown = len(new) if request.streaming else len(said)
        near = [_near(token, score, request.top_log_probs) for token, score in zip(said, scores, strict=False)]
        perf = None
        if request.perf_metrics and finish:
            now = time.monotonic_ns()
            perf = Perf(request.arrival_ns, last_token_ns=now, blocks=self._blocks, cached_tokens=0)
        return Response(
            request,
            ids=new if request.streaming else echo(request) + said,
            log_probs=scores,
            top_log_probs=near[len(said) - shown :] if request.top_log_probs else [],
            cum_log_prob=sum(scores),
            final=finish is not None,
            finish=finish,
            perf=perf,
        )

    def _log_prob(self, _request: Request, token: int) -> float:
        """Any number below 0 that FP32 holds exactly."""
        return -(token % 16 + 1) / 8

    def _is_over(self, request: Request) -> bool:
        return self._is_stopped(request) or request.is_cancelled()

    def _is_stopped(self, request: Request) -> bool:
        with self._lock:
            return request.id in self._stopped

    def _ending(self, request: Request, finish: str) -> str:
        if finish != "cancelled":
            return "finished"
        return "stopped" if self._is_stopped(request) else finish

    def _end(self, request: Request, key: str, ended: str, said: list[int]) -> None:
        with self._lock:
            self._live.discard(request.id)
            self._stopped.discard(request.id)
        self._journal.write(key, ended=ended, tokens=len(said))


def _near(token: int, score: float, count: int) -> list[tuple[int, float]]:
    """The alternatives of a token: ids near it, each less probable."""
    return [(abs(token - k), score - k) for k in range(count)]
