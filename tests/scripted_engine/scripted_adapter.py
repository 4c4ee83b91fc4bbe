"""``TRITON_ENGINE=scripted``: replays recorded answers on the real tritonserver; the wire contract is the engines' own.

Environment: ENGINE_PATH is this folder; SCRIPT_FILE names the script, read anew whenever it changed; JOURNAL_FILE takes
a line of JSON for every request; MODEL_DIR needs a ``tokenizer.json`` and nothing more. See `replay.ScriptedServer`.

What a script is, `turns` says. A turn has here, too:

- ``finish``: why it ends when all is said, ``stop`` by default; an end id, a stop word or the limit may end it earlier;
- ``hold``: true keeps the answer open after its last token until it is cancelled or stopped;
- ``until``: a file without which the last token does not come;
- ``fails``: words of the failure that comes in place of an answer.

A prompt that no turn matches is refused, but a request for one token, which probes send, is answered with an echo of
its first. Log-probs follow from the ids. There are none of the prompt and no logits: they are rejected by name.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from turns import Script

from cpu_double.sequence import echo
from wire.base_adapter import BaseAdapter
from wire.request import RejectedError, Request
from wire.response import Finish, Perf, Response
from wire.word_lists import ends_with

_CANCEL_CHECK_S = 0.01
_UNTIL_S = 0.1  # many may wait


class Adapter(BaseAdapter):
    """Replays for Triton."""

    def __init__(self, args: dict[str, str], folder: Path) -> None:
        super().__init__(args)
        self._script = Script(Path(os.environ["SCRIPT_FILE"]), Tokenizer.from_file(str(folder / "tokenizer.json")))
        self._journal = Path(os.environ["JOURNAL_FILE"])
        self._stopped: set[str] = set()
        self._live: set[str] = set()
        self._lock = threading.Lock()
        self._players = ThreadPoolExecutor(128, "player")
        self._engine = self

    def finalize(self) -> None:
        """Let what plays come to its end."""
        with self._lock:
            self._stopped |= self._live
        self._players.shutdown()

    def submit(self, request: Request) -> None:
        """Find the answer and play it; see `adapter.Engine`."""
        for name in ("context_logits", "generation_logits"):
            if getattr(request, name):
                raise RejectedError(f"return_{name}: the scripted engine replays tokens without them")
        if request.prompt_log_probs is not None:
            raise RejectedError("num_prompt_log_probs: the scripted engine replays tokens without them")
        request.arrival_ns = time.monotonic_ns()
        with self._lock:
            if request.id in self._live:
                raise RejectedError(f"requestId {request.id} is already in progress, request is ignored.")
            self._write(request)
            turn = self._turn(request)
            self._live.add(request.id)
        self._players.submit(self._play, request, turn)

    def cancel(self, request_id: str) -> None:
        """See `adapter.Engine`."""
        with self._lock:
            self._stopped |= {request_id} & self._live

    def _take(self, request: Any) -> None:
        self._guided = self._script.read().get("guided", True)
        super()._take(request)

    def _turn(self, request: Request) -> dict[str, Any]:
        turn: dict[str, Any] | None = self._script.turn(request.prompt)
        if turn is not None and "fails" in turn:
            raise RejectedError(turn["fails"])
        if turn is not None:
            return turn
        if request.max_tokens == 1:
            return {"ids": request.prompt[:1], "chunk": [1]}
        raise RejectedError("no turn of the script matches the prompt")

    def _write(self, request: Request) -> None:
        """A journal line; the lock is held."""
        entry = {
            "id": request.id,
            "prompt": self._script.decode(request.prompt),
            "prompt_ids": request.prompt,
            "max_tokens": request.max_tokens,
            "end_id": request.end_id,
            "stop_words": request.stop_words,
            "temperature": request.sampling.temperature,
            "guide": request.guide and request.guide._asdict(),
        }
        with self._journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def _play(self, request: Request, turn: dict[str, Any]) -> None:
        try:
            self._send(self._perform(request, turn))
        except Exception as error:
            self._fail(request, f"the script failed: {error!r}")
            raise

    def _perform(self, request: Request, turn: dict[str, Any]) -> Response:
        """Answer but for the last response, which is returned."""
        ids, finish = _cut(request, turn["ids"])
        held = finish is None and turn.get("hold", False)
        finish = finish or turn.get("finish", "stop")
        sizes = itertools.cycle(turn["chunk"])
        sent = 0
        while not self._is_cancelled(request) and (sent < len(ids) or held):
            if sent == len(ids) - 1 and not _exists(turn.get("until")):
                time.sleep(_UNTIL_S)
                continue
            if sent == len(ids):
                time.sleep(_CANCEL_CHECK_S)  # Triton does not tell of a cancel unasked
                continue
            size = min(next(sizes), len(ids) - sent)
            if sent + size == len(ids) and not held:
                break
            sent += size
            if request.streaming:
                self._send(Response(request, ids=ids[sent - size : sent], **_scores(request, ids[:sent], size)))
        else:
            finish = "cancelled"
            ids = ids[:sent]
        with self._lock:
            self._live.discard(request.id)
            self._stopped.discard(request.id)
        now = time.monotonic_ns()
        return Response(
            request,
            ids=ids[sent:] if request.streaming else echo(request) + ids,
            final=True,
            finish=finish,
            perf=Perf(request.arrival_ns, last_token_ns=now, blocks=(0, 0), cached_tokens=0)
            if request.perf_metrics
            else None,
            **_scores(request, ids, len(ids) - sent if request.streaming else len(ids)),
        )

    def _is_cancelled(self, request: Request) -> bool:
        with self._lock:
            if request.id in self._stopped:
                return True
        return request.is_cancelled()


def _cut(request: Request, ids: list[int]) -> tuple[list[int], Finish | None]:
    """The answer as the request's own ends leave it (without an end id, with a stop word), and which end it was."""
    for place, token in enumerate(ids):
        if token == request.end_id:
            return ids[:place], "stop"
        said = ids[: place + 1]
        if any(ends_with(request.prompt + said, word) for word in request.stop_words):
            return said, "stop"
        if len(said) == request.max_tokens:
            return said, "length"
    return ids, None


def _scores(request: Request, ids: list[int], new: int) -> dict[str, Any]:
    """Log-probs of all tokens so far, and the alternatives of the new ones: ids near them, each less probable."""
    own = [-(token % 8) / 4 for token in ids]
    best = [(token, value) for token, value in zip(ids, own, strict=True)][len(ids) - new :]
    top = [[(abs(token - k), value - k) for k in range(request.top_log_probs)] for token, value in best]
    return {"log_probs": own if request.log_probs else [], "top_log_probs": top if request.top_log_probs else []}


def _exists(path: str | None) -> bool:
    return path is None or Path(path).exists()
