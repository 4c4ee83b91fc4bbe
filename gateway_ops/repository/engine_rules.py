"""Contradictions between settings of an engine, and between lengths of prompts, sequences, steps and caches.

Sources of the lengths: TensorRT-LLM's ``builder.py``, ``trtGptModel.h`` (the longest prompt of an engine: the smaller
of ``max_seq_len - 1`` and, without chunked context, ``max_num_tokens``), and its documentation of KV-cache reuse
(blocks are powers of two).
"""

from __future__ import annotations

from collections.abc import Iterator

from gateway.settings.deployment_settings import DeploymentSettings
from gateway_ops.repository.engine_parameters import STRUCTURAL_TAG
from gateway_ops.repository.key_paths import Found
from gateway_ops.repository.model_shape import shape_of

_FP8_ATTENTION = ("fp8", "w4a8_awq", "nvfp4")


def engine_contradictions(deployment: DeploymentSettings) -> Iterator[Found]:
    """Find contradictions within the settings of one deployment's engine."""
    yield from _lengths(deployment)
    yield from _streaming(deployment)
    yield from _decoding(deployment)
    yield from _kv_cache(deployment)
    yield from _lora(deployment)
    yield from _guides(deployment)
    yield from _rest(deployment)


def _streaming(deployment: DeploymentSettings) -> Iterator[Found]:
    if deployment.limits.max_beam_width > 1 and deployment.engine not in ("tensorrt", "llmapi"):
        reason = f"the engine {deployment.engine} does not support beam search"
        yield "limits.max_beam_width", reason, "Keep 1, or set engine: tensorrt or llmapi."
    elif deployment.limits.max_beam_width > 1 and deployment.decoding.mode == "auto":
        reason = "beams are chosen at the end, so they cannot be streamed, and the engine serves no other requests"
        fix = "Keep 1 for chat; for a deployment that serves only beam search, set decoding.mode: beam_search."
        yield "limits.max_beam_width", reason, fix
    if deployment.triton.instances.postprocessing > 1:
        reason = "streamed pieces would arrive out of order, and each instance would have only a part of the text"
        yield "triton.instances.postprocessing", reason, "Leave it 1."


def _decoding(deployment: DeploymentSettings) -> Iterator[Found]:
    mode, beams = deployment.decoding.mode, deployment.limits.max_beam_width
    if deployment.engine == "llmapi" and mode not in ("auto", "beam_search"):
        yield "decoding.mode", "the engine llmapi does not use it", "Leave it out."
        return
    if mode in ("top_k", "top_p"):
        reason = f"requests that send {'top_p' if mode == 'top_k' else 'top_k'} get empty responses in mode {mode}"
        yield "decoding.mode", reason, "Leave it auto."
    if mode == "beam_search" and beams == 1:
        yield "decoding.mode", "beam_search needs beams, and max_beam_width is 1", "Leave it auto, or allow beams."
    if mode == "top_k_top_p" and beams > 1:
        yield "decoding.mode", "max_beam_width has no effect with this mode", "Set beam_search, or max_beam_width 1."
    method = deployment.speculative.method if deployment.speculative is not None else None
    if mode in ("medusa", "redrafter", "lookahead", "eagle") and method != mode:
        yield "decoding.mode", f"mode {mode} has no settings under `speculative`", f"Set speculative.method: {mode}."


def _kv_cache(deployment: DeploymentSettings) -> Iterator[Found]:
    cache, native = deployment.kv_cache, deployment.engine == "tensorrt"
    if cache.reuse and deployment.logits.context is True and (native or deployment.engine == "llmapi"):
        # Wire contract 2.6.
        reason = "reused tokens are not computed again, so their logits are missing, and kv_cache.reuse is true"
        yield "logits.context", reason, "Set kv_cache.reuse: false, or leave the logits of prompts out."
    if native:
        yield from _paged_context(deployment)
        if cache.reuse and not deployment.build.paged_kv_cache:
            yield "kv_cache.reuse", "only a paged cache has blocks to reuse", "Set build.paged_kv_cache: true."
    if cache.host_memory_bytes and not cache.reuse:
        reason = "only reusable blocks are offloaded, and kv_cache.reuse is false"
        yield "kv_cache.host_memory_bytes", reason, "Set kv_cache.reuse: true, or leave it out."
    if cache.cross_fraction is not None and deployment.encoder is None:
        reason = "cross attention belongs to encoder-decoder models, and the model has no encoder"
        yield "kv_cache.cross_fraction", reason, "Leave it out."


def _paged_context(deployment: DeploymentSettings) -> Iterator[Found]:
    """Find settings that need paged context attention where others turn it off (TensorRT-LLM's ``builder.py``)."""
    cache = deployment.kv_cache
    because, fix = "", "Set build.paged_context_fmha: true, or this to false."
    if not deployment.build.paged_context_fmha:
        because = "build.paged_context_fmha is false"
    elif cache.dtype == "int8":
        because, fix = "an int8 cache disables it", "Leave kv_cache.dtype auto, or set this to false."
    elif cache.dtype == "fp8" and deployment.model.quantization not in _FP8_ATTENTION:
        because = f"a cache in fp8 with weights in {deployment.model.quantization} turns it off"
        fix = f"Set model.quantization to one of {', '.join(_FP8_ATTENTION)}, or this to false."
    needing = {"kv_cache.reuse": cache.reuse, "scheduler.chunked_context": deployment.scheduler.chunked_context}
    for key, on in needing.items():
        if on and because:
            yield key, f"it needs an engine with paged context attention, and {because}", fix


def _lora(deployment: DeploymentSettings) -> Iterator[Found]:
    lora, plugin = deployment.lora, deployment.build.lora_plugin
    if lora is not None and deployment.engine == "tensorrt" and plugin == "disable":
        reason = "the engine is built without the LoRA plugin (build.lora_plugin: disable)"
        yield "lora", reason, "Leave build.lora_plugin out, or leave out `lora`."
    if lora is None and plugin not in (None, "disable"):
        yield "build.lora_plugin", "it needs the section `lora`, which is missing", "Add `lora`, or leave this key out."
    if lora is not None and lora.optimal_adapter_size > lora.max_adapter_size:
        reason = f"it is {lora.optimal_adapter_size}, above max_adapter_size {lora.max_adapter_size}"
        yield "lora.optimal_adapter_size", reason, "Make it at most max_adapter_size."
    if lora is not None and lora.max_rank > lora.max_adapter_size:
        reason = f"an adapter of rank {lora.max_rank} is larger than max_adapter_size {lora.max_adapter_size}"
        yield "lora.max_rank", reason, "Make max_adapter_size at least max_rank."
    if lora is not None and lora.adapters and lora.prefetch_dir is None and deployment.engine == "tensorrt":
        reason = "adapters are converted into lora.prefetch_dir, which is missing"
        yield "lora.adapters", reason, "Name that folder, or leave the adapters to requests."
    relative = [folder for folder in lora.adapters.values() if not folder.startswith("/")] if lora is not None else []
    if relative:
        reason = f"{relative[0]!r} is relative to the working directory of the tool"
        yield "lora.adapters", reason, "Write absolute paths, as the image sees them."
    if lora is not None and deployment.engine == "llmapi" and lora.prefetch_dir is None:
        reason = "the LLM API does not accept adapters from requests, only from a folder on the server"
        yield "lora.prefetch_dir", reason, "Name that folder; its subfolders are named by task id."


def _guides(deployment: DeploymentSettings) -> Iterator[Found]:
    guided = deployment.guided_decoding
    if guided is None:
        return
    listed = "guide_types" in guided.model_fields_set
    if guided.backend == "llguidance" and listed and STRUCTURAL_TAG in guided.guide_types:
        yield (
            "guided_decoding.guide_types",
            f"llguidance does not support {STRUCTURAL_TAG}",
            "Leave it out of the list.",
        )
    if deployment.engine == "tensorrt":
        if listed:
            yield "guided_decoding.guide_types", "the C++ backend has a fixed list of guide kinds", "Leave it out."
        if guided.backend != "xgrammar":
            reason = f"the C++ backend supports only xgrammar, not {guided.backend}"
            yield "guided_decoding.backend", reason, "Set xgrammar."
        if guided.tokenizer_info is None:
            reason = "the C++ backend reads the tokenizer from a file of its own"
            fix = "Generate it with examples/generate_xgrammar_tokenizer_info.py, and set its path."
            yield "guided_decoding.tokenizer_info", reason, fix


def _rest(deployment: DeploymentSettings) -> Iterator[Found]:
    runtime, scheduler = deployment.runtime, deployment.scheduler
    if runtime.gpu_weights_percent < 1 and not deployment.build.weight_streaming:
        reason = "weights outside GPU memory need an engine with weight streaming"
        yield "runtime.gpu_weights_percent", reason, "Set build.weight_streaming: true, or leave it 1."
    if runtime.cuda_graph_cache_size and not runtime.cuda_graph_mode:
        yield "runtime.cuda_graph_cache_size", "cuda_graph_mode is false", "Set runtime.cuda_graph_mode: true."
    if scheduler.batching == "V1" and scheduler.chunked_context:
        yield "scheduler.chunked_context", "V1 batching computes prompts whole", "Set inflight_fused_batching."
    if scheduler.batching != "V1" and not deployment.build.remove_input_padding:
        reason = "in-flight batching needs an engine with packed prompts"
        yield "build.remove_input_padding", reason, "Set it true."


MAX_NUM_TOKENS = 8192
"""The default of trtllm-build for the tokens of a step (``BuildConfig``)."""
_MORE = ", or a larger max_seq_len."


def _lengths(deployment: DeploymentSettings) -> Iterator[Found]:
    """Find contradictions between one deployment's lengths."""
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
        yield "limits.max_input_len", "it leaves no tokens for an answer", f"Take at most {longest - 1}{_MORE}"


def _steps(deployment: DeploymentSettings) -> Iterator[Found]:
    limits, key = deployment.limits, "limits.max_num_tokens"
    prompt, rows, step = limits.max_input_len, limits.max_batch_size, limits.max_num_tokens
    if step is not None and rows is not None and step < rows * limits.max_beam_width:
        yield key, f"{rows} sequences need a token each in a step of {step}", "Raise it, or lower max_batch_size."
    bound = step_bound(deployment)
    # Where max_input_len is not given, the engine takes prompts that fit into a step, as build_engines.sh says.
    if bound is not None and prompt is not None and bound < prompt:
        said = f"a step has {bound}" + (", the default of trtllm-build" if step is None else "")
        reason = f"a prompt may have {prompt} tokens and is computed in one step, but {said}"
        yield key, reason, "Set scheduler.chunked_context: true, raise max_num_tokens, or lower max_input_len."


def step_bound(deployment: DeploymentSettings) -> int | None:
    """The tokens of a step, which bound prompts of a TensorRT engine; None with chunked context."""
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
        reason = f"the {cache.sink_tokens} sink tokens leave no room in an attention window of {min(windows)}"
        yield "kv_cache.sink_tokens", reason, "Lower it, or widen max_attention_window."
    if block is not None and block & (block - 1):
        near = 1 << (block.bit_length() - 1)
        reason = f"{block} is not a power of two, as TensorRT-LLM's blocks are"
        yield "kv_cache.tokens_per_block", reason, f"Take {near} or {2 * near}."
