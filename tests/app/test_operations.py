"""Who sees the metrics and the documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.api.page.routes import DOCS_PATHS
from gateway.settings import Settings
from tests.app.harness import Gateway, gateway

KEYS = {"api_keys": ["key"]}
KEY = {"Authorization": "Bearer key"}


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
        for path in DOCS_PATHS:
            static = path != "/openapi.json" and without == 401  # it says nothing of the gateway, and asks for the key
            assert (await one.client.get(path)).status_code == (200 if static else without)
            assert (await one.client.get(path, headers=KEY)).status_code == with_key


@pytest.mark.parametrize(
    ("server", "says"),
    [
        ({"metrics": "key"}, "server.metrics: key requires server.api_keys"),
        ({"docs": "key"}, "server.docs: key requires server.api_keys"),
    ],
)
def test_settings_that_contradict_themselves_are_refused(server: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Settings.model_validate({"server": server, "models": [{"name": "m", "triton": {"url": "h:1"}}]})
