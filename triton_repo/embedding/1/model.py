"""Triton model ``embedding``: texts to vectors, or pairs of texts to scores, by a BERT model on the CPU.

Where the environment names no folder, the model loads without one and each request is an error that names the
variable, so that the other models of a repository serve.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from bert_encoder import Bert, Floats, LoadError, Text, limit_blas_threads
from texts_to_tokens import InputError, TextsToTokens


class TritonPythonModel:
    """Adapter between Triton's requests and ``Bert``."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load tokenizer and weights; what is wrong with the folder is a load error that names it."""
        config = json.loads(args["model_config"])
        parameters = {name: entry["string_value"] for name, entry in config["parameters"].items()}
        self._absent = ""
        if not _expand(parameters["model_dir"]):
            self._absent = f"{parameters['model_dir']} is not set, so {args['model_name']} has no model"
            pb_utils.Logger.log_warn(self._absent)
            return
        limit_blas_threads()
        try:
            self._load(parameters, config["output"][0])
        except LoadError as error:
            raise pb_utils.TritonModelException(str(error)) from None

    def _load(self, parameters: dict[str, str], output: dict[str, Any]) -> None:
        folder, longest = Path(_expand(parameters["model_dir"])), int(parameters["max_seq_len"])
        normalize = parameters.get("normalize") == "true"
        self._bert = Bert(
            folder, task=parameters["task"], pooling=parameters.get("pooling", "mean"), normalize=normalize
        )
        self._tokens = TextsToTokens(Path(_expand(parameters["tokenizer_dir"])), longest)
        self._output = output["name"]
        self._bert.check(width=int(output["dims"][0]), max_seq_len=longest, vocab=self._tokens.vocab)

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """Compute the requests of a batch together; a wrong input fails only its request."""
        reads = [self._read(request) for request in requests]
        owners = [number for number, read in enumerate(reads) if isinstance(read, list) for _ in read]
        texts = [text for read in reads if isinstance(read, list) for text in read]
        outputs = self._bert.outputs(texts, lambda index: not requests[owners[index]].is_cancelled()) if texts else []
        left = iter(outputs)
        return [
            self._response(read, [next(left) for _ in read])
            if isinstance(read, list)
            else pb_utils.InferenceResponse(error=read)
            for read in reads
        ]

    def _read(self, request: pb_utils.InferenceRequest) -> list[Text] | pb_utils.TritonError:
        """The texts of a request in tokens, or the error that it ends with."""
        if self._absent:
            return pb_utils.TritonError(self._absent, pb_utils.TritonError.UNAVAILABLE)
        try:
            (rows,) = request.inputs()
            texts = [[bytes(value).decode() for value in row] for row in rows.as_numpy()]
            return self._tokens.read(texts, json.loads(request.parameters() or "{}").get("truncate", "NONE"))
        except UnicodeDecodeError:
            error = "a text is not UTF-8"
        except InputError as wrong:
            error = str(wrong)
        return pb_utils.TritonError(error, pb_utils.TritonError.INVALID_ARG)

    def _response(self, texts: list[Text], outputs: list[Floats | None]) -> pb_utils.InferenceResponse:
        computed = [output for output in outputs if output is not None]
        if len(computed) < len(outputs):
            error = pb_utils.TritonError("the request was cancelled", pb_utils.TritonError.CANCELLED)
            return pb_utils.InferenceResponse(error=error)
        counts = np.array([[len(ids)] for ids, _ in texts], np.int32)
        tensors = [pb_utils.Tensor(self._output, np.stack(computed)), pb_utils.Tensor("token_count", counts)]
        return pb_utils.InferenceResponse(tensors)


def _expand(value: str) -> str:
    """A parameter's value, or that of the variable which it names as ``${NAME}``; empty where that is not set."""
    variable = re.fullmatch(r"\$\{(\w+)\}", value)
    return os.environ.get(variable[1], "") if variable else value
