"""LoRA adapters: tensors (wire contract 2.8), their sums for a layer, and a cache by task."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from wire.request import LoraTask, RejectedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from cpu_double.kv_cache import Floats
    from cpu_double.llama_config import LlamaConfig

    Places = Mapping[int, "Place"]

MAX_RANK = 64  # TensorRT-LLM's default of `--max_lora_rank`
# TensorRT-LLM's numbers; those without a place in `_places` are known by name only.
_NAMES = {
    0: "attn_qkv",
    1: "attn_q",
    2: "attn_k",
    3: "attn_v",
    4: "attn_dense",
    5: "mlp_h_to_4h",
    6: "mlp_4h_to_h",
    7: "mlp_gate",
}


class Place(NamedTuple):
    """The place of a module's product.

    Attributes:
        product: name of the layer's product: ``qkv``, ``out``, ``gate_up`` or ``down``.
        start: first of its columns in that product.
        inputs: width of the module's input.
        outputs: width of its output.
    """

    product: str
    start: int
    inputs: int
    outputs: int


class Delta(NamedTuple):
    """The sum that a module adds: ``x @ down.T @ up.T``, in the columns from ``start`` on.

    Attributes:
        start: first column.
        down: [rank, inputs]; whatever the model folds into its own weights is folded in here too.
        up: [outputs, rank], with the adapter's scale in it.
    """

    start: int
    down: Floats
    up: Floats


class Adapter:
    """A loaded adapter.

    Attributes:
        digest: of its weights and configuration; equal ones compute the same.
    """

    def __init__(self, deltas: Mapping[tuple[int, str], Sequence[Delta]], digest: bytes) -> None:
        """Hold deltas by layer and product."""
        self._deltas, self.digest = deltas, digest

    def add(self, layer: int, product: str, x: Floats, out: Floats) -> None:
        """Add to ``out`` [tokens, outputs], the product of ``x`` [tokens, inputs] with a layer's weights."""
        for delta in self._deltas.get((layer, product), ()):
            out[:, delta.start : delta.start + len(delta.up)] += (x @ delta.down.T) @ delta.up.T


def load_adapter(
    config: LlamaConfig,
    norms: Sequence[tuple[Floats, Floats]],
    weights: NDArray[np.float16],
    rows: NDArray[np.int32],
) -> Adapter:
    """Make an adapter of the tensors ``lora_weights`` [rows, width] and ``lora_config`` [rows, 3].

    A row of the configuration is module, layer and rank; the row of the weights holds A [rank, inputs], then B
    [outputs, rank] with the scale in it, then padding. The model's layer computes ``W + B @ A``.

    Args:
        config: of the model.
        norms: of each layer the weights of the norms before attention and before the MLP, which the model folds into
            what follows them.
        weights: as they arrived.
        rows: as they arrived.

    Raises:
        RejectedError: what does not fit the model, in TensorRT-LLM's words.
    """
    if weights.ndim != 2:
        raise RejectedError("Invalid shape for lora_weights tensor")
    if rows.ndim != 2 or rows.shape[1] != 3:
        raise RejectedError("Invalid shape for lora_keys tensor")
    if len(weights) != len(rows):
        raise RejectedError("Expected dim1 lora_weights and lora_keys to have the same size")
    places = _places(config)
    deltas: dict[tuple[int, str], list[Delta]] = {}
    for values, (module, layer, rank) in zip(weights, rows.tolist(), strict=True):
        place = _check(config, places, module, layer, rank, len(values))
        flat = values.astype(np.float32)
        down = flat[: rank * place.inputs].reshape(rank, place.inputs)
        up = flat[down.size : down.size + rank * place.outputs].reshape(place.outputs, rank)
        deltas.setdefault((layer, place.product), []).append(_fold(config, norms[layer], place, down, up))
    digest = hashlib.sha256(weights.tobytes() + rows.tobytes() + repr(weights.shape).encode()).digest()
    return Adapter(deltas, digest)


def _check(config: LlamaConfig, places: Places, module: int, layer: int, rank: int, width: int) -> Place:
    if not 0 <= layer < config.layers:
        raise RejectedError("lora_config: Expected layerId to be in the range [0, numModelLayers)")
    if rank < 1:
        raise RejectedError("lora_config: Expected adapterSize to be > 0")
    name = _NAMES.get(module, str(module))
    if module not in places:
        raise RejectedError(f"lora module {name} not enabled for this model")
    if rank > MAX_RANK:
        raise RejectedError(
            f"lora_config: Invalid low_rank ({rank}). low_rank must be smaller than mMaxLowRank ({MAX_RANK})"
        )
    place = places[module]
    if rank * (place.inputs + place.outputs) > width:
        raise RejectedError(f"lora_weights has to few values for {name}")
    return place


def _fold(config: LlamaConfig, norms: tuple[Floats, Floats], place: Place, down: Floats, up: Floats) -> Delta:
    """Do to an adapter what the model does to its own weights."""
    if place.product == "qkv":
        down = down * norms[0]
        scaled = max(config.heads * config.head_dim - place.start, 0)
        up = up.copy()
        up[:scaled] *= np.float32(config.head_dim**-0.5)  # the query's rows
    elif place.product == "gate_up":
        down = down * norms[1]
    return Delta(place.start, np.ascontiguousarray(down), np.ascontiguousarray(up))


def _places(config: LlamaConfig) -> Places:
    hidden, ffn = config.hidden, config.ffn
    query, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    return {
        0: Place("qkv", 0, hidden, query + 2 * kv),
        1: Place("qkv", 0, hidden, query),
        2: Place("qkv", query, hidden, kv),
        3: Place("qkv", query + kv, hidden, kv),
        4: Place("out", 0, query, hidden),
        5: Place("gate_up", 0, hidden, ffn),  # TensorRT-LLM's names: the gate's projection is h_to_4h,
        7: Place("gate_up", ffn, hidden, ffn),  # and the "gate" is what Hugging Face calls up_proj
        6: Place("down", 0, ffn, hidden),
    }


class _Held(NamedTuple):
    adapter: Adapter
    size: int


class AdapterCache:
    """A bounded cache of adapters. Not thread-safe: its engine's lock guards it.

    A request in flight keeps its adapter, also when that has left the cache.
    """

    def __init__(self, config: LlamaConfig, norms: Sequence[tuple[Floats, Floats]], capacity: int) -> None:
        """Make an empty cache.

        Args:
            config: of the model.
            norms: see `load_adapter`.
            capacity: bytes of weights kept at most, as they arrived.
        """
        self._config, self._norms, self._capacity = config, norms, capacity
        self._held: OrderedDict[int, _Held] = OrderedDict()

    def find(self, task: LoraTask) -> Adapter:
        """The adapter of a task; its weights are loaded where they come with it and are not held yet.

        Raises:
            RejectedError: weights that do not fit the model or the cache, or none where none are held.
        """
        held = self._held.get(task.id)
        if held is None:
            held = self._load(task)
        self._held.pop(task.id, None)
        while self._held and sum(one.size for one in self._held.values()) + held.size > self._capacity:
            self._held.popitem(last=False)
        self._held[task.id] = held
        return held.adapter

    def _load(self, task: LoraTask) -> _Held:
        if task.weights is None or task.rows is None:
            raise RejectedError(f"LoRA task {task.id} not found in cache. Please send LoRA weights with request")
        if task.weights.nbytes > self._capacity:
            raise RejectedError(f"PEFT Cache is full. Could not store taskId={task.id}")
        return _Held(load_adapter(self._config, self._norms, task.weights, task.rows), task.weights.nbytes)
