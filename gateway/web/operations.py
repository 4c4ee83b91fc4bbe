"""Endpoints for operators: health, metrics and version."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from starlette.requests import Request
from typing_extensions import NotRequired, TypedDict

from gateway.web.middleware import owner_of
from gateway.web.routing import DirectRoute

Page = tuple[bytes, str]
"""A page of metrics, and its content type."""


class Liveness(TypedDict):
    """That the process serves."""

    status: Literal["ok"]


class ModelReadiness(TypedDict):
    """Whether a model can be served, and why not, unless the API asks for keys."""

    ready: bool
    reason: NotRequired[str]


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
    readiness: Callable[[], Mapping[str, str | None]],
    metrics: Callable[[], Awaitable[Page]],
    slim: Callable[[], Awaitable[Page]],
    version: str,
    *,
    show_reasons: bool = True,
    shown: Literal["all", "slim", "key", "none"] = "all",
) -> APIRouter:
    """Routes ``/health``, ``/health/live``, ``/health/ready``, ``/metrics`` and ``/version``; all open without a key.

    Args:
        readiness: for each served model why it is not ready, None when it is.
        metrics: all of them.
        slim: those by which requests are routed.
        version: of the gateway.
        show_reasons: whether health says why a model is not ready. Reasons hold addresses and paths, which are
            to be kept from clients without a key, and health asks for none.
        shown: of the metrics, see ``ServerSettings.metrics``.
    """
    router = APIRouter(tags=["operations"])

    @router.get("/health/live", responses={200: _described("The process serves.", Liveness)})
    async def live() -> JSONResponse:
        """Answer 200 as long as the process serves."""
        return JSONResponse(Liveness(status="ok"))

    async def ready() -> JSONResponse:
        """Answer 200 when every model is ready, else 503 with each model's reason."""
        reasons = readiness()
        models = {name: _model(reason, show_reasons=show_reasons) for name, reason in reasons.items()}
        if any(reason is not None for reason in reasons.values()):
            return JSONResponse(Readiness(status="not ready", models=models), 503)
        return JSONResponse(Readiness(status="ready", models=models))

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


def _model(reason: str | None, *, show_reasons: bool) -> ModelReadiness:
    return {"ready": False, "reason": reason} if reason and show_reasons else {"ready": reason is None}
