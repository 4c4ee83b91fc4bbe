"""The five stock models of a repository: tensors by version, wiring, and batching.

Sources: wire contract 1.1 to 1.8; TensorRT-LLM ``triton_backend/all_models/inflight_batcher_llm/*/config.pbtxt``, and
the same files of tensorrtllm_backend v0.19.0.
"""

from __future__ import annotations

from dataclasses import replace

from gateway.text.contract import ANY, BLS, ENSEMBLE, TENSORRT_LLM, ModelSpec, TensorSpec

PREPROCESSING = ModelSpec(
    name="preprocessing",
    inputs=(
        TensorSpec("QUERY", "STRING", optional=False),
        TensorSpec("REQUEST_OUTPUT_LEN", "INT32", optional=False),
        TensorSpec("DECODER_QUERY", "STRING"),
        TensorSpec("BAD_WORDS_DICT", "STRING", (ANY,)),
        TensorSpec("STOP_WORDS_DICT", "STRING", (ANY,)),
        TensorSpec("EMBEDDING_BIAS_WORDS", "STRING", (ANY,)),
        TensorSpec("EMBEDDING_BIAS_WEIGHTS", "FP32", (ANY,)),
        TensorSpec("END_ID", "INT32"),
        TensorSpec("PAD_ID", "INT32"),
        TensorSpec("PROMPT_TABLE_EXTRA_ID", "UINT64"),
        TensorSpec("RETURN_FINISH_REASON", "BOOL", extension=True),
    ),
    outputs=(
        TensorSpec("INPUT_ID", "INT32", (ANY,)),
        TensorSpec("REQUEST_INPUT_LEN", "INT32"),
        TensorSpec("DECODER_INPUT_ID", "INT32", (ANY,)),
        TensorSpec("REQUEST_DECODER_INPUT_LEN", "INT32"),
        TensorSpec("BAD_WORDS_IDS", "INT32", (2, ANY)),
        TensorSpec("STOP_WORDS_IDS", "INT32", (2, ANY)),
        TensorSpec("EMBEDDING_BIAS", "FP32", (ANY,)),
        TensorSpec("REQUEST_OUTPUT_LEN", "INT32"),
        TensorSpec("OUT_END_ID", "INT32"),
        TensorSpec("OUT_PAD_ID", "INT32"),
        TensorSpec("OUT_PROMPT_TABLE_EXTRA_IDS", "UINT64", (ANY,)),
        TensorSpec("OUT_RETURN_FINISH_REASON", "BOOL", extension=True),
    ),
)
"""Text to token ids."""

POSTPROCESSING = ModelSpec(
    name="postprocessing",
    inputs=(
        TensorSpec("TOKENS_BATCH", "INT32", (ANY, ANY), optional=False),
        TensorSpec("SEQUENCE_LENGTH", "INT32", (ANY,), optional=False),
        TensorSpec("FINISH_REASON", "STRING", extension=True),
        TensorSpec("BATCH_INDEX", "INT32", extension=True),
        TensorSpec("SEQUENCE_INDEX", "INT32", extension=True),
    ),
    outputs=(TensorSpec("OUTPUT", "STRING", (ANY,)),),
)
"""Token ids to text."""


MODELS: dict[str, ModelSpec] = {
    model.name: model for model in (PREPROCESSING, TENSORRT_LLM, POSTPROCESSING, ENSEMBLE, BLS)
}
"""The five models of TensorRT-LLM 1.2.1 by name."""

ENGINE_NAMES = {
    "top_k": "runtime_top_k",
    "top_p": "runtime_top_p",
    "length_penalty": "len_penalty",
    "stream": "streaming",
    "prompt_table_extra_id": "prompt_table_extra_ids",
    "max_tokens": "request_output_len",
}
"""Ensemble inputs that have another name in the engine model; every other one keeps its name."""

_PREPROCESSING_INPUTS = {
    "QUERY": "text_input",
    "DECODER_QUERY": "decoder_text_input",
    "REQUEST_OUTPUT_LEN": "max_tokens",
    "BAD_WORDS_DICT": "bad_words",
    "STOP_WORDS_DICT": "stop_words",
}

PREPROCESSING_TO_ENGINE = {
    "INPUT_ID": "input_ids",
    "REQUEST_INPUT_LEN": "input_lengths",
    "DECODER_INPUT_ID": "decoder_input_ids",
    "REQUEST_DECODER_INPUT_LEN": "decoder_input_lengths",
    "REQUEST_OUTPUT_LEN": "request_output_len",
    "BAD_WORDS_IDS": "bad_words_list",
    "STOP_WORDS_IDS": "stop_words_list",
    "EMBEDDING_BIAS": "embedding_bias",
    "OUT_END_ID": "end_id",
    "OUT_PAD_ID": "pad_id",
    "OUT_PROMPT_TABLE_EXTRA_IDS": "prompt_table_extra_ids",
    "OUT_RETURN_FINISH_REASON": "return_finish_reason",
}
"""Outputs of ``preprocessing`` and the engine inputs that they become."""

_POSTPROCESSING_INPUTS = {"TOKENS_BATCH": "output_ids"}


def preprocessing_source(name: str) -> str:
    """The ensemble's input for an input of ``preprocessing``."""
    return _PREPROCESSING_INPUTS.get(name, name.lower())


def inner_name(name: str) -> str:
    """The ensemble's internal name of an output of ``preprocessing``."""
    return "_" + name.removeprefix("OUT_")


def postprocessing_source(name: str) -> str:
    """The engine's output for an input of ``postprocessing``."""
    return _POSTPROCESSING_INPUTS.get(name, name.lower())


_ENGINE_RAGGED_SCALARS = frozenset(
    {
        "skip_cross_attn_blocks",
        "retention_decode_priority",
        "retention_decode_duration_ms",
        "guided_decoding_guide_type",
        "guided_decoding_guide",
        "lookahead_window_size",
        "lookahead_ngram_size",
        "lookahead_verification_set_size",
    }
)
_ENGINE_PLAIN = frozenset({"mrope_rotary_cos_sin", "mrope_position_deltas"})

TEXT_RAGGED = frozenset({"lora_weights", "lora_config"})
"""Inputs of ``ensemble`` and ``tensorrt_llm_bls`` that may differ in length within a batch."""

WIRED = frozenset({"output_ids", "sequence_length", "BATCH_INDEX", "SEQUENCE_INDEX"})
"""Extensions that need no more of an engine than the contract's own tensors: mere wiring."""


def engine_ragged(spec: TensorSpec) -> bool:
    """Tell whether the stock engine model takes ragged batches of an input."""
    if spec.name in _ENGINE_PLAIN:
        return False
    return ANY in spec.dims or spec.name in _ENGINE_RAGGED_SCALARS


def engine_scalar(spec: TensorSpec) -> bool:
    """Tell whether the stock engine model takes an input of dims ``[1]`` without this dimension."""
    return spec.dims == (1,) and spec.name not in _ENGINE_PLAIN and spec.name not in _ENGINE_RAGGED_SCALARS


OLDEST = (0, 19, 0)
"""The oldest version whose tables are known: it brought guided decoding and ``return_perf_metrics``."""
_RENAMED = (0, 20, 0)  # random_seed -> seed, min_length -> min_tokens
_COUNTS_SINCE = (1, 0, 0)
_COUNTS = frozenset(
    {"return_num_input_tokens", "return_num_output_tokens", "num_input_tokens", "num_output_tokens"},
)
GONE = (1, 3, 0)
"""The version that deleted the models with TensorRT engines (wire contract 0)."""

Version = tuple[int, ...]


def parse_version(text: str) -> Version:
    """Parse ``1.2.1`` or ``1.2`` to comparable numbers."""
    numbers = [int(part) for part in text.split(".")]
    return tuple([*numbers, 0, 0][:3])


def of_version(spec: ModelSpec, version: Version) -> ModelSpec:
    """The tensors of a model in a version, from `OLDEST` on, with this project's extensions."""
    return replace(spec, inputs=_of_version(spec.inputs, version), outputs=_of_version(spec.outputs, version))


def _of_version(tensors: tuple[TensorSpec, ...], version: Version) -> tuple[TensorSpec, ...]:
    kept = [tensor for tensor in tensors if version >= _COUNTS_SINCE or tensor.name not in _COUNTS]
    if version >= _RENAMED:
        return tuple(kept)
    return tuple(replace(tensor, name=tensor.older or tensor.name, older=None) for tensor in kept)
