"""Requests to the stock LLM API model by plain gRPC: every tensor is a vector."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.doubles.llmapi.versions import PREFIX, VERSIONS
from tests.integration.kserve import Answer, Kserve, answers, infer_request

_DTYPES = {bool: np.bool_, int: np.int32, float: np.float32, str: np.object_}
_DECLARED = {name: kind for version in VERSIONS.values() for name, kind, _ in version.inputs()}


def llmapi_request(model: str, text: Any = "hi", request_id: str | None = None, **inputs: Any) -> Any:
    """A request for an answer without its prompt, unless ``exclude_input_from_output`` says otherwise.

    Args:
        model: its name.
        text: the prompt, a list of them, or an array of any shape.
        request_id: a fresh one by default.
        inputs: by their names, sampling parameters without the prefix where that leaves one meaning.
    """
    tensors = {"text_input": text, PREFIX + "exclude_input_from_output": True}
    for name, value in inputs.items():
        tensors[name if name in _DECLARED or PREFIX + name not in _DECLARED else PREFIX + name] = value
    return infer_request(model, request_id, **{name: _vector(name, value) for name, value in tensors.items()})


def ask(client: Kserve, model: str, text: Any = "hi", **inputs: Any) -> list[Answer]:
    """All responses to such a request, by the stream call."""
    return list(answers(client.call(llmapi_request(model, text, **inputs), timeout=20)))


def _vector(name: str, value: Any) -> NDArray[Any]:
    if isinstance(value, np.ndarray):
        return value
    values = value if isinstance(value, list) else [value]
    if isinstance(values[0], str):
        values = [text.encode() for text in values]
        return np.array(values, dtype=np.object_)
    return np.array(values, dtype=np.uint64 if _DECLARED.get(name) == "UINT64" else _DTYPES[type(values[0])])
