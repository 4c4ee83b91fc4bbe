"""A process that ends when the one that started it does: a worker, or the gateway of ``gateway up``."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Mapping
from typing import Final

SUPERVISOR_VARIABLE: Final = "GATEWAY_SUPERVISOR_PID"

_PR_SET_PDEATHSIG: Final = 1


def end_with_supervisor(environ: Mapping[str, str] | None = None) -> None:
    """In the child: ask the kernel for SIGTERM when its supervisor dies; does nothing when it is not its child."""
    supervisor = (os.environ if environ is None else environ).get(SUPERVISOR_VARIABLE)
    if supervisor is None:
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != int(supervisor):  # it died before we asked
        sys.exit(1)
