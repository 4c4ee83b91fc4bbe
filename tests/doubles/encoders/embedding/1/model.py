"""An embedding model without weights: a text is the words that it has, and vectors of like texts are close."""

from __future__ import annotations

import re
import zlib
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

DIMENSIONS = 256


class TritonPythonModel:
    """The model; a token is a word."""

    def execute(self, requests: list[Any]) -> list[Any]:
        """Embed the texts of each request."""
        return [self._response(request) for request in requests]

    def _response(self, request: Any) -> Any:
        texts = pb_utils.get_input_tensor_by_name(request, "text").as_numpy().reshape(-1)
        vectors = np.zeros((len(texts), DIMENSIONS), np.float32)
        counts = np.zeros((len(texts), 1), np.int32)
        for row, text in enumerate(texts):
            words = re.findall(r"\w+", text.decode().lower())
            for word in words:
                vectors[row, zlib.crc32(word.encode()) % DIMENSIONS] += 1
            counts[row] = len(words)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("embedding", vectors), pb_utils.Tensor("token_count", counts)]
        )
