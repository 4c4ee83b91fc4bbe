"""SIGHUP before a process can reload by it."""

from __future__ import annotations

import signal
from types import FrameType


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
