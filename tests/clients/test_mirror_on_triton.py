"""A mirror on the real Triton: the same model by its engine step and by its ensemble answers alike."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.ports import free_port
from tests.stack import GatewayProcess
from tests.warm_gateways import WarmGateways


def report(url: str, sent: int) -> tuple[int, dict[str, Any]]:
    """The exit status and the report, once so many copies were sent."""
    deadline = time.monotonic() + 60
    while True:
        done = WarmGateways.of_this_process().run(["compare", "--mirror", url, "--json"], os.environ)
        if done.stdout and (found := json.loads(done.stdout))["requests"]["sent"] >= sent:
            return done.returncode, found
        assert time.monotonic() < deadline, done


def test_the_engine_step_mirrored_to_the_ensemble(triton_smollm2: Any, smollm2_dir: Path, tmp_path: Path) -> None:
    of_both = {"tokenizer": str(smollm2_dir), "max_seq_len": 2048}
    models = [
        {
            "name": "step", **of_both, "path": "tokens", "mirror": {"to": "ensemble", "share": 1.0},
            "triton": {"url": triton_smollm2.grpc_url, "model": "ensemble"},
        },
        {
            "name": "ensemble", **of_both, "path": "ensemble",
            "triton": {"url": triton_smollm2.grpc_url, "model": "ensemble"},
        },
    ]  # fmt: skip
    inner = free_port()
    file = tmp_path / "gateway.yaml"
    file.write_text(yaml.safe_dump({"server": {"internal_port": inner}, "models": models}))
    with GatewayProcess(tmp_path / "log", GATEWAY_CONFIG=str(file)) as gateway:
        report(f"http://127.0.0.1:{inner}", 0)  # copies are taken
        for country in ("France", "Italy", "Japan"):
            body = {
                "model": "step", "temperature": 0, "max_tokens": 12, "stream": country == "Italy",
                "messages": [{"role": "user", "content": f"What is the capital of {country}?"}],
            }  # fmt: skip
            assert httpx.post(f"{gateway.url}/v1/chat/completions", json=body, timeout=60).status_code == 200
        status, said = report(f"http://127.0.0.1:{inner}", 3)
    assert status == 0, said
    assert said["requests"]["equal"] == 3
    assert said["rows"] == []
