"""``gateway report`` as its users run it: what a maintainer needs is in it, and nothing that is somebody's secret."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scripted_engine.replay import ScriptedServer, turn
from tests.stack import GatewayProcess
from tests.terminal import GatewayTerminal, environ
from tests.warm_gateways import WarmGateways

SECRETS = (
    "sk-first-key",
    "sk-second-key",
    "pass-of-redis",
    "word-of-metadata",
    "a question of a client",
    "user-of-client",
)
DIGEST = hashlib.sha256(b"sk-third-named-key").hexdigest()
SETTINGS = """\
server:
  api_keys: [sk-first-key, sk-second-key]
  log_level: warning
auth:
  keys: [{{name: someone, hash: "sha256:{digest}"}}]
  redis_url: redis://:pass-of-redis@redis.internal:6379/0
models:
  - name: scripted
    tokenizer: {tokenizer}
    max_seq_len: 4096
    path: tokens
    triton: {{url: "{triton}", metadata: {{authorization: word-of-metadata}}}}
"""


def report(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return WarmGateways.of_this_process().run(
        ["report", *arguments], environ(GATEWAY_API_KEY=SECRETS[0]), folder=folder
    )


@pytest.fixture
def settings(scripted_triton: ScriptedServer, tmp_path: Path) -> Path:
    file = tmp_path / "mine.yaml"
    file.write_text(
        SETTINGS.format(tokenizer=scripted_triton.model_dir, triton=scripted_triton.grpc_url, digest=DIGEST)
    )
    return file


@pytest.fixture
def failing(scripted_triton: ScriptedServer, tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway that has refused a client that said much."""
    with GatewayProcess.of_model(
        tmp_path / "log",
        "scripted",
        scripted_triton.grpc_url,
        scripted_triton.model_dir,
        4096,
        GATEWAY_API_KEYS=",".join(SECRETS[:2]),
    ) as process:
        scripted_triton.play(turn("nothing matches", text="x"))  # so that the engine fails
        body: dict[str, Any] = {"model": "scripted", "messages": [{"role": "user", "content": SECRETS[4]}]}
        headers = {"Authorization": f"Bearer {SECRETS[0]}"}
        body["metadata"] = {"who": SECRETS[5]}
        answer = process._client.post("/v1/chat/completions", json=body, headers=headers, timeout=30)
        assert answer.status_code >= 400
        process.logged('"error"')
        yield process


def test_it_has_what_a_maintainer_needs_and_no_secret(failing: GatewayProcess, settings: Path, tmp_path: Path) -> None:
    done = report(tmp_path, str(settings), "--url", failing.url, "--log", str(failing.log), "--yes")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "gateway-report.json").read_text()
    assert done.stdout == text
    found = json.loads(text)
    assert [secret for secret in (*SECRETS, DIGEST, "redis.internal", "someone") if secret in text] == []
    assert found["versions"]["packages"]["tritonclient"]
    (model,) = found["settings"]["models"]
    assert (model["name"], model["path"], model["max_seq_len"]) == ("scripted", "tokens", 4096)
    assert model["triton"]["url"] == "(hidden)"
    assert found["settings"]["server"]["log_level"] == "warning"
    assert found["settings"]["auth"]["redis_url"] == "(hidden)"
    assert found["models"]["scripted"]["ready"] is True
    assert found["models"]["scripted"]["capabilities"]["seed"]["how"]
    request = next(record for record in found["errors"] if record["message"] == "request")
    assert request["status"] >= 400
    assert "annotations" in request["left_out"]
    again = report(tmp_path, str(settings), "--yes")  # nothing is written over
    assert (again.returncode, again.stderr) == (1, "error: cannot write gateway-report.json: File exists\n")


def test_it_is_shown_before_it_is_written(settings: Path, tmp_path: Path) -> None:
    written = tmp_path / "mine.json"
    done = report(tmp_path, str(settings), "-o", str(written))
    assert done.returncode == 0
    assert '"versions"' in done.stdout
    assert not written.exists()
    for answer, wanted in (("n", False), ("y", True)):
        with GatewayTerminal(
            ["report", str(settings), "-o", str(written)], environ(GATEWAY_API_KEY=SECRETS[0])
        ) as terminal:
            terminal.expect('"settings"')
            terminal.expect("Write it? ")
            assert not written.exists()
            terminal.type(answer)
            assert terminal.end() == 0
        assert written.exists() == wanted


def test_lines_of_any_kind_in_a_log_are_survived(tmp_path: Path) -> None:
    quoted = {"level": "ERROR", "message": "Task exception was never retrieved\nfuture: ValueError('of a client')"}
    address = {"level": "ERROR", "message": "cannot reach someone:their-word@redis.internal"}
    (tmp_path / "log").write_text("\n".join(["[" * 100_000, *map(json.dumps, (quoted, address)), "\x00", "null"]))
    done = report(tmp_path, "--log", "log")
    assert done.returncode == 0, done.stderr
    messages = [each["message"] for each in json.loads(done.stdout)["errors"]]
    assert messages == ["Task exception was never retrieved", "cannot reach (hidden)@redis.internal"]


def test_what_cannot_be_had_is_said(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("serverr: {api_keys: [sk-broken-key]}\n")
    done = report(tmp_path, "broken.yaml", "--url", "http://127.0.0.1:1", "--log", "missing.log")
    found = json.loads(done.stdout)
    assert found["settings"].startswith("not readable: ")
    assert found["models"].startswith("not readable: http://127.0.0.1:1 is unreachable")
    assert found["errors"] == "not readable: No such file or directory"
    assert "sk-broken-key" not in done.stdout
