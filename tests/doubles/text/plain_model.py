"""Plain text models as sites write them: text in, text out, decoupled or not, with and without parameters.

The environment names the files of `text_script`: SCRIPT_FILE and JOURNAL_FILE. A model has no tokens of its own: its
limit, counts and responses are of UTF-8 bytes, so that a response may end within a character. A turn's ``spoil`` leaves
out outputs or replaces them in each response, as in `text_script`.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from tokenizers import Tokenizer

from tests.doubles.llmapi.script import Journal
from tests.scripted_engine.turns import Script

_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
_PLAYERS = 16
_LOOK_S = 0.01


def _fail_after(made: int, turn: dict[str, Any]) -> None:
    if turn.get("fail_after") == made:
        raise RuntimeError(turn.get("error", "the model failed"))


class TritonPythonModel:
    """One model; its configuration says what it takes and answers."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the configuration."""
        config = json.loads(args["model_config"])
        self._name, self._decoupled = args["model_name"], config["model_transaction_policy"]["decoupled"]
        self._batched = config["max_batch_size"] > 0
        self._inputs = [each["name"] for each in config["input"]]
        self._outputs = {each["name"] for each in config["output"]}
        self._journal = Journal(Path(os.environ["JOURNAL_FILE"]))
        tokenizer = Tokenizer.from_file(str(Path(os.environ["MODEL_DIR"]) / "tokenizer.json"))
        self._script, self._tokenizer, self._lock = (
            Script(Path(os.environ["SCRIPT_FILE"]), tokenizer),
            tokenizer,
            threading.Lock(),
        )
        self._keys = (f"{self._name}-{os.getpid()}-{number}" for number in itertools.count())
        self._players = ThreadPoolExecutor(_PLAYERS, "player")
        self._closing = threading.Event()

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse] | None:
        """Answer: at once where it is not decoupled, else in threads."""
        if not self._decoupled:
            return [self._whole(request, next(self._keys)) for request in requests]
        for request in requests:
            self._players.submit(self._stream, request, next(self._keys))
        return None

    def finalize(self) -> None:
        """Leave what is still being answered."""
        self._closing.set()
        self._players.shutdown(cancel_futures=True)

    def _asked(self, request: pb_utils.InferenceRequest, key: str) -> tuple[bytes, str, dict[str, Any]]:
        """What is said, why it ends, and the turn."""
        inputs: dict[str, Any] = {}
        for name in self._inputs:
            tensor = pb_utils.get_input_tensor_by_name(request, name)
            if tensor is not None:
                value = tensor.as_numpy().reshape(-1)[0]
                inputs[name] = value.decode() if isinstance(value, bytes) else value.item()
        prompt = inputs["text_input"]
        self._journal.write(key, id=request.request_id(), model=self._name, prompt=prompt, inputs=inputs)
        with self._lock:
            turn = self._script.turn(list(self._tokenizer.encode(prompt, add_special_tokens=False).ids))
        if turn is None:
            turn = {"ids": [], "text": prompt, "chunk": [1]}
        if "raise" in turn:
            raise RuntimeError(turn["raise"])
        said = turn.get("text", "").encode()
        most = inputs.get("max_tokens", len(said) + 1)
        return said[:most], "stop" if most > len(said) else "length", turn | {"prompt": len(prompt.encode())}

    def _whole(self, request: pb_utils.InferenceRequest, key: str) -> pb_utils.InferenceResponse:
        try:
            said, finish, turn = self._asked(request, key)
        except RuntimeError as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))
        if turn.get("silent"):
            return pb_utils.InferenceResponse([])
        return pb_utils.InferenceResponse(self._tensors(said, finish, len(said), turn))

    def _stream(self, request: pb_utils.InferenceRequest, key: str) -> None:
        sender = request.get_response_sender()
        try:
            said, finish, turn = self._asked(request, key)
            content = self._read()
            sizes, made = itertools.cycle(turn["chunk"]), 0
            while made < len(said) and not turn.get("silent"):
                time.sleep(turn.get("pause", 0))
                if sender.is_cancelled():
                    self._journal.write(key, ended="cancelled", sent=made)
                    break
                size = min(next(sizes), len(said) - made)
                made += size
                last = made == len(said)
                tensors = self._tensors(said[made - size : made], finish if last else "", size, turn)
                sender.send(pb_utils.InferenceResponse(tensors))
                _fail_after(made, turn)
            while turn.get("hold") and not sender.is_cancelled() and self._read() is content:
                if self._closing.wait(_LOOK_S):
                    break
            if turn.get("hold") and sender.is_cancelled():
                self._journal.write(key, ended="cancelled", sent=made)
            sender.send(flags=_FINAL)  # its end is a response of its own, without data
        except RuntimeError as error:
            sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error))), _FINAL)

    def _read(self) -> Any:
        with self._lock:
            return self._script.read()

    def _tensors(self, text: bytes, finish: str, count: int, turn: dict[str, Any]) -> list[Any]:
        found: dict[str, Any] = {"text_output": np.array([text], dtype=np.object_)}
        if "finish_reason" in self._outputs:
            found["finish_reason"] = np.array([finish.encode()], dtype=np.object_)
        if "num_output_tokens" in self._outputs:
            found["num_output_tokens"] = np.array([count], dtype=np.int32)
        if "num_input_tokens" in self._outputs:
            found["num_input_tokens"] = np.array([turn["prompt"]], dtype=np.int32)
        for name, value in turn.get("spoil", {}).items():
            found.pop(name)
            if value is not None:
                words = isinstance(value, str)
                found[name] = np.array([value.encode() if words else value], dtype=np.object_ if words else np.int32)
        if self._batched:
            found = {name: array.reshape(1, -1) for name, array in found.items()}
        return [pb_utils.Tensor(name, array) for name, array in found.items()]
