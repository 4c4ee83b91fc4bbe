"""Llama in float32 NumPy: weights from a Hugging Face folder, and one forward pass for many sequences."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cpu_double.kv_cache import Floats, KVCache
from cpu_double.llama_config import LlamaConfig
from cpu_double.safetensors import Weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cpu_double.lora import Adapter

# A matrix product copies all of its weights first. For a few tokens a product with each of them is faster, by blocks of
# the weights that stay in a core's own cache in between.
_FEW = 7
_BLOCK_BYTES = 3 << 17
_LONG = 256  # tokens from which the same holds for keys and values


class Chunk(NamedTuple):
    """Tokens to append to one sequence.

    Attributes:
        ids: the next token ids, at least one.
        cache: the sequence's cache; the pass extends it.
        logits: for how many of the last positions logits are wanted.
        adapter: added to the model's weights.
        table: [rows, hidden], what stands for the ids beyond the vocabulary.
    """

    ids: Sequence[int]
    cache: KVCache
    logits: int
    adapter: Adapter | None = None
    table: Floats | None = None


class _Layer(NamedTuple):
    """Weights in [out, in] layout, as BLAS reads them fastest for one row; norms are folded into what follows them."""

    qkv: Floats
    out: Floats
    gate_up: Floats
    down: Floats


class Llama:
    """A Llama model; float32, stateless but for the caches handed in."""

    def __init__(self, folder: Path) -> None:
        """Load the model.

        Raises:
            ModelError: what is missing or not supported, by name.
        """
        self.config = config = LlamaConfig.load(folder)
        weights = Weights(folder)
        self._embedding = weights.take("model.embed_tokens.weight", (config.vocab, config.hidden))
        self._head = self._embedding
        if not config.tied:
            self._head = weights.take("lm_head.weight", (config.vocab, config.hidden))
        self._norm = weights.take("model.norm.weight", (config.hidden,))
        self._layers = [_load_layer(config, weights, f"model.layers.{i}.") for i in range(config.layers)]
        self.norms = [_load_norms(config, weights, f"model.layers.{i}.") for i in range(config.layers)]
        half = np.arange(0, config.head_dim, 2, dtype=np.float64) / config.head_dim
        angles = np.outer(np.arange(config.max_positions), config.theta**-half)
        self._cos = np.cos(angles).astype(np.float32)[:, None, :]
        self._sin = np.sin(angles).astype(np.float32)[:, None, :]

    def new_cache(self) -> KVCache:
        """An empty cache for one sequence."""
        return KVCache(self.config)

    def cost(self, past: int) -> float:
        """The work for a token behind ``past`` others, in that for the first one of a sequence."""
        config = self.config
        width = config.heads * config.head_dim
        projections = 2 * width + 2 * config.kv_heads * config.head_dim + 3 * config.ffn
        return 1.0 + past * 2 * width / (config.hidden * projections)

    def forward(self, chunks: Sequence[Chunk]) -> Floats:
        """Append every chunk to its sequence in one pass.

        Returns:
            Logits [sum of ``chunk.logits``, vocab], in the order of the chunks.
        """
        ids = np.concatenate([np.asarray(chunk.ids, np.int64) for chunk in chunks])
        positions = np.concatenate(
            [np.arange(chunk.cache.length, chunk.cache.length + len(chunk.ids)) for chunk in chunks]
        )
        for chunk in chunks:
            chunk.cache.reserve(chunk.cache.length + len(chunk.ids))
        rotation = self._cos[positions], self._sin[positions]
        x = self._embed(ids, chunks)
        with np.errstate(over="ignore"):  # exp in SiLU: the limit is right
            for index, layer in enumerate(self._layers):
                x += self._attention(index, layer, _normalise(x, self.config.eps), rotation, chunks)
                x += self._mlp(index, layer, _normalise(x, self.config.eps), _adapted(chunks))
        for chunk in chunks:
            chunk.cache.length += len(chunk.ids)
        ends = np.cumsum([len(chunk.ids) for chunk in chunks])
        rows = np.concatenate([np.arange(end - chunk.logits, end) for end, chunk in zip(ends, chunks, strict=True)])
        hidden = _normalise(x[rows], self.config.eps) * self._norm
        return _product(hidden, self._head)

    def _embed(self, ids: NDArray[np.int64], chunks: Sequence[Chunk]) -> Floats:
        vocab = self.config.vocab
        x: Floats = self._embedding[np.where(ids < vocab, ids, 0)]
        start = 0
        for chunk in chunks:
            end = start + len(chunk.ids)
            if chunk.table is not None:
                virtual = np.flatnonzero(ids[start:end] >= vocab)
                x[start + virtual] = chunk.table[ids[start + virtual] - vocab]
            start = end
        return x

    def _mlp(self, index: int, layer: _Layer, x: Floats, chunks: Sequence[Chunk]) -> Floats:
        gate_up = _product(x, layer.gate_up)
        _add_adapters(chunks, index, "gate_up", x, gate_up)
        gate, up = gate_up[:, : self.config.ffn], gate_up[:, self.config.ffn :]
        inner = np.exp(-gate)
        inner += 1
        np.divide(gate, inner, out=inner)
        inner *= up
        out = _product(inner, layer.down)
        _add_adapters(chunks, index, "down", inner, out)
        return out

    def _attention(
        self, index: int, layer: _Layer, x: Floats, rotation: tuple[Floats, Floats], chunks: Sequence[Chunk]
    ) -> Floats:
        config = self.config
        rotated = config.heads + config.kv_heads
        product = _product(x, layer.qkv)
        adapted = _adapted(chunks)
        _add_adapters(adapted, index, "qkv", x, product)
        qkv = product.reshape(len(x), rotated + config.kv_heads, config.head_dim)
        _rotate(qkv[:, :rotated], *rotation)
        mixed = np.empty((len(x), config.heads, config.head_dim), np.float32)
        start = 0
        for chunk in chunks:
            end = start + len(chunk.ids)
            past, total = chunk.cache.length, chunk.cache.length + len(chunk.ids)
            keys, values = chunk.cache.keys[index], chunk.cache.values[index]
            keys[:, past:total] = qkv[start:end, config.heads : rotated].swapaxes(0, 1)
            values[:, past:total] = qkv[start:end, rotated:].swapaxes(0, 1)
            attend = _attend_last if len(chunk.ids) == 1 and total >= _LONG else _attend
            mixed[start:end] = attend(qkv[start:end, : config.heads], keys[:, :total], values[:, :total])
            start = end
        flat = mixed.reshape(len(x), -1)
        out = _product(flat, layer.out)
        _add_adapters(adapted, index, "out", flat, out)
        return out


def _adapted(chunks: Sequence[Chunk]) -> Sequence[Chunk]:
    """The chunks where one of them has an adapter, else none: then there is nothing to go through."""
    return chunks if any(chunk.adapter is not None for chunk in chunks) else ()


def _load_layer(config: LlamaConfig, weights: Weights, prefix: str) -> _Layer:
    d, width, kv_width = config.hidden, config.heads * config.head_dim, config.kv_heads * config.head_dim

    def fused(norm: str, *parts: tuple[str, int]) -> Floats:
        stacked = np.concatenate([weights.take(f"{prefix}{name}.weight", (rows, d)) for name, rows in parts])
        scaled: Floats = stacked * weights.take(f"{prefix}{norm}.weight", (d,))
        return scaled

    # 1/sqrt(head_dim) belongs to the scores; in the query rows it costs nothing.
    qkv = fused(
        "input_layernorm",
        ("self_attn.q_proj", width),
        ("self_attn.k_proj", kv_width),
        ("self_attn.v_proj", kv_width),
    )
    qkv[:width] *= np.float32(config.head_dim**-0.5)
    return _Layer(
        qkv=qkv,
        out=weights.take(f"{prefix}self_attn.o_proj.weight", (d, width)),
        gate_up=fused("post_attention_layernorm", ("mlp.gate_proj", config.ffn), ("mlp.up_proj", config.ffn)),
        down=weights.take(f"{prefix}mlp.down_proj.weight", (d, config.ffn)),
    )


def _load_norms(config: LlamaConfig, weights: Weights, prefix: str) -> tuple[Floats, Floats]:
    """The weights of a layer's two norms, which adapters need: the model's own have them folded in."""
    names = ("input_layernorm", "post_attention_layernorm")
    before_attention, before_mlp = (weights.take(f"{prefix}{name}.weight", (config.hidden,)) for name in names)
    return before_attention, before_mlp


def _product(x: Floats, weights: Floats) -> Floats:
    """``x @ weights.T``, for ``x`` [tokens, in] and ``weights`` [out, in]."""
    if not 1 < len(x) <= _FEW:
        out: Floats = x @ weights.T
        return out
    out = np.empty((len(x), len(weights)), np.float32)
    step = max(1, _BLOCK_BYTES // weights[0].nbytes)
    for start in range(0, len(weights), step):
        block = weights[start : start + step]
        for row, into in zip(x, out[:, start : start + step], strict=True):
            np.dot(block, row, out=into)
    return out


def _normalise(x: Floats, eps: float) -> Floats:
    """RMSNorm without its weights, over the last axis."""
    scaled: Floats = x / np.sqrt(np.einsum("ij,ij->i", x, x)[:, None] / np.float32(x.shape[1]) + np.float32(eps))
    return scaled


def _rotate(x: Floats, cos: Floats, sin: Floats) -> None:
    """RoPE in place, half-rotated layout: x [tokens, heads, head_dim], cos and sin [tokens, 1, head_dim / 2]."""
    half = x.shape[2] // 2
    first, second = x[:, :, :half], x[:, :, half:]
    turned = first * cos - second * sin
    second[...] = second * cos + first * sin
    first[...] = turned


def _attend(query: Floats, keys: Floats, values: Floats) -> Floats:
    """Causal attention of the last tokens of one sequence.

    Args:
        query: [tokens, heads, head_dim], already scaled.
        keys: [kv_heads, total, head_dim].
        values: the same.

    Returns:
        [tokens, heads, head_dim].
    """
    tokens, heads, head_dim = query.shape
    kv_heads, total, _ = keys.shape
    group = heads // kv_heads
    # Heads of one group share keys, so they stack into one matrix per KV head.
    stacked = query.reshape(tokens, kv_heads, group, head_dim).transpose(1, 2, 0, 3)
    scores = stacked.reshape(kv_heads, group * tokens, head_dim) @ keys.swapaxes(1, 2)
    if tokens > 1:
        future = np.arange(total)[None, :] > np.arange(total - tokens, total)[:, None]
        scores.reshape(kv_heads, group, tokens, total)[:, :, future] = -np.inf
    scores -= scores.max(axis=2, keepdims=True)
    np.exp(scores, out=scores)
    mixed = (scores @ values) / scores.sum(axis=2, keepdims=True)
    out: Floats = mixed.reshape(kv_heads, group, tokens, head_dim).transpose(2, 0, 1, 3).reshape(query.shape)
    return out


def _attend_last(query: Floats, keys: Floats, values: Floats) -> Floats:
    """The same for one token, head by head: each is a product with a vector, which BLAS reads without copies."""
    group = query.shape[1] // len(keys)
    scores = np.empty((query.shape[1], keys.shape[1]), np.float32)
    out = np.empty_like(query)
    for head, row in enumerate(query[0]):
        np.dot(keys[head // group], row, out=scores[head])
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    for head, row in enumerate(scores):
        np.dot(row, values[head // group], out=out[0, head])
    out[0] /= scores.sum(axis=1, keepdims=True)
    return out


def _add_adapters(chunks: Sequence[Chunk], layer: int, product: str, x: Floats, out: Floats) -> None:
    """Add each chunk's adapter to its own rows of ``out``; ``x`` and ``out`` hold the rows of all chunks in order.

    Args:
        chunks: of the pass; none where no chunk has an adapter.
        layer: index of the layer.
        product: its name, see `cpu_double.lora.Place`.
        x: [tokens, inputs].
        out: [tokens, outputs].
    """
    start = 0
    for chunk in chunks:
        end = start + len(chunk.ids)
        if chunk.adapter is not None:
            chunk.adapter.add(layer, product, x[start:end], out[start:end])
        start = end
