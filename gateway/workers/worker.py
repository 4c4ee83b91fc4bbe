"""A worker process: ``python -m gateway.workers.worker``, started by the supervisor only."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from gateway.hangups import outlive_hangups
from gateway.workers.metrics_folder import hold
from gateway.workers.supervised import end_with_supervisor


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM; the exit status.

    Args:
        arguments: its number, and the file descriptors that it inherits.
    """
    outlive_hangups()
    end_with_supervisor()
    parser = argparse.ArgumentParser()
    parser.add_argument("--index", type=int, required=True)
    parser.add_argument("--control", type=int, required=True)
    parser.add_argument("--listen", type=int, nargs="+", required=True)
    given = parser.parse_args(arguments)

    hold(Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]))  # its counts outlive a supervisor that is killed
    from gateway.app import serve  # noqa: PLC0415 - after the signals are safe: the imports take a second
    from gateway.config import ConfigError, SettingsSource  # noqa: PLC0415
    from gateway.workers.link import Link  # noqa: PLC0415

    link = Link(given.index, socket.socket(fileno=given.control), [socket.socket(fileno=fd) for fd in given.listen])
    try:
        source = SettingsSource.find()
        serve(source.load(), source, link)
    except (ConfigError, OSError) as error:
        link.fail(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
