"""Requests by the tensors that the engine model gets."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from wire.inputs import parse
from wire.request import Request

_LEAST: dict[str, Any] = {"input_ids": np.array([[5, 6, 7]], np.int32), "input_lengths": 3, "request_output_len": 9}


def read(takes: Collection[str] = (), *, switches: dict[str, Any] | None = None, **given: Any) -> Request:
    """Read a request for 9 tokens after 3, with further tensors: None leaves one out, a number has the shape [1, 1].

    Args:
        takes: the additions that the engine takes.
        switches: further arguments of `parse`.
        given: the tensors.
    """
    inputs: dict[str, Any] = {
        name: np.array([[value]]) if np.isscalar(value) else value
        for name, value in (_LEAST | given).items()
        if value is not None
    }
    more: dict[str, Any] = {"exclude_input": False, **(switches or {})}
    return parse(inputs, request_id="r", takes=frozenset(takes), **more)
