"""Reads the OpenAPI document, which ``tools/openapi`` makes from the routes, and removes what settings turn off."""

from __future__ import annotations

from pathlib import Path

import orjson

FILE = Path(__file__).parent / "docs" / "openapi.json"
"""The document of a gateway that asks for keys and shows its metrics."""


def openapi_document(*, keys: bool, metrics: bool) -> bytes:
    """Read the document.

    Args:
        keys: whether the gateway asks for keys.
        metrics: whether its port shows metrics.

    Returns:
        The document as JSON.
    """
    document = orjson.loads(FILE.read_bytes())
    paths = document["paths"]
    if not metrics:
        del paths["/metrics"]
    if not keys:
        del document["components"]["securitySchemes"]
        for method, operation in (each for operations in paths.values() for each in operations.items()):
            operation.pop("security", None)
            operation["responses"].pop("401", None)
            if method == "post" and "requestBody" not in operation:  # it uses no engine: only limits of keys reject it
                del operation["responses"]["429"]
    return orjson.dumps(document)
