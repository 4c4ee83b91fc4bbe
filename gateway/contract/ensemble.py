"""The model ``ensemble`` of TensorRT-LLM 1.2.1 (wire contract 1.1 and 1.2)."""

from __future__ import annotations

from gateway.contract import common
from gateway.contract.tensors import ANY, ModelSpec, TensorSpec

TEXT_INPUTS = (
    TensorSpec("text_input", "STRING", optional=False),
    TensorSpec("max_tokens", "INT32", optional=False),
    TensorSpec("decoder_text_input", "STRING"),
    TensorSpec("bad_words", "STRING", (ANY,)),
    TensorSpec("stop_words", "STRING", (ANY,)),
    TensorSpec("end_id", "INT32"),
    TensorSpec("pad_id", "INT32"),
    TensorSpec("top_k", "INT32"),
    TensorSpec("top_p", "FP32"),
    TensorSpec("length_penalty", "FP32"),
    TensorSpec("stream", "BOOL"),
    TensorSpec("prompt_table_extra_id", "UINT64"),
    TensorSpec("embedding_bias_words", "STRING", (ANY,)),
    TensorSpec("embedding_bias_weights", "FP32", (ANY,)),
)

INPUTS = TEXT_INPUTS + common.SAMPLING + common.RETURNS + common.PROMPT_TABLE + common.LORA + common.GUIDED_DECODING
OUTPUTS = (TensorSpec("text_output", "STRING", (ANY,)), *common.OUTPUTS)

# Stock ensembles lack these; ours exposes its inner tensors, by configuration only.
_INNER = tuple(TensorSpec(spec.name, spec.datatype, spec.dims, extension=True) for spec in common.TOKEN_OUTPUTS)
EXTENSION_OUTPUTS = _INNER + common.EXTENSION_OUTPUTS

ENSEMBLE = ModelSpec(
    name="ensemble",
    inputs=INPUTS + common.EXTENSION_INPUTS,
    outputs=OUTPUTS + EXTENSION_OUTPUTS,
)
"""Text in, text out, over preprocessing, tensorrt_llm and postprocessing."""

ENGINE_NAMES = {
    "top_k": "runtime_top_k",
    "top_p": "runtime_top_p",
    "length_penalty": "len_penalty",
    "stream": "streaming",
    "prompt_table_extra_id": "prompt_table_extra_ids",
    "max_tokens": "request_output_len",
}
"""Ensemble inputs that have another name in the engine model; every other one keeps its name."""
