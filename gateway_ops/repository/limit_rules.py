"""Contradictions between lengths: of prompts, sequences, steps, caches and windows.

Sources: TensorRT-LLM's ``builder.py`` (what trtllm-build makes of lengths), ``trtGptModel.h`` (the longest prompt of an
engine: the smaller of ``max_seq_len - 1`` and, without chunked context, ``max_num_tokens``), and its documentation of
KV-cache reuse (blocks are powers of two).
"""

from __future__ import annotations

from collections.abc import Iterator

from gateway.config.deployment_settings import DeploymentSettings
from gateway_ops.repository.keys import Found
from gateway_ops.repository.model_shape import shape_of

MAX_NUM_TOKENS = 8192
"""What trtllm-build makes of a step where it is told nothing (``BuildConfig``)."""
_MORE = ", or a larger max_seq_len."


def find(deployment: DeploymentSettings) -> Iterator[Found]:
    """Contradictions of one deployment's lengths."""
    yield from _prompts(deployment)
    yield from _steps(deployment)
    yield from _cache(deployment)


def _prompts(deployment: DeploymentSettings) -> Iterator[Found]:
    prompt, longest = deployment.limits.max_input_len, deployment.limits.max_seq_len
    what = "max_seq_len, prompt plus answer, is"
    if longest is None:
        longest = shape_of(deployment.model).get("max_positions")
        what = "max_seq_len, prompt plus answer, is what the model was made for,"
    if prompt is None or not isinstance(longest, int):
        return
    if prompt > longest:
        yield "limits.max_input_len", f"it is {prompt}, but {what} {longest}", f"Take at most {longest - 1}{_MORE}"
    if prompt == longest:
        yield "limits.max_input_len", "it leaves no room for an answer", f"Take at most {longest - 1}{_MORE}"


def _steps(deployment: DeploymentSettings) -> Iterator[Found]:
    limits, key = deployment.limits, "limits.max_num_tokens"
    prompt, rows, step = limits.max_input_len, limits.max_batch_size, limits.max_num_tokens
    if step is not None and rows is not None and step < rows * limits.max_beam_width:
        yield key, f"{rows} sequences need a token each in a step of {step}", "Raise it, or lower max_batch_size."
    bound = step_bound(deployment)
    # Where max_input_len is not given, the engine takes prompts that fit into a step, as build_engines.sh says.
    if bound is not None and prompt is not None and bound < prompt:
        said = f"a step has {bound}" + (" where trtllm-build is told nothing" if step is None else "")
        reason = f"a prompt may have {prompt} tokens and is computed at once, but {said}"
        yield key, reason, "Set scheduler.chunked_context: true, raise max_num_tokens, or lower max_input_len."


def step_bound(deployment: DeploymentSettings) -> int | None:
    """Tokens of a step, beyond which a TensorRT engine takes no prompt; None where one is computed in pieces."""
    if deployment.engine != "tensorrt" or deployment.scheduler.chunked_context:
        return None
    packed = MAX_NUM_TOKENS if deployment.build.remove_input_padding else None
    return deployment.limits.max_num_tokens or packed


def _cache(deployment: DeploymentSettings) -> Iterator[Found]:
    cache, limits = deployment.kv_cache, deployment.limits
    windows, block = cache.max_attention_window, cache.tokens_per_block
    whole = isinstance(limits.max_seq_len, int)
    needed = limits.max_seq_len if isinstance(limits.max_seq_len, int) else limits.max_input_len
    held = min(needed, max(windows)) if windows and needed is not None else needed
    if cache.max_tokens is not None and held is not None and cache.max_tokens < held:
        what = f"one request of max_seq_len {needed}" if whole else f"one prompt of max_input_len {needed}"
        fix = f"Raise it, or lower {'max_seq_len' if whole else 'max_input_len'}."
        yield "kv_cache.max_tokens", f"{what} does not fit into {cache.max_tokens} tokens", fix
    if cache.sink_tokens and windows and cache.sink_tokens >= min(windows):
        reason = f"the {cache.sink_tokens} tokens that are always kept leave no room in a window of {min(windows)}"
        yield "kv_cache.sink_tokens", reason, "Lower it, or widen max_attention_window."
    if block is not None and block & (block - 1):
        near = 1 << (block.bit_length() - 1)
        reason = f"{block} is no power of two, as TensorRT-LLM's blocks are"
        yield "kv_cache.tokens_per_block", reason, f"Take {near} or {2 * near}."
