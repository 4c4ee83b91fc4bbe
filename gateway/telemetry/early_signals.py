"""Signals that a process is ready for before all else: it outlives hang-ups, and ends with the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Mapping
from types import FrameType
from typing import Final

SUPERVISOR_VARIABLE: Final = "GATEWAY_SUPERVISOR_PID"
_PR_SET_PDEATHSIG = 1


class EarlyHangup:
    """A handler of SIGHUP that ends nothing and remembers that it came.

    Attributes:
        came: whether it has.
    """

    def __init__(self) -> None:
        self.came = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """Remember it."""
        self.came = True


def outlive_hangups() -> None:
    """Have SIGHUP no longer end this process, from now on and until something else handles it.

    Also where the parent has held it back while it started this one.
    """
    if not isinstance(signal.getsignal(signal.SIGHUP), EarlyHangup):
        signal.signal(signal.SIGHUP, EarlyHangup())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


def end_with_parent(parent: int, how: signal.Signals) -> None:
    """Ask the kernel for a signal when the parent dies, or the thread of it that started this process.

    Args:
        parent: process id of the parent; this process exits immediately where its parent is another process.
        how: the signal.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, how, 0, 0, 0)
    if os.getppid() != parent:  # it died before we asked
        sys.exit(1)


def end_with_supervisor(environ: Mapping[str, str] | None = None) -> None:
    """In the child: ask the kernel for SIGTERM when its supervisor dies; does nothing when it is not its child."""
    supervisor = (os.environ if environ is None else environ).get(SUPERVISOR_VARIABLE)
    if supervisor is not None:
        end_with_parent(int(supervisor), signal.SIGTERM)
