"""``gateway models`` as its users run it: of this gateway, and of servers that say less."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.gateway_ops.conformance.honest_server import KEY, MODEL, HonestServer, Lie, Reply
from tests.ports import free_port
from tests.stack import GatewayProcess
from tests.terminal import GatewayTerminal, environ
from tests.warm_gateways import WarmGateways


def models(*arguments: str) -> subprocess.CompletedProcess[str]:
    return WarmGateways.of_this_process().run(["models", *arguments], environ())


@pytest.mark.parametrize("tiny_gateway", ["tokens"], indirect=True)
def test_this_gateway_says_what_its_models_can(tiny_gateway: GatewayProcess) -> None:
    done = models(f"{tiny_gateway.url}/v1")
    head, row = (line.split("\t") for line in done.stdout.splitlines())
    found = dict(zip(head, row, strict=True))
    assert (found["model"], found["state"], found["context"], found["path"]) == ("tiny", "ready", "2,048", "tokens")
    assert found["log-probs"].endswith(" alternatives")
    assert "json_schema" in found["guides"]
    (told,) = json.loads(models(tiny_gateway.url, "--json").stdout)["models"]
    assert (told["id"], told["ready"], told["context"], told["streams"]) == ("tiny", True, 2048, "pieces")
    with GatewayTerminal(["models", tiny_gateway.url], environ()) as terminal:
        terminal.expect("tiny")
        assert terminal.end() == 0


def _not_ready(body: dict[str, Any], reply: Reply) -> None:
    if reply.status == 200:
        own = {
            "ready": False,
            "reason": "the engine of this model is built for another GPU than there is",
            "path": "tokens",
        }
        reply.json["data"] += [{"id": f"a-name-{'that-is-long-' * 5}", "max_model_len": 4096, "gateway": own}]


def test_a_narrow_terminal_gets_whole_reasons() -> None:
    with HonestServer(Lie(after=_not_ready, path="/v1/models")) as server:
        command = ["models", server.url, "--api-key", KEY]
        with GatewayTerminal(command, environ(), columns=60) as terminal:
            assert terminal.end() == 0
    head, *lines = terminal.plain.splitlines()
    assert head.split() == ["model", "state", "context", "path"]
    assert any("…" in line and "not ready" in line for line in lines)
    assert "the engine of this model is built for another GPU than there is" in " ".join(map(str.strip, lines))
    assert max(map(len, lines)) <= 60


def _hostile(body: dict[str, Any], reply: Reply) -> None:
    if reply.status == 200:
        reply.json["data"] += [{"id": "other\x1b[2J\n", "max_model_len": 4096}, "no object"]


def test_other_servers_say_less() -> None:
    with HonestServer(Lie(after=_hostile, path="/v1/models")) as server:
        done = models(server.url, "--api-key", KEY)
        assert done.returncode == 0
        head, _, second = done.stdout.splitlines()
        assert head == "model\tcontext"
        assert second == "other\\x1b[2J\t4,096"
        first, _ = json.loads(models(server.url, "--api-key", KEY, "--json").stdout)["models"]
        assert (first["id"], first["ready"]) == (MODEL, None)
        rejected = models(server.url, "--api-key", "wrong")
        assert (rejected.returncode, rejected.stdout) == (1, "")
        assert "Give a key of the server with --api-key" in rejected.stderr
    assert "is unreachable" in models(f"http://127.0.0.1:{free_port()}").stderr
