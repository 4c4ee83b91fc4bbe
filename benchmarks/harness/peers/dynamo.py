"""Dynamo's front end before a worker of ours; all its planes on loopback, discovery in a folder."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness.client import call
from benchmarks.harness.processes import ROOT, BenchmarkError, Child, Paced, free_port
from benchmarks.harness.relay import Tell

from .environments import DYNAMO, FOLDER, install
from .model_folder import NAME, model_folder
from .peer import Peer

DYNAMO_NAME = "Dynamo"
_HOSTS = ("TCP_RPC_HOST", "TCP_RESPONSE_STREAM_HOST", "EVENT_PLANE_HOST", "SYSTEM_HOST", "HTTP_HOST")
_KNOWN_S = 60.0


@contextlib.contextmanager
def served(tell: Tell) -> Iterator[Peer]:
    """The front end and its worker, whose CPU is not counted.

    Raises:
        BenchmarkError: it cannot be installed, or does not start.
    """
    python = install(DYNAMO, tell) / "python"
    discovery = FOLDER / "dynamo-discovery"
    shutil.rmtree(discovery, ignore_errors=True)  # a worker of an earlier run would be asked, too
    env = {"DYN_DISCOVERY_BACKEND": "file", "DYN_FILE_KV": str(discovery), "DYN_REQUEST_PLANE": "tcp"}
    env |= {"DYN_EVENT_PLANE": "zmq", **{f"DYN_{host}": "127.0.0.1" for host in _HOSTS}}
    worker: list[str | Path] = [python, "-m", "benchmarks.harness.peers.dynamo_worker", NAME, model_folder()]
    with Paced("dynamo-worker", worker, 0, env=env, cwd=ROOT) as engine:
        engine.wait_said("registered")
        port = free_port()
        command: list[str | Path] = [python, "-m", "dynamo.frontend", "--http-port", str(port)]
        with Child("dynamo", command, port, env=env) as child:
            _wait_known(child)
            yield Peer(
                name=DYNAMO_NAME,
                release=DYNAMO.release,
                child=child,
                pace=engine.pace,
                upstream="a worker on Dynamo's own TCP plane (token ids), a synthetic one in Python",
                without="speak to Triton, check keys",
            )


def _wait_known(child: Child) -> None:
    """Wait until the front end has found the worker's model."""
    child.wait_http("/health")
    begun = time.monotonic()
    while f'"{NAME}"' not in call(child, "GET", "/v1/models").decode():
        if time.monotonic() - begun > _KNOWN_S:
            raise BenchmarkError("Dynamo's front end did not find its worker")
        time.sleep(0.1)
