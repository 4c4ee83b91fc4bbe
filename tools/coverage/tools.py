"""Flags of the tools that make an engine, as the READMEs and the tutorial call them: what `build_engines.sh` has."""

from __future__ import annotations

from tools.coverage.row import Row

_TUTORIAL = "tools/coverage/test_readme_scripts.py::test_the_flags_of_the_tutorial_are_in_the_script"
_FLAGS = "tools/coverage/test_readme_scripts.py::test_the_flags_of_the_readme_s_example_are_in_the_script"
_GONE = "TensorRT-LLM 0.5; gone since 0.8"
_OLD_TOOLS = f"{_GONE}: `convert_checkpoint.py` and `trtllm-build` are rendered instead"


def _flag(name: str, where: str) -> Row:
    return Row(name, where, _FLAGS, "rendered")


TOOLS = (
    Row("convert_checkpoint.py", "by the family of the model", _FLAGS, "rendered"),
    Row("quantize.py", "where `model.quantization` wants it", _TUTORIAL, "rendered"),
    Row("trtllm-build", "with the limits of the deployment", _FLAGS, "rendered"),
    _flag("--model_dir", "`model.folder`"),
    _flag("--dtype", "`model.dtype`"),
    _flag("--tp_size", "`parallelism.tp`"),
    _flag("--output_dir", "the checkpoint's folder; `engine_dir`"),
    _flag("--checkpoint_dir", "the checkpoint's folder"),
    Row("--qformat", "`model.quantization`", _TUTORIAL, "rendered"),
    Row("--awq_block_size", "`build.awq_block_size`", _TUTORIAL, "rendered"),
    _flag("--gpt_attention_plugin", "`build.attention_plugin`"),
    _flag("--gemm_plugin", "`build.gemm_plugin`"),
    _flag("--remove_input_padding", "`build.remove_input_padding`"),
    Row("--paged_kv_cache", "`build.paged_kv_cache`; today's `trtllm-build` calls it `--kv_cache_type`", _FLAGS, "rendered"),
    _flag("--gather_context_logits", "`logits.context`"),
    _flag("--gather_generation_logits", "`logits.generation`"),
    Row("--gather_all_token_logits", "both of the former", _FLAGS, "rendered"),
    Row("--batch_size", "of the calibration of `quantize.py`; its own default", status="missing"),
    Row("--engine_dir", "of `run.py`, which tries an engine before Triton does; here `/v1/completions` does", status="documented"),
    Row("--max_output_len", "of `run.py`, likewise", status="documented"),
    Row("--tokenizer_dir", "of `run.py`, likewise", status="documented"),
    Row("--input_text", "of `run.py`, likewise", status="documented"),
    Row("hf_gpt_convert.py", _OLD_TOOLS, status="documented"),
    Row("build.py of examples/gpt", _OLD_TOOLS, status="documented"),
)  # fmt: skip
