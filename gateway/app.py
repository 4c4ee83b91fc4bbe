"""The application: settings to routes, middleware and lifespan; and the server process around it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import logging.config
import signal
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

import uvicorn
import uvloop
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.responses import Response
from starlette.types import Scope

from gateway import __version__
from gateway.anthropic.errors import AnthropicMiddleware, error_response, wants_anthropic
from gateway.anthropic.messages.routes import messages_router
from gateway.anthropic.models import anthropic_models_router
from gateway.config import ModelSettings, ServerSettings, Settings, SettingsSource
from gateway.generation import EngineError, ErrorKind
from gateway.hangups import outlive_hangups
from gateway.ids import new_id
from gateway.openai.chat.routes import chat_router
from gateway.openai.completions.routes import completions_router
from gateway.openai.conversations.routes import conversations_router
from gateway.openai.document import openapi_document
from gateway.openai.errors import (
    EXPOSED_HEADERS,
    HANDLED,
    INVALID,
    SERVER,
    OpenAIError,
    handle_defect,
    handle_http,
    handle_openai,
)
from gateway.openai.models.routes import models_router
from gateway.openai.responses.background import Runs
from gateway.openai.responses.retrieval import retrieval_router
from gateway.openai.responses.routes import responses_router
from gateway.openai.state import State, sealer_of
from gateway.openai.tokens.routes import tokens_router
from gateway.reloading import Reloader
from gateway.serving import long_work
from gateway.serving.backend import Backend, BackendFactory
from gateway.serving.registry import Registry
from gateway.store import StoreHolder
from gateway.telemetry.logs import logging_config
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.store_metrics import MeteredStore
from gateway.telemetry.triton_metrics import TritonMetrics
from gateway.triton.abilities import engine_options
from gateway.triton.triton_backend import POLL_S, HealthChecks, TritonBackend
from gateway.web.access_log import AccessLogMiddleware
from gateway.web.allowed_hosts import AllowedHostsMiddleware, names_to_check
from gateway.web.api_page import api_page_router
from gateway.web.auth import AuthMiddleware
from gateway.web.body_limit import BodyLimitMiddleware
from gateway.web.http_protocol import Bounds, http_protocol
from gateway.web.listening import BACKLOG, listen, repeated, room_for
from gateway.web.operations import operations_router
from gateway.web.routing import widen

_log = logging.getLogger(__name__)
_AFTER_ABORT_S = 5  # for aborted answers to write their last event


class Share(Protocol):
    """The tie of one of several worker processes to the others.

    Attributes:
        sockets: that this one listens on.
        poll_s: seconds between its health checks of Triton.
    """

    sockets: Sequence[socket.socket]
    poll_s: float

    def readiness(self, own: Mapping[str, str | None]) -> Mapping[str, str | None]:
        """For each model why not all workers serve it, None when they do; ``own`` is what this one says."""
        ...

    async def serving(self, registry: Registry) -> None:
        """Called once, when this one takes connections."""
        ...


def create_app(
    settings: Settings,
    backend_factory: BackendFactory | None = None,
    source: SettingsSource | None = None,
    share: Share | None = None,
) -> FastAPI:
    """Build the application. Its lifespan starts the models and closes them.

    Args:
        settings: of the gateway.
        backend_factory: makes the supervised engine of a model; None takes Triton's.
        source: where the settings came from: the models follow its changes and SIGHUP; None keeps them as they are.
        share: of one worker among several; None for a process of its own.

    Raises:
        ConfigError: by the lifespan, when a model cannot be served as configured.
    """
    metrics = Metrics()
    registry = Registry(settings, backend_factory or _triton_backend(settings, share), metrics)
    stores = StoreHolder(settings.state, lambda store: MeteredStore(store, metrics))
    state = State(stores, sealer_of(settings.state))
    runs = Runs(settings.limits.max_background_responses, registry, settings.timeouts)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        del app
        try:
            await stores.open()
            await registry.start()
            async with Reloader(settings, source, registry, metrics) if source else contextlib.nullcontext():
                yield
        finally:
            await runs.close()
            await registry.close()
            await stores.close()

    app = FastAPI(
        title="Triton OpenAI gateway",
        version=__version__,
        lifespan=lifespan,
        openapi_url=None,  # FastAPI sees neither bodies nor answers, and its page needs others; see api_page_router
        redirect_slashes=False,
        exception_handlers={
            **dict.fromkeys(HANDLED, handle_openai),
            HTTPException: handle_http,
        },
    )
    app.state.registry, app.state.runs = registry, runs
    _add_routes(app, settings, registry, metrics, share, state, runs)
    _add_middleware(app, settings)
    app.add_middleware(AccessLogMiddleware, metrics=metrics, hold=registry.request)
    return app


def _add_routes(
    app: FastAPI,
    settings: Settings,
    registry: Registry,
    metrics: Metrics,
    share: Share | None,
    state: State,
    runs: Runs,
) -> None:
    relayed = TritonMetrics(lambda: _metrics_urls(registry)).render
    show_reasons = not settings.server.api_keys

    def readiness() -> Mapping[str, str | None]:
        own = registry.readiness()
        return share.readiness(own) if share else own

    def rendered() -> tuple[bytes, str]:
        return metrics.render(readiness())

    # In the application's own table, and before all else: an included router is a table of its own, looked at twice.
    app.router.routes[:0] = [
        *chat_router(registry, settings.timeouts, metrics).routes,
        *completions_router(registry, settings.timeouts, metrics).routes,
        *responses_router(registry, settings.timeouts, metrics, state, runs).routes,
        *retrieval_router(state, runs, settings.timeouts.keepalive_s).routes,
        *conversations_router(state).routes,
        *messages_router(registry, settings.timeouts, metrics).routes,
        *tokens_router(registry, metrics).routes,
        *anthropic_models_router(registry).routes,
        *models_router(registry).routes,
        *operations_router(readiness, rendered, relayed, __version__, show_reasons=show_reasons).routes,
    ]
    document = functools.cache(lambda: openapi_document(app, keys=bool(settings.server.api_keys)))
    app.router.routes += api_page_router(document).routes
    widen(app.router.routes)


def _metrics_urls(registry: Registry) -> dict[str, str]:
    """Where each Triton gives its metrics, by its gRPC endpoint."""
    endpoints = (model.settings.triton for model in registry)
    return {triton.url: triton.metrics_url for triton in endpoints if triton.metrics_url is not None}


def _triton_backend(settings: Settings, share: Share | None) -> BackendFactory:
    def make(model: ModelSettings) -> Backend:
        return TritonBackend(
            model.triton.url,
            model.triton.model,
            model.path,
            request_timeout=settings.timeouts.total_s + 60,
            options=engine_options(model),
            transport=model.triton.transport,
            health=HealthChecks(share.poll_s if share else POLL_S, model.triton.health_failures, model.triton.stall_s),
        )

    return make


def _add_middleware(app: FastAPI, settings: Settings) -> None:
    """Add what may refuse a request, from the innermost to the outermost."""
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
    app.add_middleware(ServerErrorMiddleware, handler=handle_defect)  # inside of what adds headers to all answers
    if settings.server.cors.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.server.cors.origins,
            allow_methods=("DELETE", "GET", "HEAD", "POST"),
            allow_headers=("*",),
            allow_private_network=True,  # a page that may ask may do so wherever the gateway stands
            expose_headers=EXPOSED_HEADERS,
        )
    names = names_to_check(settings.server.host, settings.server.allowed_hosts, has_keys=bool(keys))
    if names:
        app.add_middleware(
            AllowedHostsMiddleware,
            names=names,
            refuse=lambda message: OpenAIError(403, message, code="host_not_allowed").response(),
        )
    app.add_middleware(AnthropicMiddleware)


def serve(settings: Settings, source: SettingsSource | None = None, share: Share | None = None) -> None:
    """Serve until SIGTERM or SIGINT, then let running answers end.

    Args:
        settings: of the gateway.
        source: where they came from, to follow its changes; None keeps them as they are.
        share: of one worker among several; None for a process of its own, which opens its own socket.

    Raises:
        ConfigError: when a model cannot be served as configured.
        OSError: when the address cannot be listened on.
    """
    logging.config.dictConfig(logging_config(settings.server.log_level))
    uvloop.run(_serve(settings, source, share))


async def _serve(settings: Settings, source: SettingsSource | None, share: Share | None) -> None:
    outlive_hangups()  # while the application runs they reload
    app = create_app(settings, source=source, share=share)
    config = uvicorn.Config(
        app,
        host=settings.server.host,
        port=settings.server.port,
        http=http_protocol(unread_answer, _bounds(settings)),
        ws="none",
        lifespan="off",  # run here instead, so that a ConfigError arrives as one and not as a traceback in the log
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=int(settings.server.shutdown_s) + _AFTER_ABORT_S,
    )
    async with app.router.lifespan_context(app):
        # The server handles these signals while it runs, and raises them again when it is done: then we still clean up.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        server = _Server(config, app.state.registry, app.state.runs, settings.server.shutdown_s, share)
        await server.serve(repeated(share.sockets if share else _listen(settings.server)))


def unread_answer(status: int, message: str, scope: Scope) -> Response:
    """The answer to a request that the application has not seen; see ``gateway.web.http_protocol.Refuse``."""
    error = OpenAIError(status, message)
    if status >= 500:
        error = OpenAIError(status, message, type=SERVER, code="service_unavailable")
    request_id = new_id()
    anthropic = wants_anthropic(scope)
    answer = error_response(error, request_id) if anthropic else error.response()
    answer.headers["x-request-id"] = request_id
    if anthropic:
        answer.headers["request-id"] = request_id
    level = logging.INFO if status < 500 else logging.DEBUG  # too many connections are said once in a while
    _log.log(level, "refused before it was read: %s", message, extra={"request_id": request_id, "status": status})
    return answer


def _bounds(settings: Settings) -> Bounds:
    return Bounds(
        head_s=settings.timeouts.request_head_s,
        body_s=settings.timeouts.request_body_s,
        body_rate=settings.limits.min_body_bytes_per_s,
        connections=room_for(settings.limits.max_connections),
    )


def _listen(settings: ServerSettings) -> list[socket.socket]:
    (sockets,) = listen(settings.host, settings.port, 1)
    _log.info("listening on %s port %d", settings.host, sockets[0].getsockname()[1])
    return sockets


def _spare_the_collector() -> None:
    """Keep what lives as long as the process out of garbage collection, and collect more seldom.

    Else each request's share of full collections, which walk over all modules, schemas and tokenizers, costs as much
    as the relaying of dozens of tokens (benchmarks/notes.md).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


class _Server(uvicorn.Server):
    """A server whose running answers end with an error, not with a torn connection, when their time is up."""

    def __init__(
        self, config: uvicorn.Config, registry: Registry, runs: Runs, shutdown_s: float, share: Share | None
    ) -> None:
        super().__init__(config)
        self._registry = registry
        self._runs = runs
        self._shutdown_s = shutdown_s
        self._share = share

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Take connections, and tell the other workers so."""
        await super().startup(sockets)
        _spare_the_collector()
        if self._share is not None:
            await self._share.serving(self._registry)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let running answers end, abort the rest after ``shutdown_s``, and close all connections."""
        abort = asyncio.get_running_loop().call_later(self._shutdown_s, self._abort)
        try:
            await super().shutdown(sockets)
            await self._runs.idle()  # aborted like all others when their time is up
        finally:
            abort.cancel()
            long_work.reopen_all()

    def _abort(self) -> None:
        error = EngineError(ErrorKind.UNAVAILABLE, "The gateway is shutting down.")
        self._registry.abort(error)
        long_work.close_all(error)
