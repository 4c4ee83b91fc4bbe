"""A process that ends when the one that started it does: a worker, or the gateway of ``gateway up``."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import Final

from gateway.helper import end_with_parent

SUPERVISOR_VARIABLE: Final = "GATEWAY_SUPERVISOR_PID"


def end_with_supervisor(environ: Mapping[str, str] | None = None) -> None:
    """In the child: ask the kernel for SIGTERM when its supervisor dies; does nothing when it is not its child."""
    supervisor = (os.environ if environ is None else environ).get(SUPERVISOR_VARIABLE)
    if supervisor is not None:
        end_with_parent(int(supervisor), signal.SIGTERM)
