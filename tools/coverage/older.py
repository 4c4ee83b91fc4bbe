"""What the READMEs call otherwise than the tables of TensorRT-LLM 1.2.1 do."""

from __future__ import annotations

from tools.coverage.row import Row

_TENSORS = "triton/test_request_tensors.py::test_older_names_are_sent_where_they_are_declared"
_OPTION = "gateway_ops/repository/test_overrides.py::test_the_names_of_the_readmes_tables_are_understood"

OLDER_OPTIONS = (
    Row("gpt_model_type", "`scheduler.batching`: `--set` takes this name too, beside the variable `batching_strategy`", _OPTION, "rendered"),
    Row("gpt_model_path", "`engine_dir`: `--set` takes this name too, beside the variable `engine_dir`", _OPTION, "rendered"),
    Row("decoupled", "`triton.decoupled`: `--set` takes this name too, beside the variable `decoupled_mode`", _OPTION, "rendered"),
)  # fmt: skip
OLDER_INPUTS = (
    Row("min_length", "`min_tokens`, where the model has it by this name", _TENSORS),
    Row("random_seed", "`seed`, likewise", _TENSORS),
)
OLDER_OUTPUTS = (
    Row("generation_logtis", "a slip of the READMEs for `generation_logits`", "integration/test_triton_repo_parameters.py::test_gathered_logits_are_those_behind_the_log_probs"),
)  # fmt: skip
