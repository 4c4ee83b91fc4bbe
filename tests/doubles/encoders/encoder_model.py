"""An `EncoderDouble` in Triton's Python backend."""

from __future__ import annotations

import json
import os
from pathlib import Path

import triton_python_backend_utils as pb_utils

from tests.doubles.encoders.encoder_double import EncoderDouble


class TritonPythonModel:
    """One encoder."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the configuration."""
        config = json.loads(args["model_config"])
        self._decoupled = config["model_transaction_policy"]["decoupled"]
        self._double = EncoderDouble(args["model_name"], config, Path(os.environ["JOURNAL"]), Path(os.environ["MODE"]))

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
        try:
            outputs = self._double.answer(request.request_id(), tensors, parameters, request.is_cancelled)
        except ValueError as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in outputs.items()])
