"""Estimates the memory that an engine takes of each GPU, before a build.

Weights and KV cache follow from the model's shape. Activations and buffers do not: their factors cover the three logs
of TensorRT-LLM that could be read, and are rough for other models; `docs/how-to/deployments.md` says how far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.settings.deployment_settings import DeploymentSettings
from gateway_ops.engines.config_sizes import kv_heads_of, latent_of, whole_number
from gateway_ops.engines.weights import Weights
from gateway_ops.repository.build_steps import prepares_checkpoint
from gateway_ops.repository.engine_rules import MAX_NUM_TOKENS

# Bytes of a matrix's parameter by quantisation; AWQ and NVFP4 have scales for groups beside them.
_LINEAR_BYTES = {"fp8": 1.0, "int8_sq": 1.0, "int8_wo": 1.0, "int4_wo": 0.5, "nvfp4": 0.5 + 1 / 16}
_SCALE_BYTES = 2
# Float16 activations for each token of a step and column of a layer's widest matrix. Logs with 8192 tokens:
# 1134 MiB (docs/source/reference/memory.md, Llama 2 7B in FP8), 929 MiB (trtllm-bench of 0.12, the same model),
# 922 MiB (0.17, a Qwen2 of 1.5B in int4): 6.6, 5.4 and 6.6.
_ACTIVATION_COLUMNS = 6.6
# Floats of runtime and decoder buffers for each sequence and token of the vocabulary: trtllm-bench of 0.12 had 5.5 GB
# for 4096 sequences of a vocabulary of 32000, 10.5 of them. Newer versions take less.
_BUFFER_COLUMNS = 10.5
# What driver, CUDA, cuBLAS and NCCL took in the log of memory.md: of the 79.65 GiB that nvidia-smi has of an H100 CUDA
# sees 79.10, less what the log lists and what was left.
_CONTEXT_BYTES = int(1.3 * 2**30)


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes of a model that determine its cache and activations.

    Attributes:
        latent: numbers per token and layer in the cache, with latent attention (MLA); 0 for other kinds.
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocab: int
    positions: int | None
    latent: int = 0


def shape_from(config: dict[str, Any]) -> ModelShape | None:
    """Read the sizes of a ``config.json``; None where some are missing."""
    hidden = whole_number(config, "hidden_size", "n_embd") or 0
    layers = whole_number(config, "num_hidden_layers", "n_layer") or 0
    heads = whole_number(config, "num_attention_heads", "n_head") or 0
    vocab = whole_number(config, "vocab_size") or 0
    if 0 in (hidden, layers, heads, vocab) or heads > hidden:
        return None
    inner = whole_number(config, "moe_intermediate_size", "intermediate_size", "n_inner") or 4 * hidden
    inner *= whole_number(config, "num_experts_per_tok") or 1
    kv_heads = kv_heads_of(config, heads)
    head_dim = whole_number(config, "head_dim") or hidden // heads
    positions = whole_number(config, "max_position_embeddings", "n_positions")
    return ModelShape(hidden, layers, heads, kv_heads, head_dim, inner, vocab, positions, latent_of(config))


@dataclass(frozen=True, slots=True)
class Estimate:
    """The memory of an engine on one GPU in bytes, and the capacity of its cache.

    Attributes:
        weights: bytes of the rank with the largest share.
        activations: bytes of one step; estimated.
        buffers: bytes of runtime and decoder; estimated.
        context: bytes of CUDA and its libraries; estimated.
        kv_token: bytes of the cache for one token.
        longest: tokens of the longest sequence.
        held: tokens of the longest sequence that the cache holds, by the windows of attention; the mean of the layers.
        sequences: most simultaneous sequences.
        checkpoint: bytes on disk of the converted checkpoint, all ranks together; 0 without one.
        engine: bytes on disk of the engine, all ranks together; 0 without one.
        pool_bound: most tokens of the cache, whatever is free; None without a bound.
    """

    weights: int
    activations: int
    buffers: int
    context: int
    kv_token: int
    longest: int
    held: int
    sequences: int
    checkpoint: int
    engine: int
    pool_bound: int | None = field(default=None)

    @property
    def fixed(self) -> int:
        """The bytes in use before the cache is made."""
        return self.weights + self.activations + self.buffers + self.context

    @property
    def kv_sequence(self) -> int:
        """Bytes of the cache for one sequence of full length."""
        return self.kv_token * self.held

    @property
    def kv_full_load(self) -> int:
        """Bytes of the cache for the most simultaneous sequences, at full length."""
        return self.kv_sequence * self.sequences


def weight_bytes(weights: Weights, deployment: DeploymentSettings, *, ranks: bool = True) -> int:
    """Bytes of the weights on the GPU with the most; of all weights together without ``ranks``.

    The layers are shared by all GPUs, the output's matrix by those of one stage; each GPU of the first stage has the
    whole table of the input (``use_parallel_embedding`` is off in the converters). A TensorRT engine has that table a
    second time where it serves as output as well; the LLM API has it once (``modeling_utils.py``: the head's weight is
    the table's).
    """
    model, parallelism = deployment.model, deployment.parallelism
    plain = 4 if model.dtype == "float32" else 2
    tp, pp = (parallelism.tp, parallelism.pp) if ranks else (1, 1)
    if weights.quantised and weights.stored_bytes is not None:
        return math.ceil(weights.stored_bytes / (tp * pp))
    per_parameter = _LINEAR_BYTES.get(model.quantization, float(plain))
    if model.quantization.endswith("awq"):
        per_parameter = 0.5 + _SCALE_BYTES / deployment.build.awq_block_size
    linear = weights.linear * per_parameter / (tp * pp)
    tied = 0 if deployment.engine == "llmapi" and pp == 1 else weights.embedding
    head = (weights.head or tied) / tp
    ends = weights.embedding + head if pp == 1 else max(weights.embedding, head)
    share = deployment.runtime.gpu_weights_percent if ranks else 1.0
    return math.ceil((linear + plain * (ends + weights.rest / pp)) * share)


def estimate(deployment: DeploymentSettings, shape: ModelShape, weights: Weights) -> Estimate:
    """Estimate the memory of a deployment on each of its GPUs."""
    limits, parallelism, cache = deployment.limits, deployment.parallelism, deployment.kv_cache
    sequences = limits.max_batch_size or deployment.triton.max_batch_size
    longest = limits.max_seq_len if isinstance(limits.max_seq_len, int) else shape.positions or MAX_NUM_TOKENS
    tokens = limits.max_num_tokens or MAX_NUM_TOKENS
    if not deployment.build.remove_input_padding:
        tokens = max(tokens, sequences * (limits.max_input_len or longest))
    columns = max(math.ceil(shape.inner / parallelism.tp), shape.hidden)
    kv_bytes = 1 if cache.dtype in ("fp8", "int8") else 4 if deployment.model.dtype == "float32" else 2
    # Every GPU has the latent of all heads; other keys and values are shared by heads.
    columns_kept = shape.latent or 2 * math.ceil(shape.kv_heads / parallelism.tp) * shape.head_dim
    layers = math.ceil(shape.layers / parallelism.pp)
    whole = weight_bytes(weights, deployment, ranks=False)
    per_gpu = weight_bytes(weights, deployment)
    return Estimate(
        weights=per_gpu,
        activations=int(2 * tokens * columns * _ACTIVATION_COLUMNS),
        buffers=int(4 * sequences * limits.max_beam_width * shape.vocab * _BUFFER_COLUMNS),
        context=_CONTEXT_BYTES,
        kv_token=layers * columns_kept * kv_bytes,
        longest=longest,
        held=_held(longest, cache.max_attention_window, shape.layers),
        sequences=sequences * limits.max_beam_width,
        checkpoint=whole if deployment.engine == "tensorrt" or prepares_checkpoint(deployment) else 0,
        engine=per_gpu * parallelism.tp * parallelism.pp if deployment.engine == "tensorrt" else 0,
        pool_bound=cache.max_tokens,
    )


def _held(longest: int, windows: Sequence[int], layers: int) -> int:
    """Tokens of a sequence that the cache keeps, as the mean of layers whose windows come in turn."""
    if not windows:
        return longest
    kept = sum(min(longest, windows[layer % len(windows)]) for layer in range(layers))
    return math.ceil(kept / layers)


def pool_bytes(estimate: Estimate, free: int, deployment: DeploymentSettings) -> int:
    """Bytes of the cache, which is made from the free memory after loading."""
    share = int(max(0, free) * deployment.kv_cache.free_gpu_mem_fraction)
    return share if estimate.pool_bound is None else min(share, estimate.pool_bound * estimate.kv_token)
