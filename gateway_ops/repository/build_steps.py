"""The steps that make the files of a deployment: download, checkpoint, engine, tokenizer's file, adapters.

`scripts.py` writes them as a shell script, `gateway_ops/engines` plans and runs them. Facts about the tools: wire
contract 6.1, `tool_flags.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from gateway.settings.deployment_settings import DeploymentSettings, SpeculativeSettings
from gateway_ops.repository.converters import converter_of, family_of, options
from gateway_ops.repository.model_shape import text_config_of

_OWN_CONVERSION = ("medusa", "eagle", "redrafter")
GUIDES_FILE = "xgrammar_tokenizer_info.json"
"""The name that ``generate_xgrammar_tokenizer_info.py`` gives its file."""


@dataclass(frozen=True, slots=True)
class BuildStep:
    """One command and its result.

    Attributes:
        name: unique within the deployment.
        title: description for people.
        tool: its parser in `tool_flags.py`; empty for manual work.
        options: the words after the program, which name ``output`` as one word of their own.
        reads: folders that it reads.
        output: the folder that it writes.
        made: the one file of the output that is the result, by its name there and its final path; None for all.
        by_hand: instructions for the operator, where no command is known.
    """

    name: str
    title: str
    tool: str
    options: tuple[str, ...]
    reads: tuple[str, ...]
    output: str
    made: tuple[str, str] | None = None
    by_hand: str = field(default="")

    @property
    def result(self) -> str:
        """The folder or file of the finished step."""
        return self.made[1] if self.made is not None else self.output


def checkpoint_tool(deployment: DeploymentSettings) -> Literal["convert_checkpoint", "quantize", "another"]:
    """Choose the tool of TensorRT-LLM that makes the checkpoint for ``trtllm-build``."""
    if has_own_conversion(deployment):
        return "another"
    if deployment.model.quantization not in ("none", "int8_wo", "int4_wo"):
        return "quantize"
    if converter_of(deployment) is not None:
        return "convert_checkpoint"
    if family_of(deployment) is None and text_config_of(deployment.model):
        return "convert_checkpoint"  # a type that was read but is unknown needs model.family
    return "another"


def has_own_conversion(deployment: DeploymentSettings) -> bool:
    """Tell whether a speculation method needs a checkpoint that only the operator can make."""
    speculative = deployment.speculative
    return speculative is not None and speculative.method in _OWN_CONVERSION and speculative.heads is None


def prepares_checkpoint(deployment: DeploymentSettings) -> bool:
    """Tell whether a step quantises the checkpoint that the LLM API loads."""
    return deployment.engine == "llmapi" and deployment.model.quantization != "none"


def build_steps(deployment: DeploymentSettings, checkpoint: str, original: str) -> list[BuildStep]:
    """Make the steps of a deployment in order; none where its engine loads the model as it is.

    Args:
        deployment: without contradictions.
        checkpoint: folder for the converted checkpoint between its making and the engine's.
        original: folder for a downloaded model that is quantised into the deployment's folder.
    """
    if prepares_checkpoint(deployment):
        return _prepared(deployment, original)
    steps = [_download(deployment, deployment.folder)] if is_remote(deployment) else []
    if deployment.engine != "tensorrt":
        return steps
    steps += [_checkpoint(deployment, checkpoint), _engine(deployment, checkpoint), *_guides(deployment)]
    return [*steps, *_adapters(deployment)]


def is_remote(deployment: DeploymentSettings) -> bool:
    """Tell whether the model is fetched from the Hugging Face Hub."""
    return not deployment.model.source.startswith(("/", "~", "${", "."))


def _download(deployment: DeploymentSettings, folder: str) -> BuildStep:
    # Meta's repositories hold the weights a second time, in a form that no tool here reads.
    words = ("download", deployment.model.source, "--local-dir", folder, "--exclude", "original/*")
    return BuildStep("download", f"download {deployment.model.source}", "hf", words, (), folder)


def _prepared(deployment: DeploymentSettings, original: str) -> list[BuildStep]:
    """Quantise for the LLM API by the Model Optimizer (TensorRT-LLM's ``docs/source/features/quantization.md``)."""
    remote, quantization = is_remote(deployment), deployment.model.quantization
    source = original if remote else deployment.model.source
    steps = [_download(deployment, source)] if remote else []
    cache = "fp8" if deployment.kv_cache.dtype == "fp8" else "none"  # by default the tool quantises the cache to fp8
    arguments = ["--pyt_ckpt_path", source, "--export_path", deployment.folder, "--qformat", quantization]
    title = f"quantise to {quantization}, in Hugging Face's format"
    if quantization.endswith("awq"):
        arguments += ["--awq_block_size", str(deployment.build.awq_block_size)]
    words = (*arguments, "--kv_cache_qformat", cache, *_calibration(deployment, "--dataset"))
    return [*steps, BuildStep("checkpoint", title, "llm_ptq/hf_ptq.py", words, (source,), deployment.folder)]


def _checkpoint(deployment: DeploymentSettings, checkpoint: str) -> BuildStep:
    chosen, reads = checkpoint_tool(deployment), [deployment.folder]
    folders = ["--model_dir", deployment.folder, "--output_dir", checkpoint]
    if chosen == "another":
        by_hand = f"convert the model with {_by_hand(deployment)}, and name the folder with the result"
        title = "convert the model (by hand)"
        return BuildStep("checkpoint", title, "", (), (deployment.folder,), checkpoint, by_hand=by_hand)
    if chosen == "convert_checkpoint":
        found = converter_of(deployment)
        folder, converter = found if found is not None else (f"models/core/{family_of(deployment)}", None)
        arguments = options(deployment, converter) if converter is not None else []
        tool, title = f"{folder}/convert_checkpoint.py", "convert the model to a TensorRT-LLM checkpoint"
        heads = deployment.speculative.heads if deployment.speculative is not None else None
        reads += [heads] if heads is not None else []
    else:
        arguments, tool = _quantize_options(deployment), "quantization/quantize.py"
        title = f"quantise the model to {deployment.model.quantization}"
    return BuildStep("checkpoint", title, tool, (*folders, *arguments), tuple(reads), checkpoint)


def _quantize_options(deployment: DeploymentSettings) -> list[str]:
    model, parallelism = deployment.model, deployment.parallelism
    arguments = ["--dtype", model.dtype, "--tp_size", str(parallelism.tp), "--pp_size", str(parallelism.pp)]
    arguments += ["--qformat", model.quantization]
    if model.quantization.endswith("awq"):
        arguments += ["--awq_block_size", str(deployment.build.awq_block_size)]
    if deployment.kv_cache.dtype != "auto":
        arguments += ["--kv_cache_dtype", deployment.kv_cache.dtype]
    return [*arguments, *_calibration(deployment, "--calib_dataset")]


def _calibration(deployment: DeploymentSettings, dataset: str) -> list[str]:
    """The options of both quantisers for calibration, which call the texts by different names."""
    build = deployment.build
    values = {dataset: build.calib_dataset, "--calib_size": build.calib_size, "--batch_size": build.calib_batch_size}
    return [word for name, value in values.items() if value is not None for word in (name, str(value))]


def _by_hand(deployment: DeploymentSettings) -> str:
    """Name the example of TensorRT-LLM that makes a checkpoint which is not made here."""
    family = family_of(deployment)
    if deployment.speculative is not None and has_own_conversion(deployment):
        return f"examples/{deployment.speculative.method}"
    if family is not None:
        return f"examples/models/core/{family}"
    return "its tool in examples/models/core (name model.family to have this written)"


def _engine(deployment: DeploymentSettings, checkpoint: str) -> BuildStep:
    words = ("--checkpoint_dir", checkpoint, *_engine_options(deployment))
    output = deployment.engine_dir or ""
    return BuildStep("engine", "build the TensorRT engine", "trtllm-build", words, (checkpoint,), output)


def draft_length(speculative: SpeculativeSettings | None) -> int | None:
    """The draft tokens that an engine is built for; None without any, or where the checkpoint decides.

    Lookahead's number follows from its sizes (TensorRT-LLM's ``examples/lookahead/README.md``).
    """
    if speculative is None:
        return None
    window, ngram = speculative.window_size, speculative.ngram_size
    verified = speculative.verification_set_size
    if speculative.method != "lookahead" or window is None or ngram is None or verified is None:
        return speculative.max_draft_tokens
    return max(0, ngram - 2) + (window - 1 + verified) * (ngram - 1)


def _engine_options(deployment: DeploymentSettings) -> list[str]:
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
    arguments = [part for name, value in values.items() if value is not None for part in (f"--{name}", str(value))]
    if deployment.lora is not None:
        arguments += ["--lora_target_modules", *deployment.lora.modules]
    flags = {
        "gather_context_logits": deployment.logits.context,
        "gather_generation_logits": deployment.logits.generation,
    }
    flags["weight_streaming"] = build.weight_streaming
    return arguments + [f"--{name}" for name, on in flags.items() if on]


def _enable(*, on: bool) -> str:
    return "enable" if on else "disable"


def _guides(deployment: DeploymentSettings) -> list[BuildStep]:
    guided = deployment.guided_decoding
    if guided is None or guided.tokenizer_info is None:
        return []
    folder = guided.tokenizer_info.rpartition("/")[0] or "."
    words = ("--model_dir", deployment.folder, "--output_dir", folder)
    title, tool = "write the tokenizer's file for guided decoding", "generate_xgrammar_tokenizer_info.py"
    made = (GUIDES_FILE, guided.tokenizer_info)
    return [BuildStep("guides", title, tool, words, (deployment.folder,), folder, made)]


def _adapters(deployment: DeploymentSettings) -> list[BuildStep]:
    lora = deployment.lora
    steps = []
    for number, source in sorted(lora.adapters.items()) if lora is not None else ():
        folder = f"{lora.prefetch_dir}/{number}" if lora is not None else ""
        dtype = deployment.model.dtype if deployment.model.dtype != "auto" else "float16"
        words = ("-i", source, "-o", folder, "--storage-type", dtype)
        title = f"convert LoRA adapter {number}"
        steps.append(BuildStep(f"adapter-{number}", title, "hf_lora_convert.py", words, (source,), folder))
    return steps
