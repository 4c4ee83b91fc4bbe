"""Who sees the metrics and the documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.config import Settings
from gateway.telemetry.slim_page import engine_families
from tests.app.harness import Gateway, gateway

KEYS = {"api_keys": ["key"]}
KEY = {"Authorization": "Bearer key"}
PAGE = """\
# HELP nv_trt_llm_request_metrics Requests.
# TYPE nv_trt_llm_request_metrics gauge
nv_trt_llm_request_metrics{endpoint="h:1",request_type="waiting"} 3
# HELP nv_inference_count Inferences.
# TYPE nv_inference_count counter
nv_inference_count{model="m"} 7
# TYPE nv_trt_llm_kv_cache_block_metrics gauge
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction"} 0.5
# TYPE gateway_key_requests counter
gateway_key_requests_total{key="alice"} 1.0
# TYPE gateway_model_ready gauge
gateway_model_ready{model="m"} 1.0
"""


def test_the_slim_page_has_the_engines_own_families() -> None:
    families = engine_families(PAGE)
    assert [line.split("{")[0].split()[-1] for line in families.splitlines() if not line.startswith("#")] == [
        "nv_trt_llm_request_metrics",
        "nv_trt_llm_kv_cache_block_metrics",
    ]
    assert families.count("# TYPE ") == 2
    assert engine_families(families) == families


@pytest.mark.parametrize(
    ("server", "without", "with_key"),
    [
        ({}, "all", "all"),
        ({"metrics": "slim"}, "slim", "slim"),
        ({"metrics": "key"}, "slim", "all"),
        ({"metrics": "none"}, None, None),
        ({"internal_port": 9999}, "slim", "slim"),
        ({"internal_port": 9999, "metrics": "all"}, "all", "all"),
    ],
)
async def test_metrics_are_shown_as_set(
    folder: Path, server: dict[str, Any], without: str | None, with_key: str | None
) -> None:
    async with gateway(folder, server={**KEYS, **server}) as one:
        for headers, shown in (({}, without), (KEY, with_key)):
            answer = await metrics(one, headers)
            if shown is None:
                assert answer.status_code == 404
                continue
            assert answer.status_code == 200
            assert "gateway_model_ready{" in answer.text
            assert "\ngateway_num_requests_waiting 0.0\n" in answer.text
            assert ("gateway_requests_total" in answer.text) == (shown == "all")
        if server.get("metrics") == "key":
            assert (await metrics(one, {"x-api-key": "wrong"})).status_code == 401


async def metrics(gateway: Gateway, headers: dict[str, str]) -> httpx.Response:
    """The page, not held against the document, which knows nothing of settings."""
    request = gateway.client.build_request("GET", "/metrics", headers=headers)
    answer = await gateway.client.send(request, stream=True)
    await answer.aread()
    return answer


@pytest.mark.parametrize(
    ("server", "without", "with_key"),
    [({}, 200, 200), ({"docs": "key"}, 401, 200), ({"docs": "none"}, 404, 404), ({"internal_port": 9999}, 404, 404)],
)
async def test_documentation_is_shown_as_set(folder: Path, server: dict[str, Any], without: int, with_key: int) -> None:
    async with gateway(folder, server={**KEYS, **server}) as one:
        for path in ("/docs", "/openapi.json"):
            assert (await one.client.get(path)).status_code == without
            assert (await one.client.get(path, headers=KEY)).status_code == with_key


@pytest.mark.parametrize(
    ("server", "says"),
    [
        ({"metrics": "key"}, "server.metrics: key needs keys"),
        ({"docs": "key"}, "server.docs: key needs keys"),
    ],
)
def test_settings_that_contradict_themselves_are_refused(server: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Settings.model_validate({"server": server, "models": [{"name": "m", "triton": {"url": "h:1"}}]})
