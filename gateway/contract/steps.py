"""The text steps of the ensemble of TensorRT-LLM 1.2.1 (wire contract 1.4 and 1.5)."""

from __future__ import annotations

from gateway.contract.tensors import ANY, ModelSpec, TensorSpec

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
