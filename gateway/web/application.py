"""The application that the gateway makes of FastAPI: its pages and routes, without what each request would pay for."""

from __future__ import annotations

from collections.abc import Awaitable

from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.web.routing import DirectRoute


class Application(FastAPI):
    """FastAPI without the layers for uploaded files, a bound on bodies and telemetry, all of which the gateway has.

    What fails outside of the middlewares is answered by the server, in the same words as by Starlette.
    """

    def build_middleware_stack(self) -> ASGIApp:
        """The middlewares that were added, around the handlers of exceptions, around the routes."""
        app: ASGIApp = KnownPaths(self)
        app = ExceptionMiddleware(app, handlers=self.exception_handlers)
        for cls, args, kwargs in reversed(self.user_middleware):
            app = cls(app, *args, **kwargs)
        return app


class KnownPaths:
    """Finds the routes whose path is always the same by a look into a table; all others by the application's router."""

    def __init__(self, owner: FastAPI) -> None:
        """Stand before the router of an application, to which no route is added after the first request."""
        self._router = owner.router
        self._others = AsyncExitStackMiddleware(owner.router)  # FastAPI's own routes close there what they opened
        self._routes: dict[tuple[str, str], DirectRoute] | None = None

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one connection."""
        if self._routes is None:
            self._routes = self._table()
        route = self._routes.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if route is None or scope.get("root_path"):
            return self._others(scope, receive, send)
        scope["route"], scope["endpoint"], scope["path_params"] = route, route.endpoint, {}
        return route.app(scope, receive, send)

    def _table(self) -> dict[tuple[str, str], DirectRoute]:
        found: dict[tuple[str, str], DirectRoute] = {}
        for route in self._router.routes:
            if isinstance(route, DirectRoute) and "{" not in route.path:
                for method in route.methods or ():
                    scope = {"type": "http", "method": method, "path": route.path}
                    first = next((each for each in self._router.routes if each.matches(scope)[0] is Match.FULL), None)
                    if first is route:  # no other route takes the path before it
                        found[method, route.path] = route
        return found
