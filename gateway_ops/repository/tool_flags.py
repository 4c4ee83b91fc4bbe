"""The flags of TensorRT-LLM's tools that build engines, by version.

Recorded from upstream's sources, each with its path and commit. Where no file of a version could be read, the nearest
one stands for it, as ``read`` says. A command is compared with its table before it is shown or run, so that a missing
flag is reported immediately and not after an hour of quantisation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gateway_ops.repository.stock_models import Version, parse_version

EXAMPLES_VARIABLE = "TRTLLM_EXAMPLES"
"""Names TensorRT-LLM's folder ``examples``."""
MODEL_OPTIMIZER_VARIABLE = "MODELOPT_EXAMPLES"
"""Names the folder ``examples`` of NVIDIA's Model Optimizer."""


@dataclass(frozen=True, slots=True)
class Program:
    """The command that starts a tool: words, and perhaps a script below a folder of a variable."""

    words: tuple[str, ...]
    script: str = ""
    variable: str = ""


@dataclass(frozen=True, slots=True)
class Flag:
    """The values that a flag takes.

    Attributes:
        values: number of words; None for one or more.
        choices: allowed words; empty for any.
    """

    values: int | None = 1
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FlagTable:
    """The flags of one parser.

    Attributes:
        tool: its name in this module.
        since: the first version of the table.
        until: the first version after the table; None for the newest table.
        source: repository, path and commit that were read.
        read: the versions that were read, in words.
        flags: every flag of the parser by its name, and those that take a value without one.
        positional: words that come before flags.
    """

    tool: str
    since: Version
    until: Version | None
    source: str
    read: str
    flags: Mapping[str, Flag]
    positional: int = 0


_SWITCH = Flag(0)
_ANY = Flag(1)
_ONOFF = Flag(1, ("enable", "disable"))
_PLUGIN = Flag(1, ("auto", "float16", "float32", "bfloat16", "int32", "disable"))
_DTYPE = Flag(1, ("auto", "float16", "bfloat16", "float32"))
_PLAIN_DTYPE = Flag(1, ("float32", "bfloat16", "float16"))
_FP8 = Flag(1, ("fp8", "disable"))


def _flags(switches: str, values: str, **special: Flag) -> dict[str, Flag]:
    """Flags by their names without dashes: those without a value, those with any, and others."""
    named = dict.fromkeys(switches.split(), _SWITCH) | dict.fromkeys(values.split(), _ANY) | special
    return {f"--{name}": flag for name, flag in named.items()}


def _each(names: str, flag: Flag) -> dict[str, Flag]:
    return {f"--{name}": flag for name in names.split()}


# tensorrt_llm/plugin/plugin.py, cli_plugin_args: the same list where it has dataclasses (0.20) and pydantic (1.x).
_PLUGINS = (
    _each("bert_attention_plugin gpt_attention_plugin fp8_rowwise_gemm_plugin lora_plugin moe_plugin", _PLUGIN)
    | _each("mamba_conv1d_plugin nccl_plugin", _PLUGIN)
    | _each("gemm_swiglu_plugin low_latency_gemm_plugin low_latency_gemm_swiglu_plugin", _FP8)
    | _each("dora_plugin context_fmha bert_context_fmha_fp32_acc remove_input_padding use_paged_context_fmha", _ONOFF)
    | _each("use_fp8_context_fmha fuse_fp4_quant multiple_profiles paged_state streamingllm user_buffer", _ONOFF)
    | _each("norm_quant_fusion reduce_fusion use_fused_mlp pp_reduce_scatter", _ONOFF)
    | _each("gemm_plugin", Flag(1, (*_PLUGIN.choices, "fp8", "nvfp4")))
    | _each("gemm_allreduce_plugin", Flag(1, ("float16", "bfloat16", "disable")))
    | _each("tokens_per_block", _ANY)
)
_BUILD = _PLUGINS | _flags(
    "strip_plan weight_sparsity weight_streaming fast_build enable_debug_output dry_run monitor_memory "
    "gather_context_logits gather_generation_logits gather_all_token_logits",
    "checkpoint_dir model_config build_config model_cls_file model_cls_name output_dir max_batch_size max_input_len "
    "max_seq_len max_decoder_seq_len max_beam_width max_num_tokens opt_num_tokens max_encoder_input_len "
    "max_prompt_embedding_table_size max_multimodal_len paged_kv_cache input_timing_cache output_timing_cache workers "
    "log_level visualize_network max_lora_rank max_draft_len",
    kv_cache_type=Flag(1, ("continuous", "paged", "disabled")),
    profiling_verbosity=Flag(1, ("layer_names_only", "detailed", "none")),
    logits_dtype=Flag(1, ("float16", "float32")),
    lora_dir=Flag(None),
    lora_ckpt_source=Flag(1, ("hf", "nemo")),
    lora_target_modules=Flag(None),
    speculative_decoding_mode=Flag(
        1, ("draft_tokens_external", "lookahead_decoding", "medusa", "explicit_draft_tokens", "eagle")
    ),
)
_AUTO_PARALLEL = _flags("", "auto_parallel gpus_per_node cluster_key")
_WEIGHT_ONLY = "use_weight_only"
_INT = Flag(1, ("int8", "int4"))
_EMBEDDING = _flags("use_parallel_embedding", "", embedding_sharding_dim=Flag(1, ("0", "1")))
_COMMON = _EMBEDDING | _flags("", "model_dir output_dir tp_size pp_size workers", dtype=_DTYPE)
_SMOOTH = _flags("per_channel per_token int8_kv_cache", "calib_dataset smoothquant")
_LLAMA = _flags(
    f"{_WEIGHT_ONLY} disable_weight_only_quant_plugin use_qserve fp8_kv_cache use_fp8 use_nvfp4 use_fp8_rowwise "
    "use_meta_fp8_rowwise_recipe per_group load_by_shard load_model_on_cpu save_config_only remove_duplicated_kv_heads",
    "meta_ckpt_dir moe_tp_size cp_size moe_ep_size vocab_size n_positions n_layer n_head n_kv_head n_embd inter_size "
    "multiple_of ffn_dim_multiplier rms_norm_eps calib_size calib_max_seq_length quant_ckpt_path hidden_act "
    "rotary_base group_size moe_num_experts moe_top_k moe_renorm_mode log_level",
    weight_only_precision=Flag(1, ("int8", "int4", "int8_gptq", "int4_gptq", "int4_awq")),
)
_QWEN = _flags(
    f"{_WEIGHT_ONLY} disable_weight_only_quant_plugin per_group load_model_on_cpu",
    "cp_size group_size moe_tp_size moe_ep_size",
    weight_only_precision=Flag(1, ("int8", "int4", "int4_gptq", "int8_gptq")),
)
_GPT = _flags(
    f"{_WEIGHT_ONLY} load_model_on_cpu",
    "nemo_ckpt_path gpt_variant dataset_cache_dir log_level",
    weight_only_precision=_INT,
    nemo_rename_key=Flag(None),
)
_GEMMA = _flags(
    f"{_WEIGHT_ONLY} use-int8-weight-only-embedding enable_fp8 fp8_kv_cache use_smooth_quant calibrate_kv_cache "
    "load_model_on_cpu per_channel per_token int8_kv_cache",
    "model-dir model_dir output-model-dir output_dir world-size quant_ckpt_path tokenizer_dir calib_dataset "
    "smoothquant use_smooth_quant_plugin",
    **{"ckpt-type": Flag(1, ("jax", "keras", "torch", "hf"))},
    weight_only_precision=Flag(1, ("int8", "int4", "w4a8_awq", "w4a16_awq")),
    dtype=_DTYPE,
)
_HEADS = _SMOOTH | _flags(
    f"{_WEIGHT_ONLY} per_group load_by_shard load-model-on-cpu convert-model-on-cpu",
    "meta_ckpt_dir vocab_size n_positions n_layer hidden_act rotary_base group_size dataset-cache-dir",
    weight_only_precision=Flag(1, ("int8", "int4", "int4_gptq")),
    rotary_scaling=Flag(2),
    **{"storage-type": Flag(1, ("fp32", "fp16"))},
)
_QUANTIZE = _flags(
    "quantize_lm_head quant_medusa_head",
    "model_dir nemo_ckpt_path calib_dataset calib_tp_size calib_pp_size seed tokenizer_max_seq_length batch_size "
    "calib_size calib_max_seq_length output_dir tp_size pp_size cp_size awq_block_size num_medusa_heads "
    "num_medusa_layers max_draft_len medusa_hidden_act medusa_model_dir autoq_format auto_quantize_bits",
    decoder_type=Flag(1, ("gptnext", "llama")),
    device=Flag(1, ("cuda", "cpu")),
    device_map=Flag(1, ("auto", "sequential", "cpu", "gpu")),
    dtype=_DTYPE,
    qformat=Flag(1, ("nvfp4", "fp8", "int8_sq", "int4_awq", "w4a8_awq", "int8_wo", "int4_wo", "full_prec")),
    kv_cache_dtype=Flag(1, ("int8", "fp8")),
)
_PTQ = _flags(
    "trust_remote_code use_seq_device_map verbose no-verbose low_memory_mode lora",
    "pyt_ckpt_path device batch_size calib_size export_path dataset inference_tensor_parallel "
    "inference_pipeline_parallel awq_block_size auto_quantize_bits gpu_max_mem_percentage attn_implementation",
    qformat=Flag(1, ("int8", "int8_sq", "fp8", "int4_awq", "w4a8_awq", "nvfp4", "nvfp4_awq")),
    sparsity_fmt=Flag(1, ("dense", "sparsegpt")),
    kv_cache_qformat=Flag(1, ("none", "fp8", "nvfp4", "nvfp4_affine")),
    export_fmt=Flag(1, ("tensorrt_llm", "hf")),
)
_LORA = {"--out-dir": _ANY, "-o": _ANY, "--in-file": _ANY, "-i": _ANY, "--verbose": _SWITCH} | _flags(
    "", "", **{"storage-type": Flag(1, ("float32", "float16", "bfloat16"))}
)

_FIRST: Version = (0, 19, 0)
_ENGINES_END: Version = (1, 3, 0)
_TL = "NVIDIA/TensorRT-LLM"


def _example(tool: str, commit: str, read: str, flags: Mapping[str, Flag]) -> FlagTable:
    return FlagTable(tool, _FIRST, _ENGINES_END, f"{_TL} examples/{tool} at {commit}", read, flags)


def _family(family: str, commit: str, flags: Mapping[str, Flag]) -> FlagTable:
    tool = f"models/core/{family}/convert_checkpoint.py"
    return _example(tool, commit, "1.x, one stored file", flags)


TABLES: tuple[FlagTable, ...] = (
    FlagTable(
        "trtllm-build",
        _FIRST,
        (1, 2, 0),
        "tensorrt_llm/commands/build.py and tensorrt_llm/plugin/plugin.py: both sides of the merge a451bf93888e of "
        f"Ataraksia/TensorRT-LLM (0.20.0 and 1.1.0rc6), build.py also at {_TL} 008b2b8d23af",
        "0.20.0 and 1.1.0rc6; 0.19, 0.21, 1.0 and 1.1.0 not",
        _BUILD | _AUTO_PARALLEL,
    ),
    FlagTable(
        "trtllm-build",
        (1, 2, 0),
        _ENGINES_END,
        f"{_TL} tensorrt_llm/commands/build.py at 65f1d1536e18",
        "the last form before the removal; the tags 1.2.0 and 1.2.1 not",
        _BUILD,
    ),
    _example(
        "quantization/quantize.py",
        "c8c6df08bd0e and 059c97c10c12 (what both have)",
        "two files of 1.x; other versions not",
        _QUANTIZE,
    ),
    _family("llama", "368f8f2ade00", _COMMON | _SMOOTH | _LLAMA),
    _family("qwen", "0df9aaf38338", _COMMON | _SMOOTH | _QWEN),
    _family("gpt", "7edbcccb7f6b", _COMMON | _SMOOTH | _GPT),
    _family("gemma", "310decb9aa6e", _GEMMA),
    _family(
        "phi",
        "10c1d594d307",
        _flags(
            _WEIGHT_ONLY,
            "model_dir output_dir tp_size pp_size workers moe_tp_size moe_ep_size",
            weight_only_precision=_INT,
            dtype=_DTYPE,
        ),
    ),
    _family(
        "commandr",
        "310decb9aa6e",
        _COMMON
        | _flags(
            f"{_WEIGHT_ONLY} disable_weight_only_quant_plugin load_model_on_cpu",
            "log_level",
            weight_only_precision=_INT,
        ),
    ),
    _family(
        "glm-4-9b",
        "10c1d594d307",
        _COMMON
        | _SMOOTH
        | _flags(
            f"{_WEIGHT_ONLY} load_model_on_cpu",
            "chatglm_version cp_size log_level",
            weight_only_precision=_INT,
            logits_dtype=Flag(1, ("float16", "float32")),
            device=Flag(1, ("cuda", "cpu")),
        ),
    ),
    _family(
        "internlm2",
        "368f8f2ade00",
        _COMMON | _flags(_WEIGHT_ONLY, "log_level", weight_only_precision=_INT, dtype=_PLAIN_DTYPE),
    ),
    _family(
        "nemotron_nas",
        "25b6cdd8d6ab",
        _COMMON | _flags("load_by_shard load_model_on_cpu save_config_only trust_remote_code", ""),
    ),
    _family(
        "mamba",
        "393a23e4e189",
        _flags(
            _WEIGHT_ONLY,
            "model_dir output_dir world_size tp_size pp_size log_level workers",
            weight_only_precision=_INT,
            dtype=_DTYPE,
        ),
    ),
    _family(
        "recurrentgemma",
        "0b782e836006",
        _flags("", "model_dir world_size output_dir log_level", ckpt_type=Flag(1, ("jax", "hf")), dtype=_PLAIN_DTYPE),
    ),
    _example(
        "medusa/convert_checkpoint.py",
        "063e02f73410, and a newer file without a known commit",
        "1.x, one stored file",
        _COMMON
        | _HEADS
        | _flags(
            "",
            "num_medusa_heads num_medusa_layers max_medusa_token_len medusa_hidden_act medusa_model_dir model_type",
            dtype=_PLAIN_DTYPE,
        ),
    ),
    _example(
        "eagle/convert_checkpoint.py",
        "a file without a known commit",
        "1.x, one stored file",
        _COMMON | _HEADS | _flags("", "eagle_model_dir max_draft_len num_eagle_layers max_non_leaves_per_layer"),
    ),
    _example("hf_lora_convert.py", "05316d331336", "an older file; the versions here not", _LORA),
    _example(
        "generate_xgrammar_tokenizer_info.py",
        "7ed07f0691df",
        "1.x, one stored file",
        _flags("", "model_dir output_dir"),
    ),
    FlagTable(
        "llm_ptq/hf_ptq.py",
        (1, 0, 0),
        None,
        "NVIDIA/TensorRT-Model-Optimizer examples/llm_ptq/hf_ptq.py at 05ab948420d8, which has versions of its own",
        "one stored file",
        _PTQ,
    ),
    FlagTable(
        "hf",
        _FIRST,
        None,
        "huggingface_hub 2.4.0, `hf download --help`",
        "the installed command; before 0.34 there is huggingface-cli alone",
        _flags("", "local-dir revision exclude"),
        positional=2,
    ),
)
_PROGRAMS = {
    "hf": Program(("hf",)),
    "trtllm-build": Program(("trtllm-build",)),
    "llm_ptq/hf_ptq.py": Program(("python3",), "llm_ptq/hf_ptq.py", MODEL_OPTIMIZER_VARIABLE),
}


def program_of(tool: str) -> Program:
    """The command that starts a tool, mostly a script of TensorRT-LLM's examples."""
    return _PROGRAMS.get(tool) or Program(("python3",), tool, EXAMPLES_VARIABLE)


def table_of(tool: str, version: str) -> FlagTable | None:
    """The flags of a tool in a version; None where none are recorded."""
    wanted = parse_version(version)
    for table in TABLES:
        if table.tool == tool and table.since <= wanted and (table.until is None or wanted < table.until):
            return table
    return None


def rejected_words(tool: str, version: str, options: tuple[str, ...]) -> list[str]:
    """Find words of a command that the tool of a version rejects, each with the reason."""
    table = table_of(tool, version)
    if table is None:
        return [f"TensorRT-LLM {version} has no {tool} that this gateway knows"]
    found, words = [], list(options[table.positional :])
    while words:
        name = words.pop(0)
        flag = table.flags.get(name)
        if flag is None:
            found.append(f"{tool} of TensorRT-LLM {version} has no {name}")
            flag = Flag(None)
        values: list[str] = []
        while words and not words[0].startswith("--") and (flag.values is None or len(values) < flag.values):
            values.append(words.pop(0))
        if flag.values is not None and len(values) != flag.values:
            found.append(f"{name} of {tool} takes {flag.values} words, not {len(values)}")
        found += [f"{name} of {tool} does not take {v!r}" for v in values if flag.choices and v not in flag.choices]
    return found
