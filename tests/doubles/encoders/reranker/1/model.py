"""A cross-encoder without weights: its logit grows with the words of the query that a document has."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """The model; it does not count tokens."""

    def execute(self, requests: list[Any]) -> list[Any]:
        """Score the pairs of each request."""
        return [self._response(request) for request in requests]

    def _response(self, request: Any) -> Any:
        pairs = pb_utils.get_input_tensor_by_name(request, "INPUT_PAIRS").as_numpy().reshape(-1, 2)
        words = [[set(re.findall(r"\w+", text.decode().lower())) for text in pair] for pair in pairs]
        shares = [[len(query & document) / len(query)] for query, document in words]
        logits = 8 * np.array(shares, np.float32) - 4
        return pb_utils.InferenceResponse([pb_utils.Tensor("SCORES", logits)])
