"""The model ``postprocessing`` of the doubles: each response's ids are decoded alone (wire contract 1.5 and 3.2)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from tokenizers import Tokenizer

_FALSE = ("false", "0", "f", "n", "no")
# Up to 0.13 these went through here, and what the engine had not made came out as zeros.
_PASSED_ON = {
    "OUT_CUM_LOG_PROBS": np.zeros((1, 1), np.float32),
    "OUT_OUTPUT_LOG_PROBS": np.zeros((1, 1, 1), np.float32),
    "OUT_CONTEXT_LOGITS": np.zeros((1, 1, 1), np.float32),
    "OUT_GENERATION_LOGITS": np.zeros((1, 1, 1, 1), np.float32),
    "OUT_BATCH_INDEX": np.zeros((1, 1), np.int32),
}


class TritonPythonModel:
    """Stateless."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the tokenizer that the parameter names."""
        config = json.loads(args["model_config"])
        parameters = {name: value["string_value"] for name, value in config["parameters"].items()}
        self._tokenizer = Tokenizer.from_file(str(Path(parameters["tokenizer_dir"]) / "tokenizer.json"))
        self._skip = parameters.get("skip_special_tokens", "").lower() not in _FALSE
        declared = {output["name"] for output in config["output"]}
        self._passed_on = {name: zeros for name, zeros in _PASSED_ON.items() if name in declared}

    def execute(self, requests: list[Any]) -> list[Any]:
        """Decode each request; OUTPUT has one string for each beam, and no batch dimension."""
        return [pb_utils.InferenceResponse(self._decode(request)) for request in requests]

    def _decode(self, request: Any) -> list[Any]:
        inputs = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        rows = zip(inputs["TOKENS_BATCH"][0].tolist(), inputs["SEQUENCE_LENGTH"].reshape(-1).tolist(), strict=True)
        texts = [self._tokenizer.decode(ids[:length], skip_special_tokens=self._skip) for ids, length in rows]
        outputs = {"OUTPUT": np.array([text.encode() for text in texts], np.object_)}
        for name, zeros in self._passed_on.items():
            outputs[name] = inputs.get(name.removeprefix("OUT_"), zeros)
        return [pb_utils.Tensor(name, value) for name, value in outputs.items()]
