"""Health check of the containers: exit status 0 when every URL responds with 200, else 1. Needs no shell and no curl.

Arguments are URLs; braces stand for several: http://127.0.0.1:8000/v2/models/{ensemble,tensorrt_llm}/ready
"""

# ruff: noqa: INP001 - a program of the images, not part of the package; its output is the container's log
from __future__ import annotations

import http.client
import re
import sys
import urllib.parse

_TIMEOUT_S = 4.0  # below the check's own, so that a hung server is named as such


def problem(url: str) -> str | None:
    """What is wrong with one URL; None when it answers 200."""
    parts = urllib.parse.urlsplit(url)
    # Not urllib.request: it would go through a proxy that the environment names.
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", parts.path)
        answer = connection.getresponse()
        body = answer.read(300).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return f"{url}: {error or type(error).__name__}"
    finally:
        connection.close()
    return None if answer.status == 200 else f"{url}: {answer.status} {body}"


def expand(pattern: str) -> list[str]:
    """The URLs of a pattern such as ``http://host/{a,b}/ready``."""
    match = re.search(r"\{([^}]*)\}", pattern)
    if match is None:
        return [pattern]
    return [pattern[: match.start()] + name + pattern[match.end() :] for name in match[1].split(",")]


if __name__ == "__main__":
    # The first that fails is enough: a hung server must be named before Docker ends the check.
    every = (url for argument in sys.argv[1:] for url in expand(argument))
    if first := next((found for url in every if (found := problem(url))), None):
        sys.exit(first)
