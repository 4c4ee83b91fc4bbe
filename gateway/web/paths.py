"""Paths as clients write them: a HEAD request, a slash at the end, and a base URL that is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable

from starlette.routing import BaseRoute, Route

_PARTS = re.compile(r"((?:/v1)?)([^{]*)(.*)")


def widen(routes: Iterable[BaseRoute]) -> None:
    """Have routes take HEAD where they take GET, and one slash behind their path.

    No redirect: one loses the body of a POST, or its key, with many clients. The server leaves out the body of an
    answer to HEAD.
    """
    for route in routes:
        if isinstance(route, Route):
            if route.methods and "GET" in route.methods:
                route.methods.add("HEAD")
            if "{" not in route.path and route.include_in_schema:  # a parameter takes it; links of pages are relative
                route.path_regex = re.compile(route.path_regex.pattern.removesuffix("$") + "/?$")


def meant(path: str, routes: Iterable[BaseRoute]) -> str | None:
    """The served path that a client with a wrong base URL meant by ``path``; None where there is none.

    A base URL may lack ``/v1``, have it twice, have an end point or a slash too many, or a folder before it.

    Args:
        path: that is not served.
        routes: that are.
    """
    path = re.sub("//+", "/", path).rstrip("/")
    found, suggested = "", None
    for route in routes:
        if isinstance(route, Route) and route.include_in_schema:
            base, stem, parameter = _PARTS.findall(route.path)[0]
            end = re.search(re.escape(stem) + (".+" if parameter else "$"), path)
            if end and len(stem) > len(found):
                found, suggested = stem, base + end[0]
    return suggested
