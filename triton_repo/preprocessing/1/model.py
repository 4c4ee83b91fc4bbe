"""Triton model ``preprocessing``: prompts, word lists and biases from text to token ids."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

from text_to_tokens import NO_END_ID, InputError, LoadError, TextToTokens


class TritonPythonModel:
    """Adapter between Triton's requests and ``TextToTokens``."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the tokenizer; a missing MODEL_DIR or tokenizer.json is a load error that names it."""
        parameters = json.loads(args["model_config"])["parameters"]
        try:
            self._text = TextToTokens(
                parameters["tokenizer_dir"]["string_value"],
                add_special_tokens=parameters["add_special_tokens"]["string_value"].lower() == "true",
            )
        except LoadError as error:
            raise pb_utils.TritonModelException(str(error)) from None
        if self._text.end_id == NO_END_ID:
            pb_utils.Logger.log_warn("no end token in generation_config.json or tokenizer_config.json: send end_id")

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """Answer each request on its own; a wrong input fails only its request."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        try:
            return pb_utils.InferenceResponse(self._outputs(request))
        except InputError as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG))

    def _outputs(self, request: pb_utils.InferenceRequest) -> list[pb_utils.Tensor]:
        texts = _strings(request, "QUERY")
        if texts is None:
            raise InputError("text_input is required")
        length = _array(request, "REQUEST_OUTPUT_LEN")
        if length is None:
            raise InputError("max_tokens is required")
        batch = len(texts)
        ids, lengths = self._text.prompts([row[0] for row in texts])
        outputs = {
            "INPUT_ID": ids,
            "REQUEST_INPUT_LEN": lengths,
            "REQUEST_OUTPUT_LEN": length.astype(np.int32),
            "BAD_WORDS_IDS": self._text.word_lists(_strings(request, "BAD_WORDS_DICT") or [[]] * batch),
            "STOP_WORDS_IDS": self._text.word_lists(_strings(request, "STOP_WORDS_DICT") or [[]] * batch),
            "EMBEDDING_BIAS": self._bias(request, batch),
            "OUT_END_ID": _or_default(_array(request, "END_ID"), self._text.end_id, batch),
            "OUT_PAD_ID": _or_default(_array(request, "PAD_ID"), self._text.pad_id, batch),
            # postprocessing ends its decoding by the finish reason, so it is always asked for.
            "OUT_RETURN_FINISH_REASON": np.ones((batch, 1), dtype=bool),
        }
        decoder = _strings(request, "DECODER_QUERY")
        if decoder is not None:
            names = ("DECODER_INPUT_ID", "REQUEST_DECODER_INPUT_LEN")
            outputs.update(zip(names, self._text.prompts([row[0] for row in decoder]), strict=True))
        extra_id = _array(request, "PROMPT_TABLE_EXTRA_ID")
        if extra_id is not None:
            outputs["OUT_PROMPT_TABLE_EXTRA_IDS"] = np.repeat(extra_id.reshape(batch, 1), ids.shape[1], axis=1)
        return [pb_utils.Tensor(name, value) for name, value in outputs.items()]

    def _bias(self, request: pb_utils.InferenceRequest, batch: int) -> NDArray[np.float32]:
        words = _strings(request, "EMBEDDING_BIAS_WORDS") or [[]] * batch
        weights = _array(request, "EMBEDDING_BIAS_WEIGHTS")
        return self._text.embedding_bias(words, [[]] * batch if weights is None else weights.tolist())


def _array(request: pb_utils.InferenceRequest, name: str) -> NDArray[Any] | None:
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy()


def _strings(request: pb_utils.InferenceRequest, name: str) -> list[list[str]] | None:
    array = _array(request, name)
    if array is None:
        return None
    try:
        return [[bytes(value).decode() for value in row] for row in array]
    except UnicodeDecodeError:
        raise InputError(f"{name} is not UTF-8") from None


def _or_default(array: NDArray[Any] | None, default: int, batch: int) -> NDArray[Any]:
    return np.full((batch, 1), default, dtype=np.int32) if array is None else array
