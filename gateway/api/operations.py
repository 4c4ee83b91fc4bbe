"""Endpoints for operators: health, metrics and version."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from starlette.requests import Request
from typing_extensions import NotRequired, TypedDict

from gateway.api.page.routes import DOCS_PATHS
from gateway.generation.health import EngineCondition, HealthState
from gateway.generation.route import EndpointStatus
from gateway.http.middleware import owner_of
from gateway.http.routing import DirectRoute

OPEN_PATHS = frozenset({"/health", "/health/live", "/health/ready", "/metrics", "/version"}) | DOCS_PATHS
"""Paths that need no key."""
Page = tuple[bytes, str]
"""A page of metrics, and its content type."""


class Liveness(TypedDict):
    """That the process serves, or that the engine beside it gives no tokens."""

    status: Literal["ok", "engine dead"]


class EndpointReadiness(TypedDict):
    """One of several endpoints of a model."""

    state: HealthState
    reason: NotRequired[str]


class ModelReadiness(TypedDict):
    """Whether a model can be served and its state; reasons and endpoints unless the API asks for keys.

    Where only a part of the worker processes serves it, ``degraded`` tells of the others.
    """

    ready: bool
    state: HealthState
    reason: NotRequired[str]
    degraded: NotRequired[str]
    endpoints: NotRequired[dict[str, EndpointReadiness]]


class Readiness(TypedDict):
    """Whether all models can be served, by their names."""

    status: Literal["ready", "not ready"]
    models: dict[str, ModelReadiness]


class Version(TypedDict):
    """The version of the gateway."""

    version: str


def _described(description: str, body: Any) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": body}}}


_STATES: dict[int | str, dict[str, Any]] = {
    200: _described("All models are ready.", Readiness),
    503: _described("A model is not ready.", Readiness),
}
_TEXT = {"description": "The metrics.", "content": {"text/plain": {"schema": {"type": "string"}}}}


def operations_router(
    readiness: Callable[[], Mapping[str, EngineCondition]],
    metrics: Callable[[], Awaitable[Page]],
    slim: Callable[[], Awaitable[Page]],
    version: str,
    *,
    endpoints: Callable[[], Mapping[str, Sequence[EndpointStatus]]] = dict,
    engine_dead: Callable[[], bool] = bool,
    show_reasons: bool = True,
    shown: Literal["all", "slim", "key", "none"] = "all",
) -> APIRouter:
    """Routes ``/health``, ``/health/live``, ``/health/ready``, ``/metrics`` and ``/version``; all open without a key.

    Args:
        readiness: the condition of each served model.
        metrics: all of them.
        slim: those by which requests are routed.
        version: of the gateway.
        endpoints: of each served model that has several.
        engine_dead: whether an engine of the Triton on this machine gives no tokens, as was last found.
        show_reasons: whether health says why a model is not ready. Reasons hold addresses and paths, which are to be
            kept from clients without a key, and health asks for none.
        shown: of the metrics, see ``ServerSettings.metrics``.
    """
    router = APIRouter(tags=["operations"])

    @router.get(
        "/health/live",
        responses={
            200: _described("The process is alive.", Liveness),
            503: _described("An engine has failed.", Liveness),
        },
    )
    async def live(request: Request) -> JSONResponse:
        """Answer 200 as long as the process serves.

        With ``?engine=1`` 503 while an engine of the Triton on the same machine gives no tokens, as was last found: no
        engine is asked for it.
        """
        if request.query_params.get("engine") == "1" and engine_dead():
            return JSONResponse(Liveness(status="engine dead"), 503)
        return JSONResponse(Liveness(status="ok"))

    async def ready() -> JSONResponse:
        """Answer 200 when every model is ready, else 503 with each model's reason."""
        found, several = readiness(), endpoints()
        models = {name: _model(each, several.get(name, ()), shown=show_reasons) for name, each in found.items()}
        if all(each.ready for each in found.values()):
            return JSONResponse(Readiness(status="ready", models=models))
        return JSONResponse(Readiness(status="not ready", models=models), 503)

    router.get("/health", responses=_STATES, name="health")(ready)
    router.get("/health/ready", responses=_STATES, name="ready")(ready)

    async def prometheus(request: Request) -> Response:
        """Metrics in Prometheus' text format: the gateway's own, and Triton's where its URL is configured."""
        few = shown == "slim" or (shown == "key" and not owner_of(request.scope))
        body, content_type = await (slim if few else metrics)()
        return Response(body, headers={"content-type": content_type})

    if shown != "none":
        scraped = APIRouter(route_class=DirectRoute)  # 20 times a second
        scraped.get("/metrics", responses={200: _TEXT}, tags=["operations"])(prometheus)
        router.routes += scraped.routes

    @router.get("/version", responses={200: _described("The version.", Version)})
    async def tell_version() -> JSONResponse:
        """Tell the version of the gateway."""
        return JSONResponse(Version(version=version))

    return router


def _model(condition: EngineCondition, endpoints: Sequence[EndpointStatus], *, shown: bool) -> ModelReadiness:
    told = ModelReadiness(ready=condition.ready, state=condition.state)
    if condition.reason and shown:
        told["reason"] = condition.reason
    if condition.degraded:
        told["degraded"] = condition.degraded if shown else "not all workers serve the model"
    if endpoints and shown:
        told["endpoints"] = {each.address: _endpoint(each.condition) for each in endpoints}
    return told


def _endpoint(condition: EngineCondition) -> EndpointReadiness:
    told = EndpointReadiness(state=condition.state)
    if condition.reason:
        told["reason"] = condition.reason
    return told
