"""A worker process: ``python -m gateway.workers.worker``, started only by the supervisor."""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from gateway.telemetry.early_signals import end_with_supervisor, outlive_hangups
from gateway.workers.metrics_folder import hold


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM; returns the exit status.

    Args:
        arguments: number of the worker, inherited file descriptors, and the number of workers.
    """
    outlive_hangups()
    end_with_supervisor()
    parser = argparse.ArgumentParser()
    parser.add_argument("--index", type=int, required=True)
    parser.add_argument("--control", type=int, required=True)
    parser.add_argument("--shared", type=json.loads, required=True)
    parser.add_argument("--mirror", type=Path)
    parser.add_argument("--replaces", action="store_true")
    parser.add_argument("--listen", type=int, nargs="+", required=True)
    parser.add_argument("--internal", type=int, nargs="*", default=())
    given = parser.parse_args(arguments)

    hold(Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]))  # its counts outlive a supervisor that is killed
    from gateway.app import serve  # noqa: PLC0415 - after the signals are safe: imports take a second
    from gateway.settings import ConfigError, SettingsSource  # noqa: PLC0415
    from gateway.workers.shared_state import SharedState  # noqa: PLC0415
    from gateway.workers.supervisor_link import SupervisorLink  # noqa: PLC0415

    shared = SharedState(*given.shared)
    counts, buckets = shared.attach_counts(given.index), shared.attach_buckets(given.index)
    sockets, internal = ([socket.socket(fileno=fd) for fd in each] for each in (given.listen, given.internal))
    tokens = shared.attach_tokens()
    control = socket.socket(fileno=given.control)
    link = SupervisorLink(given.index, control, sockets, internal, counts, buckets, tokens, given.mirror)
    link.replaces = given.replaces
    try:
        source = SettingsSource.find()
        serve(source.load(), source, link)
    except (ConfigError, OSError) as error:
        link.fail(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
