"""The parent's side: a warm process that answers one question at a time, and is ended when it takes too much."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Literal

from gateway.helper.framed_pipe import read_frame, write_frame

_ROOT = Path(__file__).parents[2]
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from gateway.helper.child import main; main(sys.argv[2:])"
)
_START_S = 60.0
_END_S = 5.0
_ENVIRONMENT = ("TZ",)  # a template may show the date
# The kernel ends a helper with the thread that started it: this one stays, the thread of a question may not.
_STARTER = ThreadPoolExecutor(1, thread_name_prefix="helper-starter")

Reason = Literal["time", "size", "ended"]


class HelperFailedError(Exception):
    """A question without an answer.

    Attributes:
        reason: ``time`` or ``size`` where a bound was passed; ``ended`` where the process did, as it does when the
            system gives it no more memory.
    """

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


_helpers: weakref.WeakSet[Helper] = weakref.WeakSet()


def end_helpers() -> None:
    """Kill the processes of all helpers, so that no request waits for their answers."""
    for helper in list(_helpers):
        helper.kill()


def helper_pids() -> list[int]:
    """The ids of the processes of all helpers, as far as they run."""
    return [helper.pid for helper in list(_helpers) if helper.pid is not None]


class Helper:
    """A process that imports one module and calls its ``answer`` for each question.

    It starts with the first question and is kept for the next ones. It inherits the time zone, and nothing else of the
    environment, no open file and no socket; it has no standard error. It ends with its parent, even one that is killed.
    """

    def __init__(self, module: str, *, memory_bytes: int, seconds: float, largest: int) -> None:
        """Describe the process; none is started yet.

        Args:
            module: with the function ``answer``, from bytes to bytes.
            memory_bytes: address space that the process may have.
            seconds: for one answer, on the clock; the CPU gets as many.
            largest: bytes of an answer.
        """
        self._command = [module, str(memory_bytes), str(seconds)]
        self._seconds = seconds
        self._largest = largest
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()
        self._late = False
        atexit.register(self.close)
        _helpers.add(self)

    @property
    def pid(self) -> int | None:
        """The id of the process; None while there is none."""
        process = self._process
        return process.pid if process else None

    def ask(self, *question: bytes) -> bytearray:
        """Give a question and wait for the answer, which blocks the calling thread; others take their turns.

        Args:
            question: in any number of pieces.

        Raises:
            HelperFailedError: there is none; the process was ended, and the next question starts another.
        """
        with self._turn:
            if self._process is not None and self._process.poll() is not None:
                self._end()  # somebody else ended it since: the system, when it lacked memory
            try:
                if self._process is None:
                    self._process = _STARTER.submit(self._started).result()
                    self._exchange(self._process, None, _START_S)
                answer = self._exchange(self._process, question, self._seconds)
            except BaseException:
                self._end()
                raise
            if self._late:  # just in time, but it is being ended
                self._end()
            return answer

    def close(self) -> None:
        """End the process, if any; a later question starts another."""
        with self._turn:
            self._end()

    def kill(self) -> None:
        """End the process at once, even while it works on a question, which fails; a later one starts another."""
        process = self._process
        if process is not None:
            process.kill()

    def _exchange(
        self, process: subprocess.Popen[bytes], question: Sequence[bytes] | None, seconds: float
    ) -> bytearray:
        """Send a question and read the answer; without a question, read that the process is ready."""
        self._late = False
        timer = threading.Timer(seconds, self._expire, (process,))
        timer.daemon = True
        timer.start()
        try:
            if question is not None:
                write_frame(_pipe(process.stdin), *question)
            answer = read_frame(_pipe(process.stdout), self._largest)
        except OSError:
            answer = None
        except OverflowError:
            raise HelperFailedError("size") from None
        finally:
            timer.cancel()
        if answer is None:
            raise HelperFailedError("time" if self._late else "ended")
        return answer

    def _expire(self, process: subprocess.Popen[bytes]) -> None:
        self._late = True
        process.kill()

    def _started(self) -> subprocess.Popen[bytes]:
        # Isolated and without site: nothing but the paths that are given is looked at.
        paths = [str(_ROOT), *(path for path in sys.path if path)]
        return subprocess.Popen(  # noqa: S603 - our own modules
            [sys.executable, "-I", "-S", "-c", _START, json.dumps(paths), str(os.getpid()), *self._command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd="/",
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            start_new_session=True,  # Ctrl-C is for its parent, whose end it sees
        )

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None  # noqa: S101 - both are pipes
    return stream
