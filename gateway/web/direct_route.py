"""Routes whose endpoints take the request and give the response, with nothing of FastAPI's in between."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response


class DirectRoute(APIRoute):
    """For ``APIRouter(route_class=...)``: the API page shows it as any other, but nothing is injected or converted.

    The endpoint's only parameter is the request, and it returns a response.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The endpoint itself."""
        handler: Callable[[Request], Coroutine[Any, Any, Response]] = self.endpoint
        return handler
