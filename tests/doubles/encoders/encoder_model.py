"""A double of an encoder: its configuration says what it takes and returns, and its parameter ``does`` the rest.

``does`` is JSON: ``from`` names the input with the texts (``query`` and ``passage``: two, with a comma), ``to`` the
output; ``kind`` is ``vectors``, ``flat``, ``hidden`` (a vector for each token), ``sorted`` (scores with ``index``) or
``json``. Outputs of integers count words, but ``DIM``, which has the length of a vector.
A text with ``!nan``, ``!inf`` or ``!zeros`` has such a vector, one with ``!row`` has one too few, one with ``!fail``
fails its request, and one with ``!wait`` waits until all go on; see `EncoderServer.set`.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from tests.doubles.encoders.numbers import LONGEST, pair_of, token, tokens_of, vector

_WRONG = {"!nan": np.nan, "!inf": np.inf, "!zeros": 0.0}
_PADDING = 1e4  # what a hidden state at the place of no token holds


class TritonPythonModel:
    """One encoder."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the configuration."""
        config = json.loads(args["model_config"])
        self._name = args["model_name"]
        self._does = json.loads(config["parameters"]["does"]["string_value"])
        self._batched = config["max_batch_size"] > 0
        self._decoupled = config["model_transaction_policy"]["decoupled"]
        self._types = {each["name"]: pb_utils.triton_string_to_numpy(each["data_type"]) for each in config["output"]}
        self._journal = Path(os.environ["JOURNAL"])

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse] | None:
        """Answer each."""
        answers = [self._answer(request) for request in requests]
        if not self._decoupled:
            return answers
        for request, answer in zip(requests, answers, strict=True):
            sender = request.get_response_sender()
            sender.send(answer)
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None

    def _answer(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        parameters = json.loads(request.parameters() or "{}")
        shown = {name: [list(array.shape), _plain(array)] for name, array in tensors.items()}
        self._note(request, inputs=shown, parameters=parameters)
        try:
            outputs = self._outputs(request, tensors, parameters)
        except ValueError as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in outputs.items()])

    def _outputs(self, request: Any, tensors: dict[str, Any], parameters: dict[str, Any]) -> dict[str, Any]:
        names, mode = self._names(tensors, parameters), _mode()
        if mode == "failing" or any("!fail" in name for name in names):
            raise ValueError("no vector for /secret/path")
        while mode == "silent" or (mode == "well" and any("!wait" in name for name in names)):
            if request.is_cancelled():
                self._note(request, cancelled=True)
                raise ValueError("cancelled")
            time.sleep(0.01)
            mode = _mode()
        width = parameters.get("dimensions", self._does.get("width", 4))
        rows = np.array([_row(name, width) for name in names])
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

    def _note(self, request: pb_utils.InferenceRequest, **facts: Any) -> None:
        line = json.dumps({"id": request.request_id(), "model": self._name, **facts})
        with self._journal.open("a", encoding="utf-8") as journal:
            journal.write(line + "\n")


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


def _mode() -> str:
    try:
        return Path(os.environ["MODE"]).read_text(encoding="utf-8") or "well"
    except OSError:
        return "well"
