"""The application: settings to routes, middleware and lifespan; and the server process around it."""

from __future__ import annotations

import contextlib
import logging
import logging.config
import signal
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
import uvloop
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException

from gateway import __version__
from gateway.config import ModelSettings, Settings
from gateway.openai.chat.protocol import ChatCompletionRequest
from gateway.openai.chat.routes import chat_router
from gateway.openai.errors import HANDLED, INVALID, OpenAIError, handle_defect, handle_http, handle_openai
from gateway.openai.models.routes import models_router
from gateway.serving.backend import Backend, BackendFactory
from gateway.serving.registry import Registry
from gateway.telemetry.logs import logging_config
from gateway.telemetry.metrics import Metrics
from gateway.triton.backend import TritonBackend
from gateway.web.access_log import AccessLogMiddleware
from gateway.web.auth import AuthMiddleware
from gateway.web.body_limit import BodyLimitMiddleware
from gateway.web.operations import operations_router
from gateway.web.request_id import RequestIdMiddleware

_log = logging.getLogger(__name__)


def create_app(settings: Settings, backend_factory: BackendFactory | None = None) -> FastAPI:
    """Build the application. Its lifespan starts the models and closes them.

    Args:
        settings: of the gateway.
        backend_factory: makes the supervised engine of a model; None takes Triton's.

    Raises:
        ConfigError: by the lifespan, when a model cannot be served as configured.
    """
    metrics = Metrics()
    registry = Registry(settings, backend_factory or _triton_backend(settings), metrics)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        del app
        try:
            await registry.start()
            yield
        finally:
            await registry.close()

    app = FastAPI(
        title="Triton OpenAI gateway",
        version=__version__,
        lifespan=lifespan,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={
            **dict.fromkeys(HANDLED, handle_openai),
            HTTPException: handle_http,
            Exception: handle_defect,
        },
    )
    app.include_router(chat_router(registry, settings.timeouts, metrics))
    app.include_router(models_router(registry))
    app.include_router(operations_router(registry.readiness, metrics.render))
    _add_middleware(app, settings, metrics)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _triton_backend(settings: Settings) -> BackendFactory:
    def make(model: ModelSettings) -> Backend:
        return TritonBackend(
            model.triton.url, model.triton.model, model.path, request_timeout=settings.timeouts.total_s + 60
        )

    return make


def _add_middleware(app: FastAPI, settings: Settings, metrics: Metrics) -> None:
    """From the innermost to the outermost."""
    app.add_middleware(
        BodyLimitMiddleware,
        limit=settings.limits.max_body_bytes,
        refuse=lambda message: OpenAIError(413, message, code="request_too_large").response(),
    )
    keys = [key.get_secret_value() for key in settings.server.api_keys]
    if keys:
        app.add_middleware(
            AuthMiddleware,
            keys=keys,
            refuse=lambda message: OpenAIError(
                401, message, type=INVALID, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"}
            ).response(),
        )
    else:
        _log.warning("no API keys are set (GATEWAY_API_KEYS): everyone who reaches this gateway may use it")
    app.add_middleware(AccessLogMiddleware, metrics=metrics)
    app.add_middleware(RequestIdMiddleware)


def _openapi(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, with the schema of bodies that the routes read as bytes."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, routes=app.routes)
        schema = ChatCompletionRequest.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas.update(schema.pop("$defs", {}))
        schemas[ChatCompletionRequest.__name__] = schema
        app.openapi_schema = document
    return app.openapi_schema


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, then let running answers end.

    Raises:
        ConfigError: when a model cannot be served as configured.
        OSError: when the address cannot be listened on.
    """
    logging.config.dictConfig(logging_config(settings.server.log_level))
    uvloop.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        host=settings.server.host,
        port=settings.server.port,
        http="httptools",
        ws="none",
        lifespan="off",  # run here instead, so that a ConfigError arrives as one and not as a traceback in the log
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=2048,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=int(settings.server.shutdown_s),
    )
    async with app.router.lifespan_context(app):
        # The server handles these signals while it runs, and raises them again when it is done: then we still clean up.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        await uvicorn.Server(config).serve()
