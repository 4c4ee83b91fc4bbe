"""Triton model ``postprocessing``: token ids to text, streamed without losing a space or breaking a character.

Pieces of one answer carry the same request id; the state between them is kept by it. A piece is the last one when it
comes with a finish reason or without tokens (an engine sends such a piece only at the end); then an unfinished
character becomes U+FFFD and the state goes. A state whose end never comes (a cancelled request) expires. Request ids
must be fresh. A request without an id is decoded by itself, as upstream does it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

from tokens_to_text import IncrementalText, LoadError, TextStates, holds_whole_run, load_tokenizer

_KEPT_TENSORS = 1024  # of the latest texts, some 0.2 MB of shared memory
_LONGEST_KEPT = 32  # characters


class TritonPythonModel:
    """Adapter between Triton's requests and ``TextStates``."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the tokenizer; a missing MODEL_DIR or tokenizer.json is a load error that names it."""
        config = json.loads(args["model_config"])
        parameters = {key: value["string_value"] for key, value in config["parameters"].items()}
        try:
            self._tokenizer = load_tokenizer(parameters["tokenizer_dir"])
        except LoadError as error:
            raise pb_utils.TritonModelException(str(error)) from None
        self._skip_special_tokens = parameters["skip_special_tokens"].lower() == "true"
        hold_run = holds_whole_run(self._tokenizer)
        self._states = TextStates(
            lambda: IncrementalText(self._decode, hold_run=hold_run),
            capacity=int(parameters["state_capacity"]),
            expiry_s=float(parameters["state_expiry_seconds"]),
            clock=time.monotonic,
        )
        self._said_stateless = False
        # Words come again and again. A tensor may be sent many times, and lies in shared memory after the first.
        self._word = lru_cache(_KEPT_TENSORS)(_tensor)

    def finalize(self) -> None:
        """Give the tensors back while there is a pool that they belong to."""
        self._word.cache_clear()

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """Decode each request; OUTPUT is 1-D, one string for each beam of each row."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        inputs = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        lengths = inputs["SEQUENCE_LENGTH"].tolist()
        reasons = inputs.get("FINISH_REASON")
        request_id = request.request_id()
        if not request_id and not self._said_stateless:
            self._said_stateless = True
            pb_utils.Logger.log_warn(
                "a request without an id is decoded by itself: streamed text may lose spaces and break characters; "
                "send a fresh request id"
            )
        answer = (_first(inputs, "BATCH_INDEX"), _first(inputs, "SEQUENCE_INDEX"))
        texts = []
        for row, beams in enumerate(inputs["TOKENS_BATCH"].tolist()):
            reason = reasons is not None and bool(reasons.reshape(-1)[min(row, reasons.size - 1)])
            for beam, ids in enumerate(beams):
                valid = ids[: max(0, lengths[row][beam])]
                if request_id:
                    key = (request_id, *answer, row, beam)
                    text = self._states.push(key, valid, last=reason or not valid)
                else:
                    text = self._decode(valid)
                texts.append(text)
        is_word = len(texts) == 1 and len(texts[0]) <= _LONGEST_KEPT
        return pb_utils.InferenceResponse([self._word(texts[0]) if is_word else _tensor(*texts)])

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=self._skip_special_tokens)
        return text


def _tensor(*texts: str) -> pb_utils.Tensor:
    return pb_utils.Tensor("OUTPUT", np.array([text.encode() for text in texts], dtype=object))


def _first(inputs: dict[str, NDArray[Any]], name: str) -> int:
    array = inputs.get(name)
    return 0 if array is None or not array.size else int(array.reshape(-1)[0])
