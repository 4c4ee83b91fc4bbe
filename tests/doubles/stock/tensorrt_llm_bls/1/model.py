"""The model ``tensorrt_llm_bls`` of the doubles: three calls from one Python model (wire contract 1.6 and 9).

One request at a time for each instance. The caller's id and its cancel end here. ``double.json`` beside this file has
``version`` and the names of the models called.
"""

from __future__ import annotations

import json
import traceback
import uuid
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

Tensors = dict[str, NDArray[Any]]

_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
_TO_PREPROCESSING = {
    "text_input": "QUERY", "decoder_text_input": "DECODER_QUERY", "max_tokens": "REQUEST_OUTPUT_LEN",
    "bad_words": "BAD_WORDS_DICT", "stop_words": "STOP_WORDS_DICT", "embedding_bias_words": "EMBEDDING_BIAS_WORDS",
    "embedding_bias_weights": "EMBEDDING_BIAS_WEIGHTS", "end_id": "END_ID", "pad_id": "PAD_ID",
    "prompt_table_extra_id": "PROMPT_TABLE_EXTRA_ID",
}  # fmt: skip
_TO_ENGINE = {
    "INPUT_ID": "input_ids", "REQUEST_INPUT_LEN": "input_lengths", "BAD_WORDS_IDS": "bad_words_list",
    "STOP_WORDS_IDS": "stop_words_list", "EMBEDDING_BIAS": "embedding_bias", "OUT_END_ID": "end_id",
    "OUT_PAD_ID": "pad_id",
}  # fmt: skip
_RENAMED = {
    "top_k": "runtime_top_k", "top_p": "runtime_top_p", "length_penalty": "len_penalty", "stream": "streaming",
    "max_tokens": "request_output_len",
}  # fmt: skip
_STOPS_ON_TEXT = (0, 19)


def _forwarded(version: tuple[int, ...]) -> set[str]:
    """Inputs that reach the engine; others that are declared are dropped without a word."""
    names = {"max_tokens", "beam_width", "top_k", "top_p", "length_penalty", "repetition_penalty", "presence_penalty"}
    names |= {"frequency_penalty", "return_log_probs", "stream", "prompt_embedding_table", "prompt_vocab_size"}
    names |= {"return_context_logits", "return_generation_logits"}
    names |= {"min_length", "random_seed"} if version < (0, 20) else {"min_tokens", "seed"}
    if version >= (0, 16):
        names |= {"temperature", "lora_task_id", "lora_weights", "lora_config", "exclude_input_in_output"}
    if version >= _STOPS_ON_TEXT:
        names |= {"guided_decoding_guide_type", "guided_decoding_guide", "return_perf_metrics"}
    if version >= (1, 0):
        names |= {"return_num_input_tokens"}
    if version >= (1, 2):
        names |= {"return_num_output_tokens"}
    return names


class TritonPythonModel:
    """Serves a request to its end before it takes the next."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the configuration."""
        config = json.loads(args["model_config"])
        double = json.loads(Path(__file__).with_name("double.json").read_text(encoding="utf-8"))
        self._version = tuple(int(part) for part in double["version"].split("."))
        self._forwarded = _forwarded(self._version)
        self._models = double["models"]
        self._decoupled = bool(config.get("model_transaction_policy", {}).get("decoupled"))
        self._accumulate = config["parameters"]["accumulate_tokens"]["string_value"] == "true"
        self._engine = config["parameters"]["tensorrt_llm_model_name"]["string_value"]
        self._outputs = {output["name"] for output in config["output"]}
        self._kept: deque[Any] = deque(maxlen=100)

    def execute(self, requests: list[Any]) -> list[Any] | None:
        """Answer each request; errors carry the traceback."""
        responses = []
        for request in requests:
            sender = request.get_response_sender() if self._decoupled else None
            try:
                for arrays in self._serve(_inputs(request)):
                    tensors = _tensors(arrays)  # kept until they are sent (wire contract 9.1)
                    response = pb_utils.InferenceResponse(tensors)
                    sender.send(response) if sender else responses.append(response)
            except Exception:  # noqa: BLE001 - as upstream
                response = pb_utils.InferenceResponse([], error=pb_utils.TritonError(traceback.format_exc()))
                sender.send(response) if sender else responses.append(response)
            if sender:
                sender.send(flags=_FINAL)
        return None if self._decoupled else responses

    def _serve(self, inputs: Tensors) -> Iterator[Tensors]:
        if "max_tokens" not in inputs or inputs["max_tokens"].reshape(-1)[0] <= 0:
            raise ValueError("max_tokens must be a single value > 0")
        request_id = str(uuid.uuid4()) if self._version >= _STOPS_ON_TEXT else ""
        so_far: list[int] = []
        stopped = _StopWords(inputs) if self._version >= _STOPS_ON_TEXT else None
        for tensors in self._generate(request_id, self._preprocess(inputs)):
            if stopped is not None and stopped.found:
                continue
            new = tensors["output_ids"].reshape(-1).tolist()
            if self._accumulate and self._decoupled:
                so_far += new
                new = so_far
            text = self._postprocess(new)
            if stopped is not None:
                text = stopped.check(text)
                if stopped.found:
                    self._stop(request_id)
            answer = {name: value for name, value in tensors.items() if name in self._outputs}
            yield {**answer, "text_output": np.array([text.encode()], np.object_)}

    def _preprocess(self, inputs: Tensors) -> Tensors:
        """What the engine is sent."""
        asked = {to: inputs[name] for name, to in _TO_PREPROCESSING.items() if name in inputs}
        found = _exec_one(self._models["preprocessing"], "", asked, list(_TO_ENGINE))
        sent = {_RENAMED.get(name, name): value for name, value in inputs.items() if name in self._forwarded}
        return sent | {_TO_ENGINE[name]: value for name, value in found.items()}

    def _generate(self, request_id: str, inputs: Tensors) -> Iterator[Tensors]:
        names = [name for name in ("output_ids", "sequence_length", *sorted(self._outputs)) if name != "text_output"]
        if not self._decoupled:
            yield _exec_one(self._engine, request_id, inputs, names)
            return
        yield from map(_read, self._exec_all(request_id, inputs, names))

    def _exec_all(self, request_id: str, inputs: Tensors, names: list[str]) -> Iterator[Any]:
        # A thread of the stub drops a read iterator, too, without the GIL: it must not be the last (wire contract 9.1).
        self._kept.append(_request(self._engine, request_id, inputs, names).exec(decoupled=True))
        return iter(self._kept[-1])

    def _postprocess(self, ids: list[int]) -> str:
        inputs = {
            "TOKENS_BATCH": np.array(ids, np.int32).reshape(1, 1, -1),
            "SEQUENCE_LENGTH": np.array([[len(ids)]], np.int32),
        }
        found = _exec_one(self._models["postprocessing"], "", inputs, ["OUTPUT"])
        return bytes(found["OUTPUT"].reshape(-1)[0]).decode()

    def _stop(self, request_id: str) -> None:
        one = np.ones((1, 1), np.int32)
        inputs = {"input_ids": one, "input_lengths": one, "request_output_len": one, "stop": one.astype(bool)}
        if self._decoupled:
            list(self._exec_all(request_id, inputs, ["output_ids"]))


class _StopWords:
    """Stop words looked for in the text of the responses, from 0.19 on.

    In a whole answer the text is cut behind the word; where the caller did not exclude the prompt, the search begins
    behind as many characters as the prompt has. In a stream a word is found when whole responses make it up.
    """

    def __init__(self, inputs: Tensors) -> None:
        words = inputs.get("stop_words", np.empty(0, np.object_)).reshape(-1)
        self._words = [word.decode() for word in words if word]
        self._streams = _flag(inputs, "stream")
        self._start = 0
        if not _flag(inputs, "exclude_input_in_output"):
            self._start = len(bytes(inputs["text_input"].reshape(-1)[0]).decode())
        self._prefix = ""
        self.found = False

    def check(self, text: str) -> str:
        """A response's text as it goes on; `found` once it holds a word."""
        return self._check_piece(text) if self._streams else self._check_whole(text)

    def _check_piece(self, text: str) -> str:
        for word in self._words:
            if word.startswith(self._prefix + text):
                self._prefix += text
                if word == self._prefix:
                    self.found = True
                    return text
            else:
                self._prefix = ""
        return text

    def _check_whole(self, text: str) -> str:
        for word in self._words:
            place = text.find(word, self._start)
            if place >= 0:
                self.found = True
                return text[: place + len(word)]
        return text


def _flag(inputs: Tensors, name: str) -> bool:
    return name in inputs and bool(inputs[name].any())


def _inputs(request: Any) -> Tensors:
    """Inputs as the other models take them: what the configuration makes a scalar gets its dimension back."""
    arrays = {tensor.name(): np.array(tensor.as_numpy()) for tensor in request.inputs()}
    return {name: array[:, None] if array.ndim == 1 else array for name, array in arrays.items()}


def _tensors(arrays: Tensors) -> list[Any]:
    return [pb_utils.Tensor(name, value) for name, value in arrays.items()]


def _request(model: str, request_id: str, inputs: Tensors, outputs: list[str]) -> Any:
    return pb_utils.InferenceRequest(
        model_name=model, request_id=request_id, inputs=_tensors(inputs), requested_output_names=outputs
    )


def _exec_one(model: str, request_id: str, inputs: Tensors, outputs: list[str]) -> Tensors:
    return _read(_request(model, request_id, inputs, outputs).exec())


def _read(response: Any) -> Tensors:
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return {tensor.name(): np.array(tensor.as_numpy()) for tensor in response.output_tensors()}
