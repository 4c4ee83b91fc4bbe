"""Endpoints for operators: health, metrics and version."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from starlette.requests import Request

from gateway.api.page.routes import DOCS_PATHS
from gateway.generation.health import EngineCondition
from gateway.generation.route import EndpointStatus
from gateway.http.middleware import owner_of
from gateway.http.routing import DirectRoute

OPEN_PATHS = frozenset({"/health", "/health/live", "/health/ready", "/metrics", "/version"}) | DOCS_PATHS
"""Paths that need no key."""
Page = tuple[bytes, str]
"""A page of metrics, and its content type."""


def operations_router(
    readiness: Callable[[], Mapping[str, EngineCondition]],
    metrics: Callable[[], Awaitable[Page]],
    slim: Callable[[], Awaitable[Page]],
    version: str,
    *,
    endpoints: Callable[[], Mapping[str, Sequence[EndpointStatus]]] = dict,
    engine_dead: Callable[[], bool] = bool,
    show_reasons: bool = True,
    metrics_access: Literal["all", "slim", "key", "none"] = "all",
) -> APIRouter:
    """Make the routes ``/health``, ``/health/live``, ``/health/ready``, ``/metrics`` and ``/version``, open to all.

    Args:
        readiness: the condition of each served model.
        metrics: all of them.
        slim: those by which requests are routed.
        version: of the gateway.
        endpoints: of each served model that has several.
        engine_dead: whether an engine of the Triton on this machine gives no tokens, as was last found.
        show_reasons: whether health says why a model is not ready. Reasons hold addresses and paths, which are to be
            kept from clients without a key, and health asks for none.
        metrics_access: of the metrics, see ``ServerSettings.metrics``.
    """
    router = APIRouter(route_class=DirectRoute)

    @router.get("/health/live")
    async def live(request: Request) -> JSONResponse:
        """Answer 200 as long as the process serves.

        With ``?engine=1`` 503 while an engine of the Triton on the same machine gives no tokens, as was last found: no
        engine is asked for it.
        """
        if request.query_params.get("engine") == "1" and engine_dead():
            return JSONResponse({"status": "engine dead"}, 503)
        return JSONResponse({"status": "ok"})

    async def ready(_request: Request) -> JSONResponse:
        """Answer 200 when every model is ready, else 503 with each model's reason."""
        found, several = readiness(), endpoints()
        models = {name: _model(each, several.get(name, ()), show_reason=show_reasons) for name, each in found.items()}
        if all(each.ready for each in found.values()):
            return JSONResponse({"status": "ready", "models": models})
        return JSONResponse({"status": "not ready", "models": models}, 503)

    router.get("/health", name="health")(ready)
    router.get("/health/ready", name="ready")(ready)

    async def prometheus(request: Request) -> Response:
        """Metrics in Prometheus' text format: the gateway's own, and Triton's where its URL is configured."""
        few = metrics_access == "slim" or (metrics_access == "key" and not owner_of(request.scope))
        body, content_type = await (slim if few else metrics)()
        return Response(body, headers={"content-type": content_type})

    if metrics_access != "none":
        router.get("/metrics")(prometheus)

    @router.get("/version")
    async def tell_version(_request: Request) -> JSONResponse:
        """Tell the version of the gateway."""
        return JSONResponse({"version": version})

    return router


def _model(condition: EngineCondition, endpoints: Sequence[EndpointStatus], *, show_reason: bool) -> dict[str, Any]:
    described: dict[str, Any] = {"ready": condition.ready, "state": condition.state}
    if condition.reason and show_reason:
        described["reason"] = condition.reason
    if condition.degraded:
        described["degraded"] = condition.degraded if show_reason else "not all workers serve the model"
    if endpoints and show_reason:
        described["endpoints"] = {each.address: _endpoint(each.condition) for each in endpoints}
    return described


def _endpoint(condition: EngineCondition) -> dict[str, str]:
    described: dict[str, str] = {"state": condition.state}
    if condition.reason:
        described["reason"] = condition.reason
    return described
