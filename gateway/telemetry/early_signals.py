"""Signals that a process handles before all else: hang-ups do not end it, the end of its supervisor does."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Final

SUPERVISOR_VARIABLE: Final = "GATEWAY_SUPERVISOR_PID"


class EarlyHangup:
    """A handler of SIGHUP that only remembers that the signal came.

    Attributes:
        came: whether SIGHUP has come.
    """

    def __init__(self) -> None:
        self.came = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """Remember it."""
        self.came = True


def outlive_hangups() -> None:
    """Make this process outlive SIGHUP until another handler is set.

    A SIGHUP that the parent has blocked during the start is handled, too.
    """
    if not isinstance(signal.getsignal(signal.SIGHUP), EarlyHangup):
        signal.signal(signal.SIGHUP, EarlyHangup())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


def end_with_supervisor() -> None:
    """Ask the kernel to send SIGTERM when the supervisor dies; without effect in other processes than its child."""
    supervisor = os.environ.get(SUPERVISOR_VARIABLE)
    if supervisor is not None:
        from gateway.text.untrusted_work import end_with_parent  # noqa: PLC0415 - commands need none of it

        end_with_parent(int(supervisor), signal.SIGTERM)
