"""Text to token ids as TensorRT-LLM's preprocessing does it, without Triton: arrays in, arrays out.

Every array has a leading batch dimension. Formats are those of TensorRT-LLM 1.2.1.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

NO_END_ID = -1  # the engine reads it as "nothing but the length ends the answer"


class LoadError(ValueError):
    """The model folder cannot be used; the message names the parameter and the environment variable."""


class InputError(ValueError):
    """A request's input is wrong; the message is meant for the client."""


def expand(value: str) -> str:
    """Replace a value ``${NAME}`` by the environment variable; unset gives an empty string."""
    match = re.fullmatch(r"\$\{(\w+)\}", value.strip())
    return os.environ.get(match[1], "") if match else value.strip()


def tokenizer_file(tokenizer_dir: str) -> Path:
    """Find ``tokenizer.json`` in the folder that the parameter ``tokenizer_dir`` names.

    Raises:
        LoadError: the parameter's environment variable is unset, or there is no such file.
    """
    folder = expand(tokenizer_dir)
    if not folder:
        raise LoadError(f"MODEL_DIR is not set: the parameter tokenizer_dir is {tokenizer_dir!r}")
    path = Path(folder) / "tokenizer.json"
    if not path.is_file():
        raise LoadError(f"MODEL_DIR has no tokenizer.json: {path} does not exist (parameter tokenizer_dir)")
    return path


class TextToTokens:
    """The tokenizer of one model folder with its default end and pad ids.

    Args:
        tokenizer_dir: value of the parameter of that name, a folder or ``${MODEL_DIR}``.
        add_special_tokens: whether prompts get the tokenizer's special tokens (a chat template brings its own).

    Raises:
        LoadError: see ``tokenizer_file``.
    """

    def __init__(self, tokenizer_dir: str, *, add_special_tokens: bool) -> None:
        path = tokenizer_file(tokenizer_dir)
        self._tokenizer = Tokenizer.from_file(str(path))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._add_special_tokens = add_special_tokens
        generation = _read_json(path.with_name("generation_config.json"))
        config = _read_json(path.with_name("tokenizer_config.json"))
        self.vocab_size = self._tokenizer.get_vocab_size(with_added_tokens=True)
        self.end_id = self._default_id(generation.get("eos_token_id"), config.get("eos_token"), NO_END_ID)
        self.pad_id = self._default_id(generation.get("pad_token_id"), config.get("pad_token"), self.end_id)

    def prompts(self, texts: list[str]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Tokenize a batch of prompts.

        Returns:
            INT32 ids [batch, longest], padded at the end with the pad id (0 where there is none), and INT32 lengths
            [batch, 1].
        """
        rows = [self._encode(text, special=self._add_special_tokens) for text in texts]
        ids = np.full((len(rows), max(map(len, rows), default=0)), max(self.pad_id, 0), dtype=np.int32)
        for row, values in enumerate(rows):
            ids[row, : len(values)] = values
        return ids, np.array([[len(values)] for values in rows], dtype=np.int32)

    def word_lists(self, batch: list[list[str]]) -> NDArray[np.int32]:
        """Pack lists of words, each tokenized without special tokens; empty words are none.

        Returns:
            INT32 [batch, 2, width]. Row 0 holds the ids of all words one after the other, padded with 0; row 1 the
            offset at which each word ends, padded with -1. The width is 0 when no row has a word.
        """
        packed = []
        for words in batch:
            encoded = [ids for ids in (self._encode(word, special=False) for word in words) if ids]
            packed.append(([token for ids in encoded for token in ids], np.cumsum([len(ids) for ids in encoded])))
        width = max((len(flat) for flat, _ in packed), default=0)
        lists = np.zeros((len(batch), 2, width), dtype=np.int32)
        lists[:, 1, :] = -1
        for row, (flat, ends) in enumerate(packed):
            lists[row, 0, : len(flat)] = flat
            lists[row, 1, : len(ends)] = ends
        return lists

    def embedding_bias(self, words: list[list[str]], weights: list[list[float]]) -> NDArray[np.float32]:
        """Spread word biases over token ids: every id of a word, special tokens included, gets the word's weight.

        Returns:
            FP32 [batch, vocabulary], or [batch, 0] when no row has a word.

        Raises:
            InputError: a row has not as many weights as words.
        """
        if [len(row) for row in words] != [len(row) for row in weights]:
            raise InputError("embedding_bias_words and embedding_bias_weights must have the same number of elements")
        if not any(any(row) for row in words):
            return np.zeros((len(words), 0), dtype=np.float32)
        bias = np.zeros((len(words), self.vocab_size), dtype=np.float32)
        for row, (row_words, row_weights) in enumerate(zip(words, weights, strict=True)):
            for word, weight in zip(row_words, row_weights, strict=True):
                if word:
                    bias[row, self._encode(word, special=True)] += np.float32(weight)
        return bias

    def _encode(self, text: str, *, special: bool) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=special).ids
        return ids

    def _default_id(self, ids: object, token: object, otherwise: int) -> int:
        first = ids[0] if isinstance(ids, list) and ids else ids
        if isinstance(first, int):
            return first
        content = token.get("content") if isinstance(token, dict) else token
        found = self._tokenizer.token_to_id(content) if isinstance(content, str) else None
        return otherwise if found is None else int(found)


def _read_json(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise LoadError(f"{path} is not JSON (MODEL_DIR): {error}") from error
    return value if isinstance(value, dict) else {}
