"""Stands for an engine that fails in the middle of an answer: two tokens, then what the prompt's length says."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

ERROR_THEN_FINAL, FINAL_ALONE, SILENCE = 1, 2, 3


class TritonPythonModel:
    """Answers at once; the streams of prompts of three tokens are never ended."""

    def execute(self, requests: list[Any]) -> None:
        """Send two tokens each and fail."""
        for request in requests:
            if pb_utils.get_input_tensor_by_name(request, "stop") is not None:
                request.get_response_sender().send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                continue
            sender = request.get_response_sender()
            for token in (70, 71):
                ids = pb_utils.Tensor("output_ids", np.array([[[token]]], dtype=np.int32))
                length = pb_utils.Tensor("sequence_length", np.array([[1]], dtype=np.int32))
                sender.send(pb_utils.InferenceResponse([ids, length]))
            length = int(pb_utils.get_input_tensor_by_name(request, "input_lengths").as_numpy().item())
            if length == ERROR_THEN_FINAL:
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("the engine is broken")))
            if length != SILENCE:
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
