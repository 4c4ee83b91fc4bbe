"""The application with its routes, middleware and lifespan, and the server process around it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import resource
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import uvicorn
import uvloop
from fastapi import APIRouter, FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.responses import Response
from starlette.types import Scope

from gateway import __version__
from gateway.api.anthropic.errors import AnthropicMiddleware, error_response, wants_anthropic
from gateway.api.anthropic.messages.routes import messages_router
from gateway.api.anthropic.models import anthropic_models_router
from gateway.api.openai.chat.routes import chat_router
from gateway.api.openai.classify.routes import CLASSIFY
from gateway.api.openai.completions.routes import completions_router
from gateway.api.openai.conversations.routes import conversations_router
from gateway.api.openai.embeddings.routes import EMBEDDINGS
from gateway.api.openai.encoder_endpoint import encoder_router
from gateway.api.openai.errors import (
    EXPOSED_HEADERS,
    HANDLED,
    INVALID,
    SERVER,
    OpenAIError,
    from_limit,
    handle_defect,
    handle_http,
    handle_openai,
)
from gateway.api.openai.mirror_report import mirror_router
from gateway.api.openai.models.routes import models_router
from gateway.api.openai.pool.routes import POOLING
from gateway.api.openai.rerank.routes import COHERE_RERANK, RERANK
from gateway.api.openai.responses.background import BackgroundRuns
from gateway.api.openai.responses.routes import responses_router, retrieval_router
from gateway.api.openai.score.routes import SCORE
from gateway.api.openai.state import ApplicationState, cipher_of
from gateway.api.openai.tokens.routes import tokens_router
from gateway.api.operations import OPEN_PATHS, Page, operations_router
from gateway.api.page.document import openapi_document
from gateway.api.page.routes import PAGE_PATHS, api_page_router, chat_page_router
from gateway.generation import EngineError, ErrorKind
from gateway.generation.health import EngineCondition
from gateway.generation.ids import new_id
from gateway.generation.route import EndpointStatus
from gateway.http.access.guard import Guard
from gateway.http.access.key_metrics import KeyMetrics
from gateway.http.access.shared_buckets import SharedBuckets
from gateway.http.access_log import AccessLogMiddleware
from gateway.http.certificates import CertificateError, CertificateWatch, FileBackedValue
from gateway.http.http_protocol import HttpLimits, http_protocol
from gateway.http.listening import BACKLOG, listen, room_for
from gateway.http.listening_tls import listening_contexts
from gateway.http.middleware import (
    AllowedHostsMiddleware,
    AuthMiddleware,
    BodyLimitMiddleware,
    RateLimitMiddleware,
    names_to_check,
)
from gateway.http.routing import Application, widen
from gateway.http.server import InternalPort, Server, ServerStages, ServerTls
from gateway.http.shutdown import ShutdownState
from gateway.serving import long_work
from gateway.serving.backend import Backend, BackendFactory
from gateway.serving.fleet.fleet import Fleet
from gateway.serving.fleet.shared_counts import SharedCounts
from gateway.serving.mirror.copies import RequestCopies
from gateway.serving.mirror.keeper import MirrorSupervisor, wants_mirror
from gateway.serving.mirror.link import MirrorLink
from gateway.serving.overload import OVERLOAD
from gateway.serving.registry import Registry
from gateway.serving.reload import SettingsReloader
from gateway.serving.served_model import ServedModel
from gateway.serving.store import StoreHolder
from gateway.serving.store.metered_store import MeteredStore
from gateway.settings import (
    ConfigError,
    ModelSettings,
    ServerSettings,
    Settings,
    SettingsSource,
)
from gateway.settings.tls_settings import ServerTlsSettings
from gateway.telemetry.early_signals import outlive_hangups
from gateway.telemetry.exporting import open_telemetry
from gateway.telemetry.logs import set_up_logging
from gateway.telemetry.memory import Memory
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.slim_page import CONTENT_TYPE, ModelQueue, load_families, slim_page
from gateway.telemetry.triton_metrics import TritonMetrics
from gateway.text.shared_memory import key_of
from gateway.text.tokens.token_cache import TokenCache, own_token_cache
from gateway.text.untrusted_work import helper_pids
from gateway.triton.abilities import engine_options
from gateway.triton.access import TritonAccesses
from gateway.triton.triton_backend import POLL_S, HealthChecks, TritonBackend

# A thread that parses or renders gives way to the event loop after so long. Each wait of the loop for a file or socket
# gives way to that thread in turn: with Python's 5 ms three of them in a row would hold all streams for 15.
_SWITCH_S = 0.0005
_log = logging.getLogger(__name__)
# FastAPI's own would trace by any global provider, and note bodies. Versions before it take no notice of this.
_NO_TELEMETRY: Any = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}
_AFTER_ABORT_S = 5  # for aborted responses to write their last event
_INTERNAL_CONNECTIONS = 256


class WorkerGroup(Protocol):
    """The connection of one worker process to the others.

    Attributes:
        sockets: the worker's listening sockets.
        internal_sockets: the sockets of the internal port; none without one.
        poll_s: seconds between its health checks of Triton.
        counts: shared counts of endpoints.
        buckets: shared buckets of the callers' limits.
        token_cache: shared cache of token ids; None without one.
        mirror_socket: path of the mirror process's socket; None without mirrors.
        replaces: whether this worker replaces one that died; connections then wait until it is ready.
    """

    sockets: Sequence[socket.socket]
    internal_sockets: Sequence[socket.socket]
    poll_s: float
    counts: SharedCounts
    buckets: SharedBuckets
    token_cache: TokenCache | None
    mirror_socket: Path | None
    replaces: bool

    def readiness(self, own: Mapping[str, EngineCondition]) -> Mapping[str, EngineCondition]:
        """The condition of each model by all workers; ``own`` is this worker's."""
        ...

    async def serving(self, registry: Registry) -> None:
        """Handle that the internal port is open; connections to the other port may still wait."""
        ...


def create_app(
    settings: Settings,
    backend_factory: BackendFactory | None = None,
    source: SettingsSource | None = None,
    share: WorkerGroup | None = None,
) -> FastAPI:
    """Build the application. Its lifespan starts the models and closes them.

    Args:
        settings: the gateway's settings.
        backend_factory: makes the engine of a model; None for Triton's.
        source: source of the settings: models follow its changes and SIGHUP; None keeps them as they are.
        share: connection to other workers; None for one process.

    Raises:
        ConfigError: by the lifespan, when a model cannot be served as configured.
    """
    metrics = Metrics()
    shares = share.counts.shares if share else None
    certificates = CertificateWatch()
    accesses = TritonAccesses(certificates)
    relayed = TritonMetrics(lambda: _metrics_urls(registry), trust=lambda: _metrics_tls(registry, accesses))
    registry = Registry(
        settings,
        backend_factory or _triton_backend(settings, share, accesses),
        metrics,
        shares,
        relayed.engine_limit,
        share.token_cache if share else own_token_cache(settings.server.memory.token_cache_bytes),
    )
    guard = Guard(settings, KeyMetrics(metrics.registry), share.buckets if share else None)
    stores = StoreHolder(settings.state, lambda store: MeteredStore(store, metrics))
    state = ApplicationState(stores, cipher_of(settings.state))
    telemetry = open_telemetry(settings.telemetry, __version__)
    runs = BackgroundRuns(settings.limits.max_background_responses, registry, settings.timeouts)
    keeper = MirrorSupervisor(source.path) if share is None and source and wants_mirror(settings) else None
    mirror_socket = keeper.socket if keeper else share.mirror_socket if share else None
    link = MirrorLink(mirror_socket) if mirror_socket else None
    registry.copies = RequestCopies(link) if link else None

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        del app
        memory = Memory(helper_pids, share.counts.rows if share else 1)
        try:
            await stores.open()
            await guard.open()
            await registry.start()
            reloader = SettingsReloader(settings, source, registry, metrics, guard, certificates) if source else None
            watched = OVERLOAD.watch(settings.server.memory, memory, metrics)
            nothing = contextlib.nullcontext()
            async with watched, certificates, reloader or nothing, keeper or nothing, link or nothing:
                yield
        finally:
            await relayed.close()
            await runs.close()
            await registry.close()
            await guard.close()
            await stores.close()
            if telemetry is not None:
                await telemetry.close()

    app = Application(
        title="Triton OpenAI gateway",
        version=__version__,
        lifespan=lifespan,
        openapi_url=None,  # FastAPI sees neither bodies nor responses, and its page needs others; see api_page_router
        redirect_slashes=False,
        telemetry=_NO_TELEMETRY,
        exception_handlers={
            **dict.fromkeys(HANDLED, handle_openai),
            HTTPException: handle_http,
        },
    )
    app.state.registry, app.state.runs, app.state.certificates = registry, runs, certificates
    app.state.shutdown_state, app.state.metrics = ShutdownState(), metrics
    _add_routes(app, settings, registry, metrics, share, state, runs, relayed)
    _add_middleware(app, settings, guard)
    app.add_middleware(AccessLogMiddleware, metrics=metrics, running=registry.running, telemetry=telemetry)
    return app


def _add_routes(
    app: FastAPI,
    settings: Settings,
    registry: Registry,
    metrics: Metrics,
    share: WorkerGroup | None,
    state: ApplicationState,
    runs: BackgroundRuns,
    relayed: TritonMetrics,
) -> None:
    show_reasons = not settings.asks_for_keys
    link = registry.copies.link if registry.copies else None

    def readiness() -> Mapping[str, EngineCondition]:
        own = registry.readiness()
        found: Mapping[str, EngineCondition] = app.state.shutdown_state.readiness(
            share.readiness(own) if share else own
        )
        return found

    def endpoints() -> dict[str, Sequence[EndpointStatus]]:
        return {model.name: model.backend.endpoints for model in registry}

    def queues() -> dict[str, ModelQueue]:
        return {model.name: model.queue() for model in registry}

    async def all_metrics() -> Page:
        others = await relayed.render()
        mirrors = await link.ask({"metrics": True}) if link else None
        if mirrors:
            others += mirrors["page"].encode()
        models = {model.name: model.now() for model in registry}
        if registry.token_cache is not None:
            metrics.token_cache.set(registry.token_cache.used)
        own, content_type = metrics.render(readiness(), models)
        return own + load_families(queues(), relayed.engines.load).encode() + others, content_type

    async def slim() -> Page:
        await relayed.fresh()
        return slim_page(readiness(), queues(), relayed.engines).encode(), CONTENT_TYPE

    operations = functools.partial(
        operations_router, readiness, all_metrics, slim, __version__,
        endpoints=endpoints, engine_dead=lambda: _engine_dead(registry),
    )  # fmt: skip
    # In the application's own table, and before all else: an included router is a table of its own, looked at twice.
    app.router.routes[:0] = [
        *chat_router(registry, settings.timeouts, metrics).routes,
        *completions_router(registry, settings.timeouts, metrics).routes,
        *responses_router(registry, settings.timeouts, metrics, state, runs).routes,
        *retrieval_router(state, runs, settings.timeouts.keepalive_s).routes,
        *conversations_router(state).routes,
        *messages_router(registry, settings.timeouts, metrics).routes,
        *tokens_router(registry, metrics).routes,
        *encoder_router(registry, metrics, EMBEDDINGS, RERANK, COHERE_RERANK, SCORE, CLASSIFY, POOLING).routes,
        *anthropic_models_router(registry).routes,
        *models_router(registry).routes,
        *operations(show_reasons=show_reasons, metrics_access=settings.server.metrics_shown).routes,
    ]
    shows_metrics = settings.server.metrics_shown != "none"
    document = functools.cache(lambda: openapi_document(keys=settings.asks_for_keys, metrics=shows_metrics))
    if settings.server.docs_shown != "none":
        app.router.routes += api_page_router(document).routes
    if settings.server.page_shown:
        app.router.routes += chat_page_router().routes
    widen(app.router.routes)
    app.state.internal = _internal_app(
        settings.server,
        operations(),
        api_page_router(document),
        *([mirror_router(registry, link)] if link else []),
    )


def _internal_app(settings: ServerSettings, *routers: APIRouter) -> FastAPI:
    """Make the application of the internal port, which serves everyone and generates nothing."""
    app = FastAPI(
        openapi_url=None, redirect_slashes=False, exception_handlers={**dict.fromkeys(HANDLED, handle_openai)}
    )
    app.router.routes += [route for router in routers for route in router.routes]
    names = names_to_check(settings.internal_host or settings.host, settings.allowed_hosts, has_keys=False)
    _check_names(app, names)
    return app


def _metrics_urls(registry: Registry) -> dict[str, str]:
    """The metrics URL of each Triton, by its gRPC endpoint."""
    urls = {}
    for model in registry:
        triton = model.settings.triton
        if triton.metrics_url is not None:
            host = {each: each.rpartition(":")[0] for each in _addresses(model)}
            urls.update({each: triton.metrics_url.replace("{host}", name) for each, name in host.items()})
    return urls


def _addresses(model: ServedModel) -> list[str]:
    url = model.settings.triton.url
    return [url] if url is not None else [each.address for each in model.backend.endpoints]


def _engine_dead(registry: Registry) -> bool:
    """Whether an engine of the Triton on this machine has failed a probe, and no model is being loaded there."""
    found = [model.backend.condition for model in registry if any(map(_is_here, _addresses(model)))]
    loading = any(each.state == "loading" for each in found)
    return not loading and any(not each.ready and each.state in ("stalled", "failing") for each in found)


def _is_here(address: str) -> bool:
    host = address.removeprefix("grpc://").rpartition(":")[0].strip("[]")
    return host in ("localhost", "::1") or host.startswith("127.")


def _metrics_tls(registry: Registry, accesses: TritonAccesses) -> dict[str, ssl.SSLContext]:
    """The TLS context for each Triton's metrics URL, by its gRPC endpoint, with the certificates of its gRPC calls."""
    trust = {}
    for model in registry:
        tls = accesses.of(model.name, model.settings.triton).tls
        if tls is not None:
            trust.update(dict.fromkeys(_addresses(model), tls.value.http))
    return trust


def _triton_backend(settings: Settings, share: WorkerGroup | None, accesses: TritonAccesses) -> BackendFactory:
    counts = share.counts if share else SharedCounts()
    alone = counts.rows == 1
    poll_s = share.poll_s if share else POLL_S

    def make(model: ModelSettings) -> Backend:
        triton = model.triton
        access = accesses.of(model.name, triton)

        def at(url: str) -> Backend:
            return TritonBackend(
                url,
                triton.model,
                model.path,
                request_timeout=settings.timeouts.total_s + 60,
                options=engine_options(model),
                transport=triton.transport,
                health=HealthChecks(
                    poll_s,
                    triton.health_failures,
                    triton.stall_s,
                    triton.probe_s,
                    counts.row,
                    None if alone else counts.health(key_of(model.name, url)),
                ),
                access=access,
            )

        return at(triton.url) if triton.url is not None else Fleet(model.name, triton, at, counts)

    return make


def _add_middleware(app: FastAPI, settings: Settings, guard: Guard) -> None:
    """Add the middleware that may reject a request, from the innermost to the outermost."""
    app.add_middleware(
        BodyLimitMiddleware,
        limit=settings.limits.max_body_bytes,
        reject=lambda message: OpenAIError(413, message, code="request_too_large").response(),
    )
    if settings.asks_for_keys:
        app.add_middleware(RateLimitMiddleware, permit=guard.permit, reject=lambda error: from_limit(error).response())
        half_open = frozenset({"/metrics"} if settings.server.metrics_shown == "key" else ())
        closed = half_open | ({"/openapi.json"} if settings.server.docs_shown == "key" else frozenset())
        page = PAGE_PATHS if settings.server.page_shown else frozenset()
        app.add_middleware(
            AuthMiddleware,
            identity=guard.identity,
            open_paths=OPEN_PATHS - closed | page,
            half_open_paths=half_open,
            reject=lambda message: OpenAIError(
                401, message, type=INVALID, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"}
            ).response(),
        )
    else:
        _log.warning(
            "no API keys are set (GATEWAY_API_KEYS): every client that can reach this gateway may use it",
            extra={"event": "no_api_keys"},
        )
    app.add_middleware(ServerErrorMiddleware, handler=handle_defect)  # inside of what adds headers to all responses
    if settings.server.cors.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.server.cors.origins,
            allow_methods=("DELETE", "GET", "HEAD", "POST"),
            allow_headers=("*",),
            allow_private_network=True,  # a page that may ask may do so wherever the gateway stands
            expose_headers=EXPOSED_HEADERS,
        )
    _check_names(app, _names(settings))
    app.add_middleware(AnthropicMiddleware)


def _names(settings: Settings) -> tuple[str, ...]:
    return names_to_check(settings.server.host, settings.server.allowed_hosts, has_keys=settings.asks_for_keys)


def _check_names(app: FastAPI, names: Sequence[str]) -> None:
    if names:
        app.add_middleware(
            AllowedHostsMiddleware,
            names=names,
            reject=lambda message: OpenAIError(403, message, code="host_not_allowed").response(),
        )


def serve(settings: Settings, source: SettingsSource | None = None, share: WorkerGroup | None = None) -> None:
    """Serve until SIGTERM or SIGINT, then let running responses end.

    Args:
        settings: the gateway's settings.
        source: source of the settings, whose changes are followed; None keeps them as they are.
        share: connection to other workers; None for one process, which opens its own socket.

    Raises:
        ConfigError: when a model cannot be served as configured.
        OSError: when the address cannot be listened on.
    """
    set_up_logging(settings.server.log_level)
    sys.setswitchinterval(_SWITCH_S)
    uvloop.run(_serve(settings, source, share))


async def _serve(settings: Settings, source: SettingsSource | None, share: WorkerGroup | None) -> None:
    outlive_hangups()  # while the application runs they reload
    app = create_app(settings, source=source, share=share)
    bounds = _bounds(settings)
    tls = None
    if settings.server.tls is not None:
        tls = ServerTls(app.state.certificates.follow(_contexts(settings.server.tls)), bounds)

    def rejected(reason: str) -> None:
        app.state.metrics.connections_rejected.labels(reason).inc()

    http = http_protocol(unread_answer, bounds, app.state.shutdown_state, rejected)
    config = _uvicorn_config(app, http, settings.server)
    began = asyncio.get_running_loop().time()
    async with app.router.lifespan_context(app):
        sockets, inner = _sockets(settings.server, share)
        few = replace(bounds, connections=_INTERNAL_CONNECTIONS)
        plain = http_protocol(unread_answer, few, app.state.shutdown_state, rejected)
        internal = InternalPort(_uvicorn_config(app.state.internal, plain, settings.server), inner)
        await internal.open()
        if share is not None:
            await share.serving(app.state.registry)
            if share.replaces:
                await app.state.registry.wait_ready(began)
        # The server handles these signals while it runs, and raises them again when it is done: then we still clean up.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        server = Server(config, _stages(app, settings.server), app.state.shutdown_state, tls, internal)
        try:
            await server.serve(list(sockets))
        finally:
            long_work.reopen_all()


def _uvicorn_config(app: FastAPI, http: Any, settings: ServerSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=http,
        ws="none",
        lifespan="off",  # the lifespan runs outside the server, so that a ConfigError is reported without a traceback
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=int(settings.shutdown_s) + _AFTER_ABORT_S,
    )


def _stages(app: FastAPI, settings: ServerSettings) -> ServerStages:
    registry: Registry = app.state.registry

    def abort() -> None:
        error = EngineError(ErrorKind.UNAVAILABLE, "The gateway is shutting down.")
        registry.abort(error)
        long_work.close_all(error)

    return ServerStages(settings.lame_duck_s, settings.shutdown_s, _spare_the_collector, abort, app.state.runs.idle)


def _contexts(settings: ServerTlsSettings) -> FileBackedValue[ssl.SSLContext]:
    try:
        return listening_contexts(settings)
    except CertificateError as error:
        raise ConfigError(f"server.tls: {error}.") from None


def unread_answer(status: int, message: str, scope: Scope) -> Response:
    """Make the response to a request that no application sees; see ``gateway.http.http_protocol.Reject``."""
    error = OpenAIError(status, message)
    if status >= 500:
        error = OpenAIError(status, message, type=SERVER, code="service_unavailable")
    request_id = new_id()
    anthropic = wants_anthropic(scope)
    answer = error_response(error, request_id) if anthropic else error.response()
    answer.headers["x-request-id"] = request_id
    if anthropic:
        answer.headers["request-id"] = request_id
    level = logging.INFO if status < 500 else logging.DEBUG  # the log has a rare warning about too many connections
    about = {"event": "request_refused_unread", "request_id": request_id, "status": status}
    _log.log(level, "rejected before it was parsed: %s", message, extra=about)
    return answer


def _bounds(settings: Settings) -> HttpLimits:
    return HttpLimits(
        head_s=settings.timeouts.request_head_s,
        body_s=settings.timeouts.request_body_s,
        body_rate=settings.limits.min_body_bytes_per_s,
        unread_s=settings.timeouts.client_read_s,
        connections=room_for(settings.limits.max_connections),
        files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )


def _sockets(
    settings: ServerSettings, share: WorkerGroup | None
) -> tuple[Sequence[socket.socket], Sequence[socket.socket]]:
    """The sockets that this process listens on: for clients, and of the internal port."""
    if share is not None:
        return share.sockets, share.internal_sockets
    return _listen(settings.host, settings.port), (
        _listen(settings.internal_host or settings.host, settings.internal_port)
        if settings.internal_port is not None
        else ()
    )


def _listen(host: str, port: int) -> list[socket.socket]:
    (sockets,) = listen(host, port, 1)
    _log.info("listening on %s port %d", host, sockets[0].getsockname()[1], extra={"event": "listening"})
    return sockets


def _spare_the_collector() -> None:
    """Keep what lives as long as the process out of garbage collection, and collect less often.

    Else each request's share of full collections, which walk over all modules, schemas and tokenizers, costs as much
    as the relaying of dozens of tokens (benchmarks/notes.md).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)
