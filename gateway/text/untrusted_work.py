"""Runs untrusted work in another process, with limits of time and memory.

No other work waits for the process. The parent's side is a warm process that answers one question at a time, and is
ended when it takes too much. The child's side bounds itself, then answers each question until its parent leaves.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import math
import os
import resource
import signal
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Literal

_ROOT = Path(__file__).parents[2]
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from gateway.text.untrusted_work import run_child; run_child(sys.argv[2:])"
)
_PR_SET_PDEATHSIG = 1
_START_S = 60.0
_END_S = 5.0
_ENVIRONMENT = ("TZ",)  # a template may show the date
# The kernel ends a helper with the thread that started it: this one stays, the thread of a question may not.
_STARTER = ThreadPoolExecutor(1, thread_name_prefix="helper-starter")

Reason = Literal["time", "size", "ended"]

_HEAD = struct.Struct("<Q")  # the length of a question or an answer, which goes before its bytes
_LARGEST_QUESTION = 2**30
_FILES = 16  # for modules that are imported late; it has no sockets


class HelperFailedError(Exception):
    """A question without an answer.

    Attributes:
        reason: ``time`` or ``size`` where a limit was exceeded; ``ended`` where the process ended, for example for lack
            of memory.
    """

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


_helpers: weakref.WeakSet[Helper] = weakref.WeakSet()


def end_helpers() -> None:
    """Kill all helper processes, so that no request waits for their answers."""
    for helper in list(_helpers):
        helper.kill()


def helper_pids() -> list[int]:
    """The process ids of all running helpers."""
    return [helper.pid for helper in list(_helpers) if helper.pid is not None]


class Helper:
    """A process that imports one module and calls its ``answer`` for each question.

    The process starts with the first question and stays for the next ones. It inherits the time zone, and nothing else
    of the environment, no open file and no socket; it has no standard error. It ends with its parent, also a killed
    one.
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
        """The process id; None without a process."""
        process = self._process
        return process.pid if process else None

    def ask(self, *question: bytes) -> bytearray:
        """Send a question and wait for the answer, which blocks the calling thread; others wait for their turn.

        Args:
            question: in any number of pieces.

        Raises:
            HelperFailedError: there is no answer; the process was ended, and the next question starts another.
        """
        with self._turn:
            if self._process is not None and self._process.poll() is not None:
                self._end()  # ended by the system since, for lack of memory
            try:
                if self._process is None:
                    self._process = _STARTER.submit(self._started).result()
                    self._exchange(self._process, None, _START_S)
                answer = self._exchange(self._process, question, self._seconds)
            except BaseException:
                self._end()
                raise
            if self._late:  # the response came just in time, but the helper is being ended
                self._end()
            return answer

    def close(self) -> None:
        """End the process, if any; a later question starts another."""
        with self._turn:
            self._end()

    def kill(self) -> None:
        """End the process immediately; its current question fails, and a later question starts another process."""
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


def write_frame(pipe: IO[bytes], *pieces: bytes) -> None:
    """Write a question or an answer to an unbuffered pipe.

    Args:
        pipe: the pipe.
        pieces: pieces of the question or answer, in order.

    Raises:
        OSError: the other end is closed.
    """
    for part in (_HEAD.pack(sum(map(len, pieces))), *pieces):
        rest = memoryview(part)
        while rest:
            rest = rest[pipe.write(rest) :]


def read_frame(pipe: IO[bytes], largest: int) -> bytearray | None:
    """Read a question or an answer from an unbuffered pipe; None where the pipe ends first.

    Args:
        pipe: the pipe.
        largest: most bytes.

    Raises:
        OverflowError: the question or answer is larger.
        OSError: the pipe is closed.
    """
    head = _read(pipe, _HEAD.size)
    if head is None:
        return None
    (size,) = _HEAD.unpack(head)
    if size > largest:
        raise OverflowError
    return _read(pipe, size)


def _read(pipe: IO[bytes], size: int) -> bytearray | None:
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        count = pipe.readinto(rest)  # type: ignore[attr-defined]
        if not count:
            return None
        rest = rest[count:]
    return data


def run_child(arguments: Sequence[str]) -> None:
    """Answer questions until standard input ends.

    Args:
        arguments: the parent's process id, the module with ``answer``, bytes of address space, seconds of CPU for an
            answer.
    """
    parent, name, memory, seconds = arguments
    end_with_parent(int(parent), signal.SIGKILL)  # in the middle of an answer, too
    answer = importlib.import_module(name).answer
    time.tzset()  # reads the time zone before the bounds: a template may show the date
    gc.disable()  # the objects of an answer go with it
    for limit, most in (
        (resource.RLIMIT_AS, int(memory)),
        (resource.RLIMIT_NOFILE, _FILES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (most, most))
    reader, writer = os.fdopen(0, "rb", 0), os.fdopen(1, "wb", 0)
    write_frame(writer, b"")  # ready
    while True:
        question = read_frame(reader, _LARGEST_QUESTION)
        if question is None:
            return
        _allow_cpu(float(seconds))
        data = answer(question)
        del question
        write_frame(writer, data)
        del data
        gc.collect()


def _allow_cpu(seconds: float) -> None:
    """Bound the CPU time from now on: the parent looks at the clock, but may have died."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(used.ru_utime + used.ru_stime + seconds) + 1, hard))


def end_with_parent(parent: int, how: signal.Signals) -> None:
    """Ask the kernel for a signal when the parent dies, or its thread that started this process.

    Args:
        parent: process id of the parent; this process exits immediately where its parent is another process.
        how: the signal.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, how, 0, 0, 0)
    if os.getppid() != parent:  # it died before we asked
        sys.exit(1)
