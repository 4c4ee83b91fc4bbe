"""Signals that a process is ready for before all else: it outlives hang-ups, and ends with the one that started it."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Final

SUPERVISOR_VARIABLE: Final = "GATEWAY_SUPERVISOR_PID"


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


def end_with_supervisor() -> None:
    """In the child: ask the kernel for SIGTERM when its supervisor dies; does nothing when it is not its child."""
    supervisor = os.environ.get(SUPERVISOR_VARIABLE)
    if supervisor is not None:
        from gateway.text.untrusted_work import end_with_parent  # noqa: PLC0415 - commands need none of it

        end_with_parent(int(supervisor), signal.SIGTERM)
