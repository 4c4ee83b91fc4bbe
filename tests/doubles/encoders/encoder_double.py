"""A double of an encoder: its configuration says what it takes and returns, and its parameter ``does`` the rest.

``does`` is JSON: ``from`` names the input with the texts (``query`` and ``passage``: two, with a comma), ``to`` the
output; ``kind`` is ``vectors``, ``flat``, ``hidden`` (a vector for each token), ``sorted`` (scores with ``index``) or
``json``. Outputs of integers count words, but ``DIM``, which has the length of a vector.
A text with ``!nan``, ``!inf`` or ``!zeros`` has such a vector, one with ``!row`` has one too few, one with ``!fail``
fails its request, and one with ``!wait`` waits until all go on; see `EncoderServer.set`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.doubles.encoders.numbers import LONGEST, pair_of, token, tokens_of, vector

TYPES: dict[str, Any] = {
    "TYPE_STRING": np.object_, "TYPE_BOOL": np.bool_, "TYPE_INT32": np.int32, "TYPE_INT64": np.int64,
    "TYPE_UINT32": np.uint32, "TYPE_FP16": np.float16, "TYPE_FP32": np.float32,
}  # fmt: skip
"""By the name in a configuration."""

_WRONG = {"!nan": np.nan, "!inf": np.inf, "!zeros": 0.0}
_PADDING = 1e4  # what a hidden state at the place of no token holds


class EncoderDouble:
    """One encoder, whatever serves it.

    Args:
        name: of its model.
        config: its configuration, as Triton's Python backend has it.
        journal: the file that has a line of JSON for each request.
        mode: the file that says how all encoders are; see `EncoderServer.set`.
    """

    def __init__(self, name: str, config: dict[str, Any], journal: Path, mode: Path) -> None:
        self._name = name
        self._does = json.loads(config["parameters"]["does"]["string_value"])
        self._batched = config.get("max_batch_size", 0) > 0
        self._types = {each["name"]: TYPES[each["data_type"]] for each in config["output"]}
        self._journal, self._mode_file = journal, mode

    def answer(
        self, request_id: str, tensors: dict[str, Any], parameters: dict[str, Any], is_cancelled: Callable[[], bool]
    ) -> dict[str, Any]:
        """The outputs of one request by name; raises ``ValueError`` where it fails."""
        shown = {name: [list(array.shape), _plain(array)] for name, array in tensors.items()}
        self._note(request_id, inputs=shown, parameters=parameters)
        names, mode = self._names(tensors, parameters), self._mode()
        if mode == "failing" or any("!fail" in name for name in names):
            raise ValueError("no vector for /secret/path")
        while mode == "silent" or (mode == "well" and any("!wait" in name for name in names)):
            if is_cancelled():
                self._note(request_id, cancelled=True)
                raise ValueError("cancelled")
            time.sleep(0.01)
            mode = self._mode()
        width = parameters.get("dimensions", self._does.get("width", 4))
        rows = np.array([_row(name, width) for name in names])
        rows = rows + np.random.default_rng().uniform(-1, 1, rows.shape) * parameters.get("noise", 0)
        if any("!row" in name for name in names):
            rows = rows[:-1]
        counts = [len(name.split()) for name in names]
        made = getattr(self, f"_{self._does['kind']}")(rows, names, tensors)
        for name, kind in self._types.items():
            if name not in made and np.issubdtype(kind, np.integer):
                made[name] = np.array([width] if name == "DIM" else counts)
        shaped = {name: array.astype(self._types[name]) for name, array in made.items()}
        return {name: array[:, None] if self._batched and array.ndim == 1 else array for name, array in shaped.items()}

    def _vectors(self, rows: Any, _names: list[str], _tensors: dict[str, Any]) -> dict[str, Any]:
        return {self._does["to"]: rows}

    def _flat(self, rows: Any, _names: list[str], _tensors: dict[str, Any]) -> dict[str, Any]:
        return {self._does["to"]: rows.reshape(-1)}

    def _json(self, _rows: Any, names: list[str], tensors: dict[str, Any]) -> dict[str, Any]:
        asked = json.loads(tensors["embedding_request"].reshape(-1)[0])
        width = asked["pooling_params"].get("dimensions", [4])[0]
        if width > 4:
            raise ValueError('Model "v" only supports [2, 4] matryoshka dimensions, use other output dimensions ...')
        made = {self._does["to"]: np.array([json.dumps(_row(names[0], width))], object)}
        if "return_num_input_tokens" in tensors:
            made["num_input_tokens"] = np.array(len(names[0].split()))
        return made

    def _sorted(self, rows: Any, names: list[str], _tensors: dict[str, Any]) -> dict[str, Any]:
        order = np.argsort(-rows[:, 0], kind="stable")
        counts = np.array([len(name.split()) for name in names])
        return {self._does["to"]: rows[order, 0], "index": order, "token_count": counts[order]}

    def _hidden(self, rows: Any, _names: list[str], tensors: dict[str, Any]) -> dict[str, Any]:
        ids, mask, kinds = _ids(tensors)
        made = np.full((*ids.shape, self._does.get("width", 4)), _PADDING)
        for place in zip(*np.nonzero(mask), strict=True):
            made[place] = vector(token(ids[place], kinds[place]), made.shape[-1])
        pooled = {self._does["pooled"]: rows} if "pooled" in self._does else {}
        return {self._does["to"]: made, **pooled}

    def _names(self, tensors: dict[str, Any], parameters: dict[str, Any]) -> list[str]:
        """The texts of the request, or what stands for those that came as token ids, as the model reads them."""
        if "input_ids" in tensors:
            ids, mask, kinds = _ids(tensors)
            if "position_ids" in tensors and not (tensors["position_ids"] == np.arange(ids.shape[1]))[mask].all():
                raise ValueError("positions that do not count from 0")
            return [
                tokens_of(row[on].tolist(), kind[on].tolist()) for row, kind, on in zip(ids, kinds, mask, strict=True)
            ]
        taken = [_plain(tensors[name].reshape(tensors[name].shape[0], -1)) for name in self._does["from"].split(",")]
        if self._does["kind"] == "json":
            return [json.loads(taken[0][0][0])["input"]]
        columns = [[pair_of(row) for row in rows] for rows in taken]
        if len(columns) == 2:
            columns[0] = columns[0] * (len(columns[1]) if len(columns[0]) == 1 else 1)
        return [self._cut(pair_of(row), parameters.get("truncate", "")) for row in zip(*columns, strict=True)]

    def _cut(self, text: str, truncate: str) -> str:
        words = text.split()
        if not truncate or len(words) <= LONGEST:
            return text
        if truncate == "NONE":
            raise ValueError(f"Input length {len(words)} exceeds maximum allowed token size {LONGEST}")
        return " ".join(words[:LONGEST] if truncate == "END" else words[-LONGEST:])

    def _note(self, request_id: str, **facts: Any) -> None:
        line = json.dumps({"id": request_id, "model": self._name, **facts})
        with self._journal.open("a", encoding="utf-8") as journal:
            journal.write(line + "\n")

    def _mode(self) -> str:
        try:
            return self._mode_file.read_text(encoding="utf-8") or "well"
        except OSError:
            return "well"


def _ids(tensors: dict[str, Any]) -> tuple[Any, Any, Any]:
    ids = np.atleast_2d(tensors["input_ids"])
    mask = np.atleast_2d(tensors.get("attention_mask", np.ones_like(ids))) != 0
    return ids, mask, np.atleast_2d(tensors.get("token_type_ids", np.zeros_like(ids)))


def _row(name: str, width: int) -> list[float]:
    wrong = next((value for word, value in _WRONG.items() if word in name), None)
    return vector(name, width) if wrong is None else [wrong] * width


def _plain(array: Any) -> Any:
    if array.dtype == np.object_:
        return np.array([each.decode() for each in array.reshape(-1)], object).reshape(array.shape).tolist()
    return array.tolist()
