"""Folders of a model for the doubles: a tokenizer, a chat template, and a built engine's ``config.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from tests.tiny_model import write_tiny_model

Spelling = Literal["bytes", "sentencepiece"]

MAX_SEQ_LEN = 2048
_TEMPLATE = """\
{{- bos_token -}}
{%- for message in messages -%}
{%- if message['role'] == 'assistant' -%}{{ ' ' + (message['content'] or '') + eos_token }}
{%- else -%}{{ '[INST] ' + message['content'] + ' [/INST]' }}
{%- endif -%}
{%- endfor -%}
"""


def write_model(folder: Path, spelling: Spelling) -> Path:
    """Write the tokenizer folder that the gateway and the text steps share.

    Args:
        folder: created where it is missing.
        spelling: ``bytes``, a byte-level BPE in ChatML; ``sentencepiece``, whose decoder drops the first space of
            what it decodes, and whose encoder adds BOS.
    """
    if spelling == "bytes":
        write_tiny_model(folder)
        return folder
    # Not at the top: conftest.py imports this module before it has chosen Hypothesis' profile, which theirs build on.
    from tests.tokens.build import write_folder  # noqa: PLC0415
    from tests.tokens.families import mistral_v1  # noqa: PLC0415

    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>", "unk_token": "<unk>"}
    write_folder(
        folder,
        mistral_v1(),
        tokenizer_config={"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, **special},
        generation_config={"bos_token_id": 1, "eos_token_id": 2},
        config={"model_type": "llama", "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": MAX_SEQ_LEN},
    )
    (folder / "chat_template.jinja").write_text(_TEMPLATE, encoding="utf-8")
    return folder


def write_engine(folder: Path, vocab_size: int) -> Path:
    """Write the ``config.json`` of an engine that was built; there is nothing more of it."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"build_config": {"max_seq_len": MAX_SEQ_LEN}, "pretrained_config": {"vocab_size": vocab_size}}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder
