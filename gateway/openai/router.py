"""Routers of the API, and what the API page says of all their routes."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter
from fastapi.routing import APIRoute

# It also takes the place of the framework's own 422, which never comes.
_ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    "4XX": {
        "description": "The request is wrong.",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
}


def api_router(tag: str, route_class: type[APIRoute] = APIRoute) -> APIRouter:
    """A router whose routes answer errors as the document's schema ``Error`` says.

    Args:
        tag: the group of the API page that its routes are shown in.
        route_class: of its routes.
    """
    return APIRouter(tags=[tag], responses=_ERRORS, route_class=route_class)
