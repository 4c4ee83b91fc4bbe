"""Contradictions between an engine's settings."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.config.deployment import DeploymentSettings
from gateway.config.deployment_engine import SpeculativeSettings

Found = tuple[str, str, str]
"""Key path within the deployment, reason, fix."""


def find(deployment: DeploymentSettings) -> Iterator[Found]:
    """Contradictions within the settings of one deployment's engine."""
    yield from _limits(deployment)
    yield from _streaming(deployment)
    yield from _decoding(deployment)
    yield from _kv_cache(deployment)
    yield from _lora_and_guides(deployment)
    if deployment.speculative is not None:
        yield from _speculative(deployment, deployment.speculative)
    yield from _rest(deployment)


def _limits(deployment: DeploymentSettings) -> Iterator[Found]:
    limits = deployment.limits
    longest = limits.max_seq_len if isinstance(limits.max_seq_len, int) else None
    if longest is not None and limits.max_input_len is not None and limits.max_input_len > longest:
        reason = f"it is {limits.max_input_len}, but max_seq_len, prompt plus answer, is {longest}"
        yield "limits.max_input_len", reason, f"Take at most {longest - 1}, or a larger max_seq_len."
    if longest is not None and longest == limits.max_input_len:
        yield "limits.max_input_len", "it leaves no room for an answer", "Make max_seq_len larger than max_input_len."
    prompt, step = limits.max_input_len or longest, limits.max_num_tokens
    whole = deployment.engine == "tensorrt" and not deployment.scheduler.chunked_context
    if step is not None and prompt is not None and whole and step < prompt:
        reason = f"a prompt may have {prompt} tokens and is computed at once, but a step has {step}"
        yield "limits.max_num_tokens", reason, "Set scheduler.chunked_context: true, or raise max_num_tokens."
    if step is not None and limits.max_batch_size is not None and step < limits.max_batch_size * limits.max_beam_width:
        reason = f"{limits.max_batch_size} sequences need a token each in a step of {step}"
        yield "limits.max_num_tokens", reason, "Raise it, or lower max_batch_size."


def _streaming(deployment: DeploymentSettings) -> Iterator[Found]:
    if deployment.limits.max_beam_width > 1 and deployment.engine != "tensorrt":
        reason = f"the engine {deployment.engine} searches no beams"
        yield "limits.max_beam_width", reason, "Leave it 1, or set engine: tensorrt."
    elif deployment.limits.max_beam_width > 1 and deployment.decoding.mode == "auto":
        reason = (
            "beams are chosen at the end, so they cannot be streamed, and with them the engine decodes by beams alone"
        )
        fix = "Keep 1 for chat; a deployment for beam search alone says so with decoding.mode: beam_search."
        yield "limits.max_beam_width", reason, fix
    if not deployment.triton.decoupled:
        # Requests for beams as well: they ask for no stream, and get one response (contract, section 3.2).
        reason = "the gateway streams, and serves no model that is not decoupled"
        yield "triton.decoupled", reason, "Leave it true, for beam search too."
    if deployment.triton.instances.postprocessing > 1:
        reason = "streamed pieces would overtake each other, and each instance would know a part of the text"
        yield "triton.instances.postprocessing", reason, "Leave it 1."


def _decoding(deployment: DeploymentSettings) -> Iterator[Found]:
    mode, beams = deployment.decoding.mode, deployment.limits.max_beam_width
    if mode in ("top_k", "top_p"):
        reason = f"requests that send {'top_p' if mode == 'top_k' else 'top_k'} come back empty in mode {mode}"
        yield "decoding.mode", reason, "Leave it auto."
    if mode == "beam_search" and beams == 1:
        yield "decoding.mode", "beam_search needs beams, and max_beam_width is 1", "Leave it auto, or allow beams."
    if mode == "top_k_top_p" and beams > 1:
        yield "decoding.mode", "it makes max_beam_width without effect", "Set beam_search, or max_beam_width 1."
    method = deployment.speculative.method if deployment.speculative is not None else None
    if mode in ("medusa", "redrafter", "lookahead", "eagle") and method != mode:
        yield "decoding.mode", f"mode {mode} has no settings under `speculative`", f"Set speculative.method: {mode}."


def _kv_cache(deployment: DeploymentSettings) -> Iterator[Found]:
    cache, build = deployment.kv_cache, deployment.build
    native = deployment.engine == "tensorrt"
    longest = deployment.limits.max_seq_len
    if native and not build.paged_context_fmha:
        for on, key in (
            (cache.reuse, "kv_cache.reuse"),
            (deployment.scheduler.chunked_context, "scheduler.chunked_context"),
        ):
            if on:
                reason = "it needs an engine with paged context attention, and build.paged_context_fmha is false"
                yield key, reason, "Set build.paged_context_fmha: true, or this to false."
    if native and cache.reuse and not build.paged_kv_cache:
        yield "kv_cache.reuse", "only a paged cache has blocks to reuse", "Set build.paged_kv_cache: true."
    if cache.host_memory_bytes and not cache.reuse:
        reason = "only reusable blocks are offloaded, and kv_cache.reuse is false"
        yield "kv_cache.host_memory_bytes", reason, "Set kv_cache.reuse: true, or leave it out."
    window = max(cache.max_attention_window, default=None)
    if cache.max_tokens is not None and isinstance(longest, int) and cache.max_tokens < min(longest, window or longest):
        reason = f"one request of max_seq_len {longest} does not fit into {cache.max_tokens} tokens"
        yield "kv_cache.max_tokens", reason, "Raise it, or lower max_seq_len."
    if cache.cross_fraction is not None and deployment.encoder is None:
        reason = "cross attention belongs to encoder-decoder models, and there is no encoder"
        yield "kv_cache.cross_fraction", reason, "Leave it out."


def _lora_and_guides(deployment: DeploymentSettings) -> Iterator[Found]:
    lora, guided, native = deployment.lora, deployment.guided_decoding, deployment.engine == "tensorrt"
    plugin = deployment.build.lora_plugin
    if lora is not None and native and plugin == "disable":
        reason = "the engine is built without the LoRA plugin (build.lora_plugin: disable)"
        yield "lora", reason, "Leave build.lora_plugin out, or leave out `lora`."
    if lora is None and plugin not in (None, "disable"):
        yield "build.lora_plugin", "there is no section `lora` that says what it is for", "Add `lora`, or leave it out."
    if lora is not None and lora.optimal_adapter_size > lora.max_adapter_size:
        reason = f"it is {lora.optimal_adapter_size}, above max_adapter_size {lora.max_adapter_size}"
        yield "lora.optimal_adapter_size", reason, "Make it at most max_adapter_size."
    if lora is not None and lora.max_rank > lora.max_adapter_size:
        reason = f"an adapter of rank {lora.max_rank} is larger than max_adapter_size {lora.max_adapter_size}"
        yield "lora.max_rank", reason, "Make max_adapter_size at least max_rank."
    if lora is not None and deployment.engine == "llmapi" and lora.prefetch_dir is None:
        reason = "the LLM API takes no adapters from requests, only those of a folder of the server's"
        yield "lora.prefetch_dir", reason, "Name that folder; its subfolders are named by task id."
    if guided is not None and native:
        if "guide_types" in guided.model_fields_set:
            yield "guided_decoding.guide_types", "the C++ backend has its own kinds of guides", "Leave it out."
        if guided.backend != "xgrammar":
            reason = f"the C++ backend knows xgrammar only, not {guided.backend}"
            yield "guided_decoding.backend", reason, "Set xgrammar."
        if guided.tokenizer_info is None:
            reason = "the C++ backend reads the tokenizer from a file of its own"
            fix = "Make it with examples/generate_xgrammar_tokenizer_info.py and name it."
            yield "guided_decoding.tokenizer_info", reason, fix


def _speculative(deployment: DeploymentSettings, speculative: SpeculativeSettings) -> Iterator[Found]:
    method = speculative.method
    if deployment.engine != "tensorrt" and method != "draft_target":
        reason = f"{method} is rendered for TensorRT engines only"
        yield "speculative.method", reason, "Set engine: tensorrt, or leave it out."
    if deployment.engine in ("llmapi", "transformers"):
        reason = f"the engine {deployment.engine} takes no guessed tokens"
        yield "speculative", reason, "Set engine: tensorrt, or leave it out."
    belongs = {
        "draft": "draft_target",
        "fast_logits": "draft_target",
        "medusa_choices": "medusa",
        "eagle_choices": "eagle",
        **dict.fromkeys(("window_size", "ngram_size", "verification_set_size"), "lookahead"),
    }
    for key, owner in belongs.items():
        if getattr(speculative, key) and owner != method:
            yield f"speculative.{key}", f"it belongs to method {owner}, and this is {method}", "Leave it out."
    sizes = (speculative.window_size, speculative.ngram_size, speculative.verification_set_size)
    if method == "lookahead" and None in sizes:
        yield "speculative", "lookahead needs its three sizes", "Set window_size, ngram_size and verification_set_size."
    if deployment.limits.max_beam_width > 1:
        yield "speculative", "speculative decoding has no beams", "Set limits.max_beam_width: 1."
    if method == "draft_target" and not deployment.bls.enabled:
        yield "bls.enabled", "tensorrt_llm_bls drives the draft model", "Leave it true."


def _rest(deployment: DeploymentSettings) -> Iterator[Found]:
    runtime, scheduler = deployment.runtime, deployment.scheduler
    if runtime.gpu_weights_percent < 1 and not deployment.build.weight_streaming:
        reason = "weights outside the GPU need an engine that streams them"
        yield "runtime.gpu_weights_percent", reason, "Set build.weight_streaming: true, or leave it 1."
    if runtime.cuda_graph_cache_size and not runtime.cuda_graph_mode:
        yield "runtime.cuda_graph_cache_size", "cuda_graph_mode is false", "Set runtime.cuda_graph_mode: true."
    if scheduler.batching == "V1" and scheduler.chunked_context:
        yield "scheduler.chunked_context", "V1 batching computes prompts whole", "Set inflight_fused_batching."
    if scheduler.batching != "V1" and not deployment.build.remove_input_padding:
        reason = "in-flight batching needs an engine with packed prompts"
        yield "build.remove_input_padding", reason, "Set it true."
