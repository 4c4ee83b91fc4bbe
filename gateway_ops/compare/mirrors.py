"""Reads a gateway's report on the mirror of a model."""

from __future__ import annotations

import urllib.parse
from typing import Any

from gateway_ops.bench.load import open_session
from gateway_ops.compare.targets import TargetAddress, TargetError, get_json

_PARTS = frozenset({"a", "b", "facts", "warnings", "requests", "differs_in", "delays", "rows", "mirror"})


async def read_report(address: TargetAddress, timeout_s: float) -> dict[str, Any]:
    """Read a report from the internal port of a gateway.

    Args:
        address: address of that port, and the model whose requests are copied.
        timeout_s: seconds for the answer.

    Raises:
        TargetError: the gateway has no report.
    """
    query = "" if address.model is None else "?" + urllib.parse.urlencode({"model": address.model})
    async with open_session(None) as session:
        found = await get_json(session, f"{address.base}/mirror{query}", timeout_s)
    if found is None or not found.keys() >= _PARTS:
        named = f" of {address.model!r}" if address.model else ""
        raise TargetError(
            f"{address.shown} has no mirror report{named}: is it the internal port (server.internal_port) of a "
            "gateway whose model has a mirror, and a few seconds old? Where several have one, name the model: "
            "URL#model"
        )
    for side in ("a", "b"):
        found[side]["url"] = address.shown
    return found
