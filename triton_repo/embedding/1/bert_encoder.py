"""BERT in NumPy and float32: token ids in, one vector or the logits of a classifier out for each text.

Texts lie one behind the other in one matrix, without padding: only attention looks at each text by itself.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Text = tuple[list[int], list[int]]
"""The token ids of a text or a pair, and to which part of the pair each belongs: 0 or 1."""

ARCHITECTURES = {"embed": "BertModel", "rerank": "BertForSequenceClassification"}
POOLINGS: dict[str, Callable[[Floats], Floats]] = {
    "cls": lambda tokens: tokens[0],
    "mean": lambda tokens: tokens.mean(axis=0),
    "max": lambda tokens: tokens.max(axis=0),
}
"""A vector [hidden] from the last hidden states of a text, [tokens, hidden]."""

_DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_TOKENS_AT_ONCE = 512  # more need more memory and are no faster; between two blocks cancelled requests are dropped
_ROWS_AT_ONCE = 64  # of an activation: its intermediate results stay in the processor's cache
# erf(x) = x P(x^2) / Q(x^2) for |x| <= 4, beyond which it is 1 in float32: the rational function that Eigen has.
_P = (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05, -7.34990630326855e-04)
_Q = (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02)
_ERF_P = np.array((*_P, -2.95459980854025e-03, -1.60960333262415e-02), np.float32)
_ERF_Q = np.array(_Q, np.float32)


class LoadError(ValueError):
    """A model folder that cannot be served; the message names what is wrong."""


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        LoadError: missing, unreadable or not an object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LoadError(f"{path}: {error}") from None
    if not isinstance(value, dict):
        raise LoadError(f"{path}: not a JSON object")
    return value


class Bert:
    """A BERT model of one folder, for one task.

    Args:
        folder: it has ``config.json`` and ``model.safetensors``.
        task: ``embed`` pools the last hidden states; ``rerank`` gives the classifier's logits.
        pooling: a key of `POOLINGS`, for ``embed``.
        normalize: whether vectors have the length 1, for ``embed``.

    Raises:
        LoadError: the folder has another architecture, pooling or shape than is asked for.
    """

    def __init__(self, folder: Path, *, task: str, pooling: str = "mean", normalize: bool = True) -> None:
        config = read_json(folder / "config.json")
        _check(folder, config, task, pooling)
        weights = _Weights(folder / "model.safetensors")
        self._eps = float(config.get("layer_norm_eps", 1e-12))
        self._heads = int(config["num_attention_heads"])
        self._task, self._pool, self._normalize = task, POOLINGS[pooling], normalize
        names = ("word", "position", "token_type")
        self._tables = [weights.take(f"embeddings.{name}_embeddings.weight") for name in names]
        self._norm = weights.pair("embeddings.LayerNorm")
        layers = range(int(config["num_hidden_layers"]))
        self._layers = [_layer(weights, f"encoder.layer.{number}", self._heads) for number in layers]
        (self.vocab, self.width), self.positions = self._tables[0].shape, len(self._tables[1])
        if task == "rerank":
            self._pooler, self._classifier = weights.pair("pooler.dense"), weights.pair("classifier")
            self.width = len(self._classifier[1])

    def check(self, *, width: int, max_seq_len: int, vocab: int) -> None:
        """Compare the model with its configuration and its tokenizer.

        Raises:
            LoadError: it gives vectors of another width, or has fewer positions or tokens.
        """
        if width != self.width:
            raise LoadError(f"the model gives {self.width} numbers for a text, config.pbtxt says {width}")
        if max_seq_len > self.positions:
            raise LoadError(f"max_seq_len is {max_seq_len}, the model has {self.positions} positions")
        if vocab > self.vocab:
            raise LoadError(f"the tokenizer has {vocab} tokens, the model {self.vocab}")

    def outputs(self, texts: Sequence[Text], keeps: Callable[[int], bool] = lambda _: True) -> list[Floats | None]:
        """Compute the vector or the logits of each text, [width].

        Args:
            texts: of at most ``positions`` tokens each.
            keeps: whether the text of an index is still wanted; asked just before it is computed.

        Returns:
            In the order of the texts; None for those that were not wanted.
        """
        found: list[Floats | None] = [None] * len(texts)
        start = 0
        while start < len(texts):
            end, tokens = start, 0
            while end < len(texts) and (end == start or tokens + len(texts[end][0]) <= _TOKENS_AT_ONCE):
                tokens += len(texts[end][0])
                end += 1
            kept = [index for index in range(start, end) if keeps(index)]
            if kept:
                for index, output in zip(kept, self._block([texts[index] for index in kept]), strict=True):
                    found[index] = output
            start = end
        return found

    def _block(self, texts: Sequence[Text]) -> list[Floats]:
        ends = np.cumsum([len(ids) for ids, _ in texts]).tolist()
        spans = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
        positions = np.concatenate([np.arange(len(ids)) for ids, _ in texts])
        words, places, types = self._tables
        states = words[[token for ids, _ in texts for token in ids]] + places[positions]
        states += types[[kind for _, kinds in texts for kind in kinds]]
        states = self._normed(states, self._norm)
        for layer in self._layers:
            mixed = _dense(_attend(_dense(states, layer["qkv"]), spans, self._heads), layer["output"])
            states = self._normed(states + mixed, layer["output_norm"])
            wide = _gelu(_dense(states, layer["wide"]))
            states = self._normed(states + _dense(wide, layer["narrow"]), layer["norm"])
        if self._task == "rerank":
            first = states[[span.start for span in spans]]
            return list(_dense(np.tanh(_dense(first, self._pooler)), self._classifier))
        vectors = [self._pool(states[span]) for span in spans]
        return [vector / np.linalg.norm(vector) for vector in vectors] if self._normalize else vectors

    def _normed(self, states: Floats, norm: tuple[Floats, Floats]) -> Floats:
        scale, shift = norm
        states = states - states.mean(axis=1, keepdims=True)
        states /= np.sqrt(np.square(states).mean(axis=1, keepdims=True) + np.float32(self._eps))
        states *= scale
        states += shift
        return states


def _dense(states: Floats, layer: tuple[Floats, Floats]) -> Floats:
    weight, bias = layer
    result: Floats = states @ weight.T
    result += bias
    return result


def _attend(qkv: Floats, spans: Sequence[slice], heads: int) -> Floats:
    """The sum of values that each token attends to, [tokens, hidden], within the span of its own text."""
    mixed = np.empty((len(qkv), qkv.shape[1] // 3), np.float32)
    for span in spans:
        length = span.stop - span.start
        query, key, value = qkv[span].reshape(length, 3, heads, -1).transpose(1, 2, 0, 3)
        scores = query @ key.transpose(0, 2, 1)
        scores -= scores.max(axis=2, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=2, keepdims=True)
        mixed[span] = (scores @ value).transpose(1, 0, 2).reshape(length, -1)
    return mixed


def _gelu(states: Floats) -> Floats:
    """Compute x (1 + erf(x / sqrt 2)) / 2 in place."""
    for start in range(0, len(states), _ROWS_AT_ONCE):
        part = states[start : start + _ROWS_AT_ONCE]
        erf = np.clip(part * np.float32(0.5**0.5), np.float32(-4), np.float32(4))
        square = np.square(erf)
        erf *= np.polyval(_ERF_P, square)
        erf /= np.polyval(_ERF_Q, square)
        erf += np.float32(1)
        part *= erf
        part *= np.float32(0.5)
    return states


def _layer(weights: _Weights, name: str, heads: int) -> dict[str, tuple[Floats, Floats]]:
    """The weights and biases of a layer: of query, key and value as one, with attention's scale in the query's."""
    (query, bias), *others = (weights.pair(f"{name}.attention.self.{part}") for part in ("query", "key", "value"))
    scale = np.float32((len(bias) // heads) ** -0.5)
    qkv = [(query * scale, bias * scale), *others]
    return {
        "qkv": (np.concatenate([weight for weight, _ in qkv]), np.concatenate([bias for _, bias in qkv])),
        "output": weights.pair(f"{name}.attention.output.dense"),
        "output_norm": weights.pair(f"{name}.attention.output.LayerNorm"),
        "wide": weights.pair(f"{name}.intermediate.dense"),
        "narrow": weights.pair(f"{name}.output.dense"),
        "norm": weights.pair(f"{name}.output.LayerNorm"),
    }


def _check(folder: Path, config: dict[str, Any], task: str, pooling: str) -> None:
    file = folder / "config.json"
    if (config.get("architectures") or [""])[0] != ARCHITECTURES.get(task):
        raise LoadError(f"{file}: architectures is {config.get('architectures')}, the parameter task {task!r}")
    if missing := [key for key in ("num_attention_heads", "num_hidden_layers") if key not in config]:
        raise LoadError(f"{file}: {missing[0]} is missing")
    for key, computed in (("hidden_act", "gelu"), ("position_embedding_type", "absolute")):
        if config.get(key, computed) != computed:
            raise LoadError(f"{file}: {key} {config[key]!r} is not computed, only {computed!r}")
    if pooling not in POOLINGS:
        raise LoadError(f"the parameter pooling is {pooling!r}; it may be {', '.join(POOLINGS)}")
    said = folder / "1_Pooling" / "config.json"
    if task == "embed" and said.is_file() and not _pools(read_json(said), pooling):
        raise LoadError(f"{said} does not pool by {pooling!r}, as the parameter pooling says")


def _pools(config: dict[str, Any], pooling: str) -> bool:
    """Whether sentence-transformers' configuration has this pooling, in its older or newer form."""
    flags = (key for key, value in config.items() if value is True)
    return config.get("pooling_mode") == pooling or any(key.startswith(f"pooling_mode_{pooling}_tok") for key in flags)


class _Weights:
    """The tensors of a safetensors file, in float32: a header's length in 8 bytes, a JSON header, the raw tensors."""

    def __init__(self, file: Path) -> None:
        try:
            self._data = np.memmap(file, np.uint8, mode="r")
            self._start = 8 + int.from_bytes(self._data[:8].tobytes(), "little")
            header: dict[str, Any] = json.loads(self._data[8 : self._start].tobytes())
        except (OSError, ValueError) as error:
            raise LoadError(f"{file}: not a safetensors file: {error}") from None
        self._file = file
        self._entries = {name.removeprefix("bert."): entry for name, entry in header.items()}

    def take(self, name: str) -> Floats:
        """A tensor in its own shape."""
        entry = self._entries.get(name)
        if entry is None or entry["dtype"] not in _DTYPES:
            raise LoadError(f"{self._file}: no tensor {name} of a type among {', '.join(_DTYPES)}")
        begin, end = entry["data_offsets"]
        raw: NDArray[Any] = self._data[self._start + begin : self._start + end].view(_DTYPES[entry["dtype"]])
        if entry["dtype"] == "BF16":  # bfloat16 is the upper half of a float32
            raw = (raw.astype(np.uint32) << 16).view(np.float32)
        return np.array(raw, np.float32).reshape(entry["shape"])

    def pair(self, name: str) -> tuple[Floats, Floats]:
        """The weight and the bias of a layer."""
        return self.take(f"{name}.weight"), self.take(f"{name}.bias")


def limit_blas_threads() -> None:
    """Give the OpenBLAS that NumPy loaded half the cores, 4 at most: its threads collapse when they must share one."""
    count = os.environ.get("ENGINE_BLAS_THREADS") or max(1, min(4, len(os.sched_getaffinity(0)) // 2))
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    for path in {line.split(maxsplit=5)[-1] for line in maps.splitlines() if "openblas" in line}:
        library = ctypes.CDLL(path)
        for symbol in ("openblas_set_num_threads64_", "openblas_set_num_threads"):
            if hasattr(library, symbol):
                getattr(library, symbol)(int(count))
                break
