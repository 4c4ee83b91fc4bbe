"""How the tensors of the ensemble flow through its three steps (wire contract 1.1 to 1.5)."""

from __future__ import annotations

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
    """The ensemble input behind an input of ``preprocessing``."""
    return _PREPROCESSING_INPUTS.get(name, name.lower())


def inner_name(name: str) -> str:
    """The ensemble's own name for an output of ``preprocessing``, which no client sees."""
    return "_" + name.removeprefix("OUT_")


def postprocessing_source(name: str) -> str:
    """The engine output behind an input of ``postprocessing``."""
    return _POSTPROCESSING_INPUTS.get(name, name.lower())
