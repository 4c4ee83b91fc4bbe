"""The keys of a deployment that each of the project's Python engines reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gateway.settings.deployment_settings import DeploymentSettings
from gateway_ops.repository.key_paths import Found, given_keys, value_at

LLMAPI, TRANSFORMERS, REFERENCE = "llmapi", "transformers", "reference"
ENGINES = (LLMAPI, TRANSFORMERS, REFERENCE)


@dataclass(frozen=True, slots=True)
class EngineParameter:
    """A parameter of the engine model that a key sets.

    Attributes:
        name: its name.
        key: the key of a deployment that sets it.
        readers: the engines whose sources read the parameter, as a test verifies
            (`tests/gateway_ops/repository/test_engine_keys.py`).
    """

    name: str
    key: str
    readers: tuple[str, ...]


PARAMETERS: tuple[EngineParameter, ...] = (
    EngineParameter("max_seq_len", "limits.max_seq_len", ENGINES),
    EngineParameter("exclude_input_in_output", "decoding.exclude_input_in_output", ENGINES),
    EngineParameter("enable_kv_cache_reuse", "kv_cache.reuse", ENGINES),
    EngineParameter("cancellation_check_period_ms", "runtime.cancellation_check_period_ms", ENGINES),
    EngineParameter("tokens_per_block", "kv_cache.tokens_per_block", (LLMAPI, REFERENCE)),
    EngineParameter("dtype", "model.dtype", (LLMAPI, TRANSFORMERS)),
    EngineParameter("max_batch_size", "limits.max_batch_size", (LLMAPI, TRANSFORMERS)),
    EngineParameter("max_queue_size", "triton.max_queue_size", (LLMAPI, TRANSFORMERS)),
    EngineParameter("kv_cache_free_gpu_mem_fraction", "kv_cache.free_gpu_mem_fraction", (LLMAPI, TRANSFORMERS)),
    EngineParameter("tensor_parallel_size", "parallelism.tp", (LLMAPI,)),
    EngineParameter("gpu_device_ids", "triton.gpu_ids", (LLMAPI, TRANSFORMERS)),
    EngineParameter("max_beam_width", "limits.max_beam_width", (LLMAPI,)),
    EngineParameter("guided_decoding_backend", "guided_decoding.backend", (LLMAPI,)),
    EngineParameter("lora_prefetch_dir", "lora.prefetch_dir", (LLMAPI,)),
    EngineParameter("normalize_log_probs", "decoding.normalize_log_probs", (REFERENCE,)),
    EngineParameter("gather_logits", "logits.context", (LLMAPI, REFERENCE)),
    EngineParameter("lora_cache_host_memory_bytes", "lora.host_memory_bytes", (REFERENCE,)),
)
"""All parameters that are read of ``config.pbtxt``."""

# Arguments of `tensorrt_llm.LLM` in a file of its own; launch.sh uses the number of machines.
_LLM_ARGUMENTS = (
    *("parallelism.pp", "parallelism.nodes", "parallelism.moe_tp", "parallelism.moe_ep"),
    *("limits.max_input_len", "limits.max_num_tokens", "scheduler.policy", "scheduler.chunked_context"),
    *("kv_cache.max_tokens", "kv_cache.host_memory_bytes", "kv_cache.onboard_blocks", "kv_cache.dtype"),
    *("kv_cache.max_attention_window", "kv_cache.sink_tokens"),
    *("lora.optimal_adapter_size", "lora.max_adapter_size", "lora.gpu_memory_fraction", "lora.host_memory_bytes"),
)
# Keys that concern no engine: Triton, its steps, the gateway or the contradictions use them.
_OF_OTHERS = (
    *("name", "engine", "role", "prefix", "engine_model", "trtllm", "text", "bls"),
    *("model.source", "model.folder", "model.heads", "model.kv_heads", "model.layers", "model.vocab_size"),
    *("model.max_positions", "limits.max_beam_width", "triton.max_batch_size", "triton.decoupled", "triton.instances"),
)
_QUANTISER = (
    *("model.quantization", "build.awq_block_size", "build.calib_dataset", "build.calib_size"),
    "build.calib_batch_size",
)
_GATHERED_AND_GUIDED = ("logits.generation", "guided_decoding.guide_types")
_MORE = {
    LLMAPI: (*_LLM_ARGUMENTS, *_GATHERED_AND_GUIDED, "decoding.mode", *_QUANTISER),
    TRANSFORMERS: (),
    REFERENCE: (*_GATHERED_AND_GUIDED, "speculative.method", "speculative.draft"),
}
# Fixed behaviour of engines: writing another value is a contradiction.
_ALWAYS: dict[str, tuple[object, tuple[str, ...]]] = {
    "scheduler.batching": ("inflight_fused_batching", ENGINES),
    "decoding.normalize_log_probs": (False, (LLMAPI, TRANSFORMERS)),
    "kv_cache.tokens_per_block": (32, (REFERENCE,)),
}

_SIMPLER = (TRANSFORMERS, REFERENCE)
# Values that change nothing; engines have no use for any other value.
_HARMLESS: dict[str, tuple[object, tuple[str, ...]]] = {
    "logits.context": (False, (TRANSFORMERS,)),
    "logits.generation": (False, (TRANSFORMERS,)),
    "parallelism.tp": (1, _SIMPLER),
    "parallelism.pp": (1, _SIMPLER),
    "parallelism.nodes": (1, _SIMPLER),
    "scheduler.policy": ("guaranteed_no_evict", _SIMPLER),
    "decoding.mode": ("auto", _SIMPLER),
    "kv_cache.dtype": ("auto", _SIMPLER),
    "kv_cache.host_memory_bytes": (0, _SIMPLER),
    "model.dtype": ("auto", (REFERENCE,)),
    "model.quantization": ("none", _SIMPLER),
    "triton.executor": ("leader", ENGINES),
}


def engines_of(deployment: DeploymentSettings) -> tuple[str, ...]:
    """The project's engines that a deployment may run on; all of them where a variable decides."""
    return (deployment.engine,) if deployment.engine in ENGINES else ENGINES


def surest(engines: tuple[str, ...]) -> str:
    """The engine with the strictest needs at loading, of several that may run."""
    return engines[0] if len(engines) == 1 else REFERENCE


def unread_keys(deployment: DeploymentSettings) -> Iterator[Found]:
    """Find given keys that no engine of the deployment reads."""
    if deployment.engine == "tensorrt":
        return
    engines = engines_of(deployment)
    one = surest(engines)
    always = {key: value for key, (value, by) in _ALWAYS.items() if one in by}
    read = {parameter.key for parameter in PARAMETERS if set(engines) & set(parameter.readers)}
    harmless = {key: value for key, (value, by) in _HARMLESS.items() if one in by}
    # Where an engine takes no drafts, another rule rejects drafts as a whole.
    used = (*read, *_MORE[one], *always, *_OF_OTHERS, *(("speculative",) if one != REFERENCE else ()))
    several = f"no engine that {deployment.engine} can name uses it"
    reason = f"the engine {one} does not use it" if len(engines) == 1 else several
    for key in given_keys(deployment):
        if key in always and value_at(deployment, key) != always[key]:
            said = str(always[key]).lower()
            yield key, f"with the engine {one} it is always {said}", f"Write {said}, or leave it out."
        elif key in harmless and value_at(deployment, key) == harmless[key]:
            continue
        elif not any(_within(key, other) or _within(other, key) for other in used):
            yield key, reason, "Leave it out."
    if one != TRANSFORMERS and deployment.logits.context != deployment.logits.generation:
        yield "logits.generation", "this engine gathers both kinds of logits or none", "Give both the same value."


def _within(key: str, parent: str) -> bool:
    return key == parent or key.startswith(f"{parent}.")
