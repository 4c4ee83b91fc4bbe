"""What the conformance suite says of this gateway, and of one written in an afternoon."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway_ops.conformance import suite
from gateway_ops.conformance.bounded_http import Http
from gateway_ops.conformance.suite import CheckOutcome
from gateway_ops.conformance.verdicts import Verdict
from tests.clients.conftest import MODEL, TINY
from tests.gateway_ops.conformance.by_curl import send_by_curl
from tests.ports import free_port
from tests.stack import GatewayProcess

ROOT = Path(__file__).parents[2]


def run(url: str, model: str) -> dict[str, CheckOutcome]:
    return {each.check.name: each for each in suite.run(suite.meet(url, model, None, 60.0))}


def names(found: dict[str, CheckOutcome], *verdicts: Verdict) -> dict[str, str]:
    return {name: each.evidence for name, each in found.items() if each.verdict in verdicts}


def test_nothing_is_untrue_of_this_gateway(tiny_gateway: GatewayProcess) -> None:
    """Its model's words mean nothing, so that of some promises nothing can be told."""
    found = run(tiny_gateway.url, TINY)
    assert names(found, Verdict.UNTRUE) == {}
    assert len(names(found, Verdict.TRUE)) > 90


@pytest.mark.long
@pytest.mark.parametrize("gateway", ["tokens"], indirect=True)  # by both paths, see above, with the tiny model
def test_all_is_true_of_this_gateway_with_a_model_that_makes_sense(gateway: GatewayProcess) -> None:
    found = run(gateway.url, MODEL)
    assert names(found, Verdict.UNTRUE) == {}
    # It takes requests without a key, and does not relay its engine's metrics.
    assert set(names(found, Verdict.UNCLEAR)) <= {"error-wrong-key", "cancel-frees"}


@pytest.fixture
def naive(triton: Any, tiny_model_dir: Path, tmp_path: Path) -> Iterator[str]:
    """The naive gateway of the benchmarks before the tiny model in the real Triton."""
    port = free_port()
    env = {**os.environ, "TRITON": triton.grpc_url, "MODE": "tokens"}
    env["TOKENIZER"] = str(tiny_model_dir / "tokenizer.json")
    command = [sys.executable, "-m", "uvicorn", "naive:app", "--port", str(port), "--no-access-log"]
    with (tmp_path / "naive.log").open("wb") as log:
        process = subprocess.Popen(command, env=env, cwd=ROOT / "benchmarks", stdout=log, stderr=log)
    try:
        ends = time.monotonic() + 60
        while subprocess.run(
            ["curl", "-sf", "-o", "/dev/null", f"http://127.0.0.1:{port}/docs"], check=False
        ).returncode:
            assert process.poll() is None, (tmp_path / "naive.log").read_text()
            assert time.monotonic() < ends
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


KNOWN = {
    "usage-present",
    "usage-of-stream",
    "finish-length",
    "stop-cuts",
    "stop-in-stream",
    "form-choices",
    "logprobs-present",
    "max-completion-tokens",
    "temperature",
    "logit-bias",
    "unknown-field",
    "json-object",
    "json-schema",
    "tool-named",
    "models-list",
    "fault-strange-role",
    "fault-temperature-range",
    "error-form",
    "error-no-model",
    "error-bad-json",
    "error-context",
}


@pytest.mark.long
def test_the_naive_gateway_is_found_out_and_the_printed_lines_show_it(
    naive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run(naive, MODEL)
    untrue = names(found, Verdict.UNTRUE)
    assert set(untrue) >= KNOWN
    assert {"text-stream-same", "stream-done", "max-tokens"} <= set(names(found, Verdict.TRUE))
    _can_be_read(found)
    monkeypatch.setattr(Http, "send", send_by_curl)
    by_curl = suite.meet(naive, MODEL, None, 60.0)
    for name in untrue:
        again = suite.run_one(by_curl, found[name].group, found[name].check)
        assert again.verdict is Verdict.UNTRUE, (name, again.evidence)
        assert again.curl == found[name].curl


def _can_be_read(found: dict[str, CheckOutcome]) -> None:
    """What some of the printed lines show is what the evidence says."""

    def shown(name: str) -> list[str]:
        lines = found[name].curl
        return [subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True).stdout for line in lines]

    (usage,) = shown("usage-present")
    assert '"choices"' in usage
    assert "usage" not in usage
    assert all('"finish_reason":"stop"' in text for text in shown("finish-length"))
    (unknown,) = shown("error-no-model")
    assert unknown.startswith("HTTP/1.1 200 OK")
    (long,) = shown("error-context")
    assert "HTTP/1.1 500 Internal Server Error" in long
    (choices,) = shown("form-choices")
    assert choices.count('"index"') == 1
