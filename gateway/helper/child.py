"""The child's side: bounds on itself, then an answer for each question until its parent leaves."""

from __future__ import annotations

import gc
import importlib
import math
import os
import resource
from collections.abc import Sequence

from gateway.helper.frames import read_frame, write_frame

_LARGEST_QUESTION = 2**30
_FILES = 16  # for modules that are imported late; no socket is among what it has


def main(arguments: Sequence[str]) -> None:
    """Serve until standard input ends.

    Args:
        arguments: the module with ``answer``, bytes of address space, seconds of CPU for an answer.
    """
    name, memory, seconds = arguments
    answer = importlib.import_module(name).answer
    gc.disable()  # what an answer makes is gone with it
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
    """So many seconds from now on: the parent looks at the clock, but may have died."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(used.ru_utime + used.ru_stime + seconds) + 1, hard))
