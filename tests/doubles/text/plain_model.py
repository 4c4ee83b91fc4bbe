"""Plain text models as sites write them: text in, text out, decoupled or not, with and without parameters.

A model has no tokens of its own: its limit, counts and responses are of UTF-8 bytes, so that a response may end within
a character. A prompt that no turn matches is echoed; a turn with ``silent`` has no output.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from tests.scripted_engine.text_model import FINAL, TextModel, error, read_inputs
from tests.scripted_engine.turns import Answer, ScriptedError, play


class TritonPythonModel(TextModel):
    """One model; its configuration says what it takes and answers."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the configuration."""
        config = json.loads(args["model_config"])
        self._decoupled = config["model_transaction_policy"]["decoupled"]
        self._batched = config["max_batch_size"] > 0
        self._outputs = {each["name"] for each in config["output"]}
        self.open(args["model_name"], Path(os.environ["MODEL_DIR"]), goes_on=False)

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> Any:
        """Answer: immediately where it is not decoupled, else in threads."""
        if self._decoupled:
            return super().execute(requests)
        return [self._whole(request) for request in requests]

    def _asked(self, request: pb_utils.InferenceRequest, key: str) -> tuple[Answer, int]:
        """What is said, and the bytes of the prompt."""
        inputs = read_inputs(request)
        prompt = inputs["text_input"]
        self.note(key, id=request.request_id(), model=self.name, prompt=prompt, inputs=inputs)
        turn = self.script.turn(self.script.encode(prompt)) or {"text": prompt, "chunk": [1]}
        if "fails" in turn:
            raise ScriptedError(turn["fails"])
        said = b"" if turn.get("silent") else turn.get("text", "").encode()
        most = inputs.get("max_tokens", len(said) + 1)
        ends = None if turn.get("hold") else "stop"
        return Answer(turn, list(said[:most]), ends if most > len(said) else "length"), len(prompt.encode())

    def _whole(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        try:
            answer, prompt = self._asked(request, next(self.keys))
        except ScriptedError as problem:
            return error(str(problem))
        tensors = self._tensors(answer, answer.ids, str(answer.finish), prompt)
        return pb_utils.InferenceResponse([] if answer.turn.get("silent") else tensors)

    def answer(self, request: pb_utils.InferenceRequest, key: str) -> None:
        """See `TextModel`."""
        sender, made = request.get_response_sender(), 0
        try:
            answer, prompt = self._asked(request, key)
            for step in play(answer, answer.ids, self.until_replaced(sender.is_cancelled)):
                made += len(step.ids)
                if step.ids:
                    tensors = self._tensors(answer, step.ids, step.finish or "", prompt)  # kept until they are sent
                    sender.send(pb_utils.InferenceResponse(tensors))
                elif step.finish == "cancelled":
                    self.note(key, ended="cancelled", tokens=made)
            sender.send(flags=FINAL)  # its end is a response of its own, without data
        except ScriptedError as problem:
            sender.send(error(str(problem)), FINAL)

    def _tensors(self, answer: Answer, said: list[int], finish: str, prompt: int) -> list[Any]:
        found: dict[str, Any] = {
            "text_output": bytes(said),
            "finish_reason": finish,
            "num_output_tokens": len(said),
            "num_input_tokens": prompt,
        }
        found = {name: value for name, value in (found | answer.turn.get("spoil", {})).items() if name in self._outputs}
        arrays = {
            name: np.array(
                [value.encode() if isinstance(value, str) else value],
                np.int32 if isinstance(value, int) else np.object_,
            )
            for name, value in found.items()
            if value is not None
        }
        if self._batched:
            arrays = {name: array.reshape(1, -1) for name, array in arrays.items()}
        return [pb_utils.Tensor(name, array) for name, array in arrays.items()]
