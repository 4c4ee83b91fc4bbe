"""The child's side: bounds on itself, then an answer for each question until its parent leaves."""

from __future__ import annotations

import ctypes
import gc
import importlib
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from typing import Final

from gateway.helper.framed_pipe import read_frame, write_frame

_LARGEST_QUESTION = 2**30
_PR_SET_PDEATHSIG: Final = 1
_FILES = 16  # for modules that are imported late; it has no sockets


def main(arguments: Sequence[str]) -> None:
    """Serve until standard input ends.

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


def end_with_parent(parent: int, how: signal.Signals) -> None:
    """Ask the kernel for a signal when the parent dies, or the thread of it that started this process.

    Args:
        parent: its process id; this process exits at once where that is its parent no more.
        how: the signal.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, how, 0, 0, 0)
    if os.getppid() != parent:  # it died before we asked
        sys.exit(1)


def _allow_cpu(seconds: float) -> None:
    """Bound the CPU time from now on: the parent looks at the clock, but may have died."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(used.ru_utime + used.ru_stime + seconds) + 1, hard))
