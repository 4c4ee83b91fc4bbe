"""The model ``preprocessing`` of the doubles: text to token ids as TensorRT-LLM's own does it (wire contract 1.4)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray
from tokenizers import Tokenizer

_FALSE = ("false", "0", "f", "n", "no")


class TritonPythonModel:
    """Stateless; a request that is wrong fails the whole call."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the tokenizer that the parameter names."""
        config = json.loads(args["model_config"])
        parameters = {name: value["string_value"] for name, value in config["parameters"].items()}
        folder = Path(parameters["tokenizer_dir"])
        named = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._end_id = self._tokenizer.token_to_id(named["eos_token"])
        self._pad_id = self._tokenizer.token_to_id(named.get("pad_token", named["eos_token"]))
        # On unless a value says no: also where nobody filled the parameter in.
        self._adds_special_tokens = parameters.get("add_special_tokens", "").lower() not in _FALSE
        self._outputs = {output["name"] for output in config["output"]}

    def execute(self, requests: list[Any]) -> list[Any]:
        """Encode each request."""
        return [pb_utils.InferenceResponse(self._encode_request(request)) for request in requests]

    def _encode_request(self, request: Any) -> list[Any]:
        inputs = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        prompt = self._encode(inputs["QUERY"].reshape(-1)[0], special=self._adds_special_tokens)
        outputs = {
            "INPUT_ID": np.array([prompt], np.int32),
            "REQUEST_INPUT_LEN": np.array([[len(prompt)]], np.int32),
            "REQUEST_OUTPUT_LEN": inputs["REQUEST_OUTPUT_LEN"].astype(np.int32),
            "BAD_WORDS_IDS": self._words(inputs.get("BAD_WORDS_DICT")),
            "STOP_WORDS_IDS": self._words(inputs.get("STOP_WORDS_DICT")),
            "EMBEDDING_BIAS": self._bias(inputs),
            "OUT_END_ID": inputs.get("END_ID", np.array([[self._end_id]], np.int32)),
            "OUT_PAD_ID": inputs.get("PAD_ID", np.array([[self._pad_id]], np.int32)),
        }
        if "PROMPT_EMBEDDING_TABLE" in inputs:
            outputs["OUT_PROMPT_EMBEDDING_TABLE"] = inputs["PROMPT_EMBEDDING_TABLE"]
        if "PROMPT_TABLE_EXTRA_ID" in inputs:
            outputs["OUT_PROMPT_TABLE_EXTRA_IDS"] = np.repeat(inputs["PROMPT_TABLE_EXTRA_ID"], len(prompt), axis=1)
        return [pb_utils.Tensor(name, value) for name, value in outputs.items() if name in self._outputs]

    def _encode(self, text: bytes, *, special: bool) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text.decode(), add_special_tokens=special).ids
        return ids

    def _words(self, words: NDArray[Any] | None) -> NDArray[np.int32]:
        """Packed token sequences [1, 2, W]: all ids, and the end of each word; W is 0 without words."""
        ids: list[int] = []
        ends: list[int] = []
        for word in [] if words is None else words.reshape(-1):
            ids += self._encode(word, special=False)
            ends.append(len(ids))
        if not ids:
            return np.zeros((1, 2, 0), np.int32)
        return np.array([[ids, ends + [-1] * (len(ids) - len(ends))]], np.int32)

    def _bias(self, inputs: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Every token of a word, special ones that the tokenizer adds included, gets the word's weight; FP32 [1, V]."""
        words = inputs.get("EMBEDDING_BIAS_WORDS")
        if words is None:
            return np.zeros((1, 0), np.float32)
        dense = np.zeros((1, self._tokenizer.get_vocab_size()), np.float32)
        for word, weight in zip(words.reshape(-1), inputs["EMBEDDING_BIAS_WEIGHTS"].reshape(-1), strict=True):
            for token in self._encode(word, special=True):
                dense[0, token] += weight
        return dense
