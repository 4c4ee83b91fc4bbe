"""Parameters whose names nothing reads, but which look like one that something does."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from gateway_ops.checking.findings import Finding
from gateway_ops.checking.repository_models import LLMAPI, Models, filled, stock_model, warning
from gateway_ops.repository.engine_keys import PARAMETERS
from gateway_ops.repository.template_variables import ENGINE_PARAMETERS

_NATIVE = frozenset(
    {
        *(variable.parameter for variable in ENGINE_PARAMETERS),
        *("tokenizer_dir", "FORCE_CPU_ONLY_INPUT_TENSORS", "EXECUTION_ENV_PATH", "worker_path", "engine_dir"),
        *("xgrammar_tokenizer_merge_path", "max_queue_size", "max_queue_delay_microseconds"),
    }
)
# Read by the gateway, and by this project's Python engines.
_OWN = frozenset(
    {
        *(parameter.name for parameter in PARAMETERS),
        *("engine", "vocab_size", "guided_decoding_guide_types", "extra_args_file", "always_emit"),
    }
)
_TEXT = frozenset(
    {
        *("tokenizer_dir", "add_special_tokens", "skip_special_tokens", "gpt_model_path", "tokenizer_type"),
        *("multimodal_model_path", "visual_model_path", "hf_model_path", "max_num_images", "engine_dir"),
        *("state_capacity", "state_expiry_seconds", "EXECUTION_ENV_PATH", "FORCE_CPU_ONLY_INPUT_TENSORS"),
    }
)
_CALLER = frozenset(
    {
        *("accumulate_tokens", "tensorrt_llm_model_name", "tensorrt_llm_draft_model_name", "multimodal_encoders_name"),
        *("preprocessing_model_name", "postprocessing_model_name", "max_concurrent_requests"),
        *("engine_silence_seconds", "context_model_name", "generation_model_name", "EXECUTION_ENV_PATH"),
    }
)
KNOWN_PARAMETERS = {
    "tensorrt_llm": _NATIVE | _OWN | {"context_model_name", "generation_model_name"},
    "preprocessing": _TEXT,
    "postprocessing": _TEXT,
    "tensorrt_llm_bls": _CALLER,
}
"""Parameters that a stock model's code reads, in any known version, and this project's in its place."""


def check_parameters(models: Models) -> Iterator[Finding]:
    """Find misspelt parameters: they are passed over in silence, and the default holds."""
    for model in models.values():
        stock = stock_model(model)
        known = KNOWN_PARAMETERS.get(stock or LLMAPI, frozenset())
        # One that is set as well is not what a misspelt one was meant to set.
        absent = {name.lower(): name for name in known if not filled(model, name)}
        for name in sorted(set(model.config.parameters) - known):
            close = difflib.get_close_matches(name.lower(), absent, n=1, cutoff=0.85)
            if close:
                what = f"{stock} reads no parameter {name!r}, so what it says is not done."
                yield warning(model, name, what, f"Did you mean {absent[close[0]]!r}?")
