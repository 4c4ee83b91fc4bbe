"""A FastAPI application and routes with less work for each request, and the aliases of paths."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from fastapi.routing import APIRoute
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

HEADERS = "gateway.headers"
"""The key of an ASGI scope under which ``headers_of`` keeps what it made, for a dozen readers."""
BEGUN = "gateway.begun"
"""The key that a scope has once the head of its response was sent."""
CLIENT_PATH = "gateway.client_path"
"""The key under which a scope has the client's path if that is one of Azure's."""
_AZURE = re.compile(
    r"(?s)/openai(?:/v1|/deployments/(.+?)(?=/(?:audio|chat/completions|completions|embeddings|images|responses)(?:/|$)))?"
    r"(/.+)"
)
_PARTS = re.compile(r"((?:/v1)?)([^{]*)(.*)")


class DirectRoute(APIRoute):
    """A route without FastAPI's dependency injection and conversions, for ``APIRouter(route_class=...)``.

    The endpoint takes only the request and returns a response. The application's handlers turn its exceptions into
    responses. The OpenAPI document lists the route as usual.
    """

    def __init__(self, path: str, endpoint: Callable[[Request], Awaitable[Response]], **options: Any) -> None:
        """Make a route; arguments as of the base, whose analysis of the endpoint's parameters is skipped."""
        own = {name: options[name] for name in ("methods", "name", "include_in_schema")}
        Route.__init__(self, path, endpoint, **own)
        self.methods = set(options["methods"])

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            request = Request(scope, receive, send)
            try:
                response = await endpoint(request)
                await response(scope, receive, send)
            except _answered(scope) as error:
                if BEGUN in scope:
                    raise
                await _answer(request, error, send)

        self.app = app


def _answered(scope: Scope) -> tuple[type[Exception], ...]:
    """The exceptions for which the application has handlers."""
    return tuple(kind for kind in scope["app"].exception_handlers if isinstance(kind, type))


async def _answer(request: Request, error: Exception, send: Send) -> None:
    """Respond by the application's handler; no frame of the exception's traceback then holds the response."""
    handlers = request.app.exception_handlers
    handle = next(handlers[kind] for kind in type(error).__mro__ if kind in handlers)
    response = await handle(request, error)
    await response(request.scope, request.receive, send)


def headers_of(scope: MutableMapping[str, Any]) -> dict[bytes, bytes]:
    """Map the headers of a request by their names in lower case, the first of each; not to be changed.

    Code that runs for each request reads the scope itself first.
    """
    headers: dict[bytes, bytes] | None = scope.get(HEADERS)
    if headers is None:
        headers = scope[HEADERS] = dict(reversed(scope.get("headers", ())))
    return headers


def header(scope: Scope, name: bytes) -> bytes:
    """Return the first header of a request with a name in lower case; empty without one."""
    headers: dict[bytes, bytes] = scope.get(HEADERS) or headers_of(scope)
    return headers.get(name, b"")


def widen(routes: Iterable[BaseRoute]) -> None:
    """Make routes accept HEAD where they accept GET, a slash behind their path, and line ends in parameters only.

    There is no redirect: many clients lose the body of a POST, or their key, by one. The server leaves out the body of
    a response to HEAD.
    """
    for route in routes:
        if isinstance(route, Route):
            if route.methods and "GET" in route.methods:
                route.methods.add("HEAD")
            # A path parameter takes the slash by itself; links of pages are relative. `$` would take a line end too.
            end = r"/?\Z" if ":path}" not in route.path and route.include_in_schema else r"\Z"
            route.path_regex = re.compile(route.path_regex.pattern.removesuffix("$") + end, re.DOTALL)


def allowed(scope: Scope, routes: Iterable[BaseRoute]) -> str:
    """Make the header ``Allow`` for a path whose routes do not accept the method."""
    own: str | None = None
    methods: set[str] = set()
    for route in routes:
        if isinstance(route, Route) and route.path == (own or route.path) and route.matches(scope)[0] != Match.NONE:
            own = route.path
            methods |= route.methods or set()
    return ", ".join(sorted(methods))


def meant(path: str, routes: Iterable[BaseRoute]) -> str | None:
    """Find the served path that a client with a wrong base URL means; None without one.

    A base URL may lack ``/v1``, have it twice, have an end point or a slash too many, or a folder before it.

    Args:
        path: an unserved path.
        routes: the served routes.
    """
    path = re.sub("//+", "/", path).rstrip("/")
    found, suggested = "", None
    for route in routes:
        if isinstance(route, Route) and route.include_in_schema:
            base, stem, parameter = _PARTS.findall(route.path)[0]
            end = re.search(re.escape(stem) + (".+" if parameter else r"\Z"), path)
            if end and len(stem) > len(found):
                found, suggested = stem, base + end[0]
    return suggested


class Application(FastAPI):
    """FastAPI without its layers for uploads, bounds of bodies and telemetry, which the gateway has itself.

    Failures outside of the middleware are handled by the server, in Starlette's words.
    """

    def build_middleware_stack(self) -> ASGIApp:
        """Build the added middleware around the routes."""
        app: ASGIApp = KnownPaths(self)
        for cls, args, kwargs in reversed(self.user_middleware):
            app = cls(app, *args, **kwargs)
        return app


def client_path(scope: Scope) -> str:
    """Return the path that the client sent."""
    return str(scope.get(CLIENT_PATH) or scope["path"])


def _without_azure(scope: Scope) -> None:
    """Replace an Azure path of a scope by OpenAI's; the model of the path is the ``deployment`` in its state.

    The forms are ``/openai/deployments/{model}/chat/completions``, ``/openai/v1/...`` and ``/openai/...``.
    """
    if found := _AZURE.fullmatch(scope["path"]):
        scope[CLIENT_PATH], scope["path"] = scope["path"], f"/v1{found[2]}"
        if found[1]:
            scope.setdefault("state", {})["deployment"] = found[1]


class KnownPaths:
    """Finds routes with a constant path in a table, and all others by the application's router."""

    def __init__(self, owner: FastAPI) -> None:
        """Stand before the router of an application, to which no route is added after the first request."""
        self._router = owner.router
        # FastAPI's own routes have their exceptions handled there, and close what they opened.
        self._others = ExceptionMiddleware(AsyncExitStackMiddleware(owner.router), handlers=owner.exception_handlers)
        self._routes: dict[tuple[str, str], DirectRoute] | None = None

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one connection."""
        if self._routes is None:
            self._routes = self._table()
        if scope["type"] == "http" and scope["path"].startswith("/openai/"):
            _without_azure(scope)
        route = self._routes.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if route is None or scope.get("root_path"):
            return self._others(scope, receive, send)
        scope["route"], scope["endpoint"], scope["path_params"] = route, route.endpoint, {}
        return route.app(scope, receive, send)

    def _table(self) -> dict[tuple[str, str], DirectRoute]:
        found: dict[tuple[str, str], DirectRoute] = {}
        routes = [each for each in self._router.routes if isinstance(each, Route)]
        for route in routes:
            if isinstance(route, DirectRoute) and "{" not in route.path:
                alike = [each for each in routes if route.path.startswith(each.path.partition("{")[0])]
                for method in route.methods or ():
                    scope = {"type": "http", "method": method, "path": route.path}
                    first = next((each for each in alike if each.matches(scope)[0] is Match.FULL), None)
                    if first is route:  # no other route takes the path before it
                        found[method, route.path] = route
        return found
