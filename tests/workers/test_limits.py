"""Limits of keys where several workers, and several gateways, count them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.ports import free_port
from tests.stack import GatewayProcess
from tests.store.redis_server import MISSING, RedisServer

KEY, OTHER = "sk-limited", "sk-other"
LIMIT = 90
EACH = 15  # requests of each of eight clients
EXACT = 0.025
SETTINGS = """\
server: {{reload_s: 0, lame_duck_s: 0}}
auth:
  keys_file: keys.yaml
  gateways: 2
models:
- {{name: tiny, triton: {{url: '{url}'}}, tokenizer: '{folder}', max_seq_len: 2048}}
"""


@pytest.fixture(scope="module")
def file(triton: Any, tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("limits") / "gateway.yaml"
    path.write_text(SETTINGS.format(url=triton.grpc_url, folder=tiny_model_dir))
    limits = {"requests_per_minute": LIMIT, "in_flight": 8}
    keys = [_key("limited", KEY, limits), _key("tokens", OTHER, {"tokens_per_minute": 600})]
    path.with_name("keys.yaml").write_text(json.dumps({"keys": keys}))
    return path


def _key(name: str, key: str, limits: dict[str, int]) -> dict[str, Any]:
    return {"name": name, "hash": f"sha256:{hashlib.sha256(key.encode()).hexdigest()}", "limits": limits}


@contextlib.contextmanager
def gateway(file: Path, workers: int, name: str, **env: str) -> Iterator[GatewayProcess]:
    log = file.with_name(name)
    with GatewayProcess(log, GATEWAY_CONFIG=str(file), GATEWAY_WORKERS=str(workers), **env) as process:
        yield process


def ask(gateway: GatewayProcess, key: str, max_tokens: int = 1) -> httpx.Response:
    """A request on a connection of its own, which reaches any of the workers."""
    body = {"model": "tiny", "prompt": "a", "max_tokens": max_tokens}
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(verify=False) as client:
        return client.post(f"{gateway.url}/v1/completions", json=body, headers=headers, timeout=30)


def flood(gateways: list[GatewayProcess], each: int) -> tuple[int, float]:
    """How many of the requests of eight clients are let in, and the seconds that they took."""
    begun = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, gateways[i % len(gateways)], KEY) for i in range(8 * each)]
        statuses = [one.result().status_code for one in asked]
    assert set(statuses) <= {200, 429}
    return statuses.count(200), time.monotonic() - begun


def test_workers_count_as_one(file: Path) -> None:
    port = free_port()
    with gateway(file, 2, "log", GATEWAY_INTERNAL_PORT=str(port), GATEWAY_METRICS="all") as one:
        let_in, seconds = flood([one], EACH)
        expected = LIMIT + seconds * LIMIT / 60
        assert expected * (1 - EXACT) <= let_in <= expected * (1 + EXACT), (let_in, expected)
        assert one.metric("gateway_key_requests_total", 'key="limited"') == 8 * EACH
        assert one.metric("gateway_key_limited_total", 'limit="requests_per_minute"') == 8 * EACH - let_in
        begun, used = time.monotonic(), 0
        for _ in range(8):  # what one of them has used is missing for the next, whatever worker that comes to
            answer = ask(one, OTHER, 20)
            used += answer.json()["usage"]["total_tokens"]
            left = int(answer.headers["x-ratelimit-remaining-tokens"])
            assert 600 - used - 20 <= left <= 600 - used + (time.monotonic() - begun) * 10 + 1
        assert used > 80
        _check_internal_port(port, one)


def _check_internal_port(port: int, gateway: GatewayProcess) -> None:
    """It shows all of every worker, without a key, and nothing of the API; killed workers leave it open."""
    url = f"http://127.0.0.1:{port}"
    for _ in range(8):
        text = httpx.get(f"{url}/metrics").text
        assert f'gateway_key_requests_total{{key="limited"}} {8 * EACH}.0' in text
    assert httpx.get(f"{url}/health/ready").status_code == 200
    assert httpx.get(f"{url}/docs").status_code == 200
    assert httpx.get(f"{url}/v1/models", headers={"Authorization": f"Bearer {KEY}"}).status_code == 404
    assert httpx.get(f"{gateway.url}/docs").status_code == 404
    os.kill(gateway.children()[0], signal.SIGKILL)
    assert httpx.get(f"{url}/metrics").status_code == 200


@pytest.mark.long
@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_gateways_count_as_one_and_go_on_without_redis(file: Path, tmp_path: Path) -> None:
    with RedisServer(tmp_path) as redis, contextlib.ExitStack() as stack:
        env = {"GATEWAY_LIMITS_REDIS_URL": redis.url}
        both = [stack.enter_context(gateway(file, workers, f"log-{workers}", **env)) for workers in (1, 2)]
        let_in, seconds = flood(both, EACH)
        expected = LIMIT + seconds * LIMIT / 60
        assert expected * (1 - EXACT) <= let_in <= expected * (1 + EXACT), (let_in, expected)
        redis.kill()
        without = [ask(each, KEY).status_code for each in both]
        assert without == [200, 200]  # each takes its part of the limit by itself
        for each in both:
            (line, *_) = each.logged("limits are not shared")
            assert "applies 1/2 of each" in line
        redis.start()
        for each in both:
            each.logged("limits are shared again")
