"""The model ``tensorrt_llm_bls`` of TensorRT-LLM 1.2.1 (wire contract 1.6)."""

from __future__ import annotations

from gateway.contract import common, ensemble
from gateway.contract.tensors import ANY, ModelSpec, TensorSpec

_PIXELS = (ANY, ANY, ANY, ANY)

BLS = ModelSpec(
    name="tensorrt_llm_bls",
    inputs=(
        *ensemble.INPUTS,
        TensorSpec("image_input", "FP16", (ANY, 3, ANY, ANY)),
        TensorSpec("image_bytes_input", "UINT8", _PIXELS),
        TensorSpec("image_url_input", "STRING"),
        TensorSpec("video_bytes_input", "UINT8", _PIXELS),
        TensorSpec("num_draft_tokens", "INT32"),
        TensorSpec("use_draft_logits", "BOOL"),
        *common.EXTENSION_INPUTS,
    ),
    outputs=ensemble.OUTPUTS + ensemble.EXTENSION_OUTPUTS,
)
"""The ensemble's tensors by business logic scripting."""
