"""The scripts of a repository, which build its engines and start Triton (wire contract 6.1 and 6.3)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Literal

from gateway.config.deployment_settings import DeploymentSettings, SpeculativeSettings
from gateway_ops.repository.converters import CONVERTERS, family_of, options
from gateway_ops.repository.engine_rules import step_bound
from gateway_ops.repository.model_shape import shape_of, text_config_of

_HEAD = "#!/bin/sh\n# Written by `gateway repo build`; {what}\nset -eu\n"
_OWN_CONVERSION = ("medusa", "eagle", "redrafter")
_TOOLS = "${TRTLLM_EXAMPLES:=/app/tensorrt_llm/examples}"


def checkpoint_tool(deployment: DeploymentSettings) -> Literal["convert_checkpoint", "quantize", "another"]:
    """Choose the tool of TensorRT-LLM that makes the checkpoint for ``trtllm-build``."""
    if has_own_conversion(deployment):
        return "another"
    if deployment.model.quantization not in ("none", "int8_wo", "int4_wo"):
        return "quantize"
    family = family_of(deployment)
    if family is None:  # a type that was read but is unknown needs model.family
        return "convert_checkpoint" if text_config_of(deployment.model) else "another"
    return "convert_checkpoint" if family in CONVERTERS else "another"


def has_own_conversion(deployment: DeploymentSettings) -> bool:
    """Whether the method of speculation needs a checkpoint with heads, which only the operator can make."""
    return deployment.speculative is not None and deployment.speculative.method in _OWN_CONVERSION


def build_script(deployments: Sequence[DeploymentSettings]) -> str:
    """The commands that make the engines, for a shell inside the server's own image."""
    parts = [_HEAD.format(what="engines must be built in the image and on the GPUs that serve them.")]
    built = set()
    for deployment in deployments:
        if deployment.engine == "tensorrt" and deployment.engine_dir not in built:  # one may be loaded by several
            parts.append(_build(deployment))
            built.add(deployment.engine_dir)
    return "\n".join(parts)


def built_from(deployment: DeploymentSettings) -> str:
    """The commands that make an engine, without its name: equal for equal engines."""
    return _build(deployment).replace(_checkpoint(deployment), "").partition("\n")[2]


def _checkpoint(deployment: DeploymentSettings) -> str:
    return f"/tmp/{deployment.name}-checkpoint"  # noqa: S108 - in the operator's container


def _build(deployment: DeploymentSettings) -> str:
    model, checkpoint = deployment.model, _checkpoint(deployment)
    lines = [f"# {deployment.name}, TensorRT-LLM {deployment.trtllm}{_prompts(deployment)}"]
    if model.source != deployment.folder:
        lines.append(_join("hf", "download", model.source, "--local-dir", deployment.folder))
    if checkpoint_tool(deployment) == "another":
        lines.append(
            f': "${{CHECKPOINT:?convert the model with {_by_hand(deployment)}, and name the folder that it wrote}}"'
        )
        checkpoint = '"$CHECKPOINT"'
    else:
        lines.append(_convert(deployment, checkpoint))
    lines.append(f"trtllm-build --checkpoint_dir {checkpoint} {_join(*_build_options(deployment))}")
    if deployment.guided_decoding is not None and deployment.guided_decoding.tokenizer_info is not None:
        folder = deployment.guided_decoding.tokenizer_info.rpartition("/")[0] or "."
        lines.append(
            f'python3 "{_TOOLS}/generate_xgrammar_tokenizer_info.py" '
            + _join("--model_dir", deployment.folder, "--output_dir", folder)
        )
    return "\n".join(lines) + "\n"


def _by_hand(deployment: DeploymentSettings) -> str:
    """Name the example of TensorRT-LLM that makes a checkpoint which is not made here."""
    family = family_of(deployment)
    if deployment.speculative is not None and has_own_conversion(deployment):
        return f"examples/{deployment.speculative.method}"
    if family is not None:
        return f"examples/models/core/{family}"
    return "its tool in examples/models/core (name model.family to have this written)"


def _prompts(deployment: DeploymentSettings) -> str:
    """Remark that prompts are bounded by a step, where the settings do not say so."""
    limits, step = deployment.limits, step_bound(deployment)
    longest = limits.max_seq_len or shape_of(deployment.model).get("max_positions")
    if limits.max_input_len is not None or step is None or not isinstance(longest, int) or longest <= step:
        return ""
    return f"; it takes prompts of at most {step} tokens, those of a step (limits.max_num_tokens)"


def _convert(deployment: DeploymentSettings, checkpoint: str) -> str:
    model, parallelism = deployment.model, deployment.parallelism
    folders = ["--model_dir", deployment.folder, "--output_dir", checkpoint]
    if checkpoint_tool(deployment) == "convert_checkpoint":
        family = family_of(deployment)
        told = options(deployment, CONVERTERS[family]) if family is not None else []
        return f'python3 "{_TOOLS}/models/core/{family}/convert_checkpoint.py" {_join(*folders, *told)}'
    told = ["--dtype", model.dtype, "--tp_size", str(parallelism.tp), "--pp_size", str(parallelism.pp)]
    told += ["--qformat", model.quantization]
    if model.quantization.endswith("awq"):
        told += ["--awq_block_size", str(deployment.build.awq_block_size)]
    if deployment.kv_cache.dtype != "auto":
        told += ["--kv_cache_dtype", deployment.kv_cache.dtype]
    return f'python3 "{_TOOLS}/quantization/quantize.py" {_join(*folders, *told)}'


def draft_length(speculative: SpeculativeSettings | None) -> int | None:
    """The draft tokens that an engine is built for; None without any, or where the checkpoint decides.

    Lookahead's follow from its sizes (TensorRT-LLM's ``examples/lookahead/README.md``).
    """
    if speculative is None:
        return None
    window, ngram = speculative.window_size, speculative.ngram_size
    verified = speculative.verification_set_size
    if speculative.method != "lookahead" or window is None or ngram is None or verified is None:
        return speculative.max_draft_tokens
    return max(0, ngram - 2) + (window - 1 + verified) * (ngram - 1)


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
    values["max_draft_len"] = draft_length(speculative)
    values["logits_dtype"] = "float16" if deployment.logits.datatype == "FP16" else None
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
    """The script that starts Triton on the repository, with Slurm or without."""
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
        srun = f"srun --mpi=pmix --nodes={nodes} --ntasks={ranks} sh launch.sh"
        lines += [f'echo "{ranks} GPUs of {nodes} machines: start it with {srun}" >&2', "exit 1"]
        return "\n".join(lines) + "\n"
    how = _orchestrator(engines) if orchestrated else ["--world_size", str(ranks)]
    names = ",".join(one.engine_name for one in engines)
    script = 'python3 "${TRTLLM_SCRIPTS:=/app/scripts}/launch_triton_server.py"'
    lines += [
        f'{script} --model_repo "$here" {_join(*how, "--tensorrt_llm_model_name", names)} "$@"',
        "# The launcher returns at once; a container lives as long as its first process.",
        "exec tail -f /dev/null",
    ]
    return "\n".join(lines) + "\n"


def _orchestrator(engines: Sequence[DeploymentSettings]) -> list[str]:
    """Options of the orchestrator mode: it spawns its workers, unless ranks are given to workers that start with it."""
    workers = sum(len(group) for one in engines for group in one.triton.participant_ids)
    if not workers:
        return ["--world_size", "1", "--multi-model"]
    return ["--world_size", str(1 + workers), "--multi-model", "--disable-spawn-processes"]


def _many_nodes(deployments: Sequence[DeploymentSettings]) -> bool:
    return any(one.engine == "llmapi" and one.parallelism.nodes > 1 for one in deployments)


def _join(*words: str) -> str:
    return shlex.join(words)
