"""The liveness probe of a Triton beside its gateway: which answers of the two end it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.settings.gateway_settings import TimeoutSettings
from tests.handler_server import HandlerServer
from tests.ports import free_port
from tests.rings import examples

DEPLOY = Path(__file__).parents[2] / "deploy" / "kubernetes"


def probes(node: Any) -> Iterator[dict[str, Any]]:
    """The liveness probes of containers that ask a gateway for its verdict."""
    if isinstance(node, dict):
        if "engine=1" in json.dumps(node.get("livenessProbe")):
            yield node["livenessProbe"]
        for child in node.values():
            yield from probes(child)
    elif isinstance(node, list):
        for child in node:
            yield from probes(child)


@contextmanager
def server(status: int | None, asked: list[str]) -> Iterator[int]:
    """The port of a server that answers so; None: it takes connections and says nothing."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            if status is None:
                listening.closing.wait(20)
                return
            self.send_response(status)
            self.end_headers()

    with HandlerServer(Handler) as listening:
        yield listening.http.server_port


@pytest.mark.parametrize(
    "manifest", ["sidecar/deployment.yaml", pytest.param("multi-node/groups.yaml", marks=pytest.mark.long)]
)
@pytest.mark.parametrize(
    ("gateway", "triton", "lives"),
    [
        (200, 200, True),
        (503, 200, False),
        ("away", 200, True),  # for five minutes
        (None, 200, True),
        (404, 200, True),
        (401, 200, True),
        ("away", "away", False),
        (200, "away", False),
    ],
)
def test_only_a_verdict_of_the_gateway_or_triton_itself_ends_it(
    manifest: str, gateway: int | str | None, triton: int | str, lives: bool
) -> None:
    documents = list(yaml.safe_load_all((DEPLOY / manifest).read_text()))
    (probe,) = probes(documents)
    assert probe["periodSeconds"] * probe["failureThreshold"] > TimeoutSettings().first_token_s
    python, options, script = probe["exec"]["command"]
    asked: list[str] = []
    with ExitStack() as running:
        for port, status in (("9001", gateway), ("8000", triton)):
            there = free_port() if isinstance(status, str) else running.enter_context(server(status, asked))
            assert f":{port}/" in script
            script = script.replace(f":{port}/", f":{there}/")
        command = [sys.executable, options, script]
        for _ in range(examples(300 // probe["periodSeconds"]) if (gateway, lives) == ("away", True) else 1):
            done = subprocess.run(command, check=False, capture_output=True, timeout=probe["timeoutSeconds"])
            assert (done.returncode == 0) is lives, done.stderr
    assert python == "python3"
    assert set(asked) <= {"/health/live?engine=1", "/v2/health/live"}
