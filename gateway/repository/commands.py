"""The commands around a repository: how its engines are built, and how Triton is started (contract 6.1 and 6.3)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Literal

from gateway.config.deployment import DeploymentSettings

_HEAD = "#!/bin/sh\n# Written by `gateway repo build`; {what}\nset -eu\n"
_OWN_CONVERSION = ("medusa", "eagle", "redrafter")
_TOOLS = "${TRTLLM_EXAMPLES:=/app/tensorrt_llm/examples}"


def checkpoint_tool(deployment: DeploymentSettings) -> Literal["convert_checkpoint", "quantize", "another"]:
    """Which of TensorRT-LLM's tools makes the checkpoint that ``trtllm-build`` starts from."""
    method = deployment.speculative.method if deployment.speculative is not None else ""
    if method in _OWN_CONVERSION:  # its heads are a checkpoint of their own, which only the operator knows
        return "another"
    return "convert_checkpoint" if deployment.model.quantization in ("none", "int8_wo", "int4_wo") else "quantize"


def build_script(deployments: Sequence[DeploymentSettings]) -> str:
    """The commands that make the engines, for a shell inside the server's own image."""
    parts = [_HEAD.format(what="engines must be built in the image and on the GPUs that serve them.")]
    parts += [_build(deployment) for deployment in deployments if deployment.engine == "tensorrt"]
    return "\n".join(parts)


def _build(deployment: DeploymentSettings) -> str:
    model = deployment.model
    checkpoint = f"/tmp/{deployment.name}-checkpoint"  # noqa: S108 - in the operator's container
    lines = [f"# {deployment.name}, TensorRT-LLM {deployment.trtllm}"]
    if model.source != deployment.folder:
        lines.append(_join("hf", "download", model.source, "--local-dir", deployment.folder))
    if checkpoint_tool(deployment) == "another":
        method = deployment.speculative.method if deployment.speculative is not None else ""
        lines.append(
            f': "${{CHECKPOINT:?convert the model with examples/{method}, and name the folder that it wrote}}"'
        )
        checkpoint = '"$CHECKPOINT"'
    else:
        lines.append(_convert(deployment, checkpoint))
    lines.append(f"trtllm-build --checkpoint_dir {checkpoint} {_join(*_build_options(deployment))}")
    if deployment.guided_decoding is not None and deployment.guided_decoding.tokenizer_info is not None:
        folder = deployment.guided_decoding.tokenizer_info.rpartition("/")[0] or "."
        options = _join("--model_dir", deployment.folder, "--output_dir", folder)
        lines.append(f'python3 "{_TOOLS}/generate_xgrammar_tokenizer_info.py" {options}')
    return "\n".join(lines) + "\n"


def _convert(deployment: DeploymentSettings, checkpoint: str) -> str:
    model, parallelism = deployment.model, deployment.parallelism
    options = ["--model_dir", deployment.folder, "--output_dir", checkpoint, "--dtype", model.dtype]
    options += ["--tp_size", str(parallelism.tp), "--pp_size", str(parallelism.pp)]
    if checkpoint_tool(deployment) == "convert_checkpoint":
        if model.quantization != "none":
            options += ["--use_weight_only", "--weight_only_precision", model.quantization.removesuffix("_wo")]
        for name, size in (("--moe_tp_size", parallelism.moe_tp), ("--moe_ep_size", parallelism.moe_ep)):
            options += [name, str(size)] if size is not None else []
        return f'python3 "{_TOOLS}/models/core/{model.family or "llama"}/convert_checkpoint.py" {_join(*options)}'
    options += ["--qformat", model.quantization]
    if model.quantization.endswith("awq"):
        options += ["--awq_block_size", str(deployment.build.awq_block_size)]
    if deployment.kv_cache.dtype != "auto":
        options += ["--kv_cache_dtype", deployment.kv_cache.dtype]
    return f'python3 "{_TOOLS}/quantization/quantize.py" {_join(*options)}'


def _build_options(deployment: DeploymentSettings) -> list[str]:
    build, limits = deployment.build, deployment.limits
    values: dict[str, object] = {
        "output_dir": deployment.engine_dir,
        "gpt_attention_plugin": build.attention_plugin,
        "gemm_plugin": build.gemm_plugin,
        "kv_cache_type": "paged" if build.paged_kv_cache else "continuous",
        "remove_input_padding": _enable(on=build.remove_input_padding),
        "use_paged_context_fmha": _enable(on=build.paged_context_fmha),
        "max_batch_size": limits.max_batch_size or deployment.triton.max_batch_size,
        "max_input_len": limits.max_input_len,
        "max_seq_len": limits.max_seq_len,
        "max_num_tokens": limits.max_num_tokens,
        "max_beam_width": limits.max_beam_width,
        "tokens_per_block": deployment.kv_cache.tokens_per_block,
        "max_prompt_embedding_table_size": build.max_prompt_table_size or None,
    }
    if deployment.lora is not None:
        values["lora_plugin"] = build.lora_plugin or "auto"
        values["max_lora_rank"] = deployment.lora.max_rank
    speculative = deployment.speculative
    if speculative is not None and speculative.max_draft_tokens is not None:
        values["max_draft_len"] = speculative.max_draft_tokens
    if speculative is not None:
        modes = {"draft_target": "draft_tokens_external", "redrafter": "explicit_draft_tokens"}
        modes["lookahead"] = "lookahead_decoding"
        values["speculative_decoding_mode"] = modes.get(speculative.method, speculative.method)
    options = [part for name, value in values.items() if value is not None for part in (f"--{name}", str(value))]
    if deployment.lora is not None:
        options += ["--lora_target_modules", *deployment.lora.modules]
    flags = {
        "gather_context_logits": deployment.logits.context,
        "gather_generation_logits": deployment.logits.generation,
    }
    flags["weight_streaming"] = build.weight_streaming
    return options + [f"--{name}" for name, on in flags.items() if on]


def _enable(*, on: bool) -> str:
    return "enable" if on else "disable"


def launch_script(deployments: Sequence[DeploymentSettings]) -> str:
    """The command that starts Triton on the repository; engines over several GPUs may be started by Slurm as well."""
    engines = [deployment for deployment in deployments if deployment.engine == "tensorrt"]
    head = _HEAD.format(what="starts Triton in the foreground of its image, on this repository.")
    ranks = max((one.parallelism.tp * one.parallelism.pp for one in engines), default=1)
    orchestrated = any(one.triton.executor == "orchestrator" for one in engines)
    if not engines or (ranks == 1 and not orchestrated):
        launcher = "trtllm-llmapi-launch " if _many_nodes(deployments) else ""
        command = f'exec {launcher}tritonserver --model-repository="$here" --disable-auto-complete-config "$@"'
        return f'{head}here=$(cd "$(dirname "$0")" && pwd)\n{command}\n'
    lines = [f'{head}here=$(cd "$(dirname "$0")" && pwd)']
    if not orchestrated:
        lines += [
            'if [ "${SLURM_STEP_NUM_TASKS:-1}" -gt 1 ]; then  # srun has started it for each rank',
            '    exec tritonserver --model-repository="$here" --disable-auto-complete-config \\',
            '        --backend-config=python,shm-region-prefix-name="prefix${SLURM_PROCID}_" "$@"',
            "fi",
        ]
    nodes = max(one.parallelism.nodes for one in engines)
    if nodes > 1:
        how = f"srun --mpi=pmix --nodes={nodes} --ntasks={ranks} sh launch.sh"
        return "\n".join([*lines, f'echo "{ranks} GPUs of {nodes} machines: start it with {how}" >&2', "exit 1"]) + "\n"
    options = ["--world_size", "1" if orchestrated else str(ranks)]
    if orchestrated:
        options.append("--multi-model")
    names = ",".join(one.engine_name for one in engines)
    options += ["--tensorrt_llm_model_name", names]
    script = 'python3 "${TRTLLM_SCRIPTS:=/app/scripts}/launch_triton_server.py"'
    lines += [
        f'{script} --model_repo "$here" {_join(*options)} "$@"',
        "# The launcher returns at once; a container lives as long as its first process.",
        "exec tail -f /dev/null",
    ]
    return "\n".join(lines) + "\n"


def _many_nodes(deployments: Sequence[DeploymentSettings]) -> bool:
    return any(one.engine == "llmapi" and one.parallelism.nodes > 1 for one in deployments)


def _join(*words: str) -> str:
    return shlex.join(words)
