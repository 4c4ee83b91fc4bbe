"""Copies of a tokenizer that read texts of special tokens as ordinary text."""

from __future__ import annotations

import json
import secrets
from typing import Any

import tokenizers
from tokenizers import models


def literal_copies(backend: tokenizers.Tokenizer) -> dict[bool, tokenizers.Tokenizer]:
    """Make the copies, by whether the text opens the prompt.

    The copies differ only for a Metaspace step with the scheme ``first``, which puts a space before the first word of
    the whole prompt only.
    """
    step = backend.pre_tokenizer
    only_first = step is not None and b'"prepend_scheme":"first"' in step.__getstate__()
    unigram = isinstance(backend.model, models.Unigram)
    text = backend.to_str()
    if not only_first and not unigram:
        copy = _literal(text)
        return {True: copy, False: copy}
    spec = json.loads(text)
    if unigram:
        _hide_special_pieces(spec)
    opening = _literal(json.dumps(spec))
    pending = [spec["pre_tokenizer"]] if only_first else []
    while pending:
        part = pending.pop()
        pending.extend(part.get("pretokenizers", ()))
        if part.get("prepend_scheme") == "first":
            part["prepend_scheme"] = "never"
    return {True: opening, False: _literal(json.dumps(spec)) if only_first else opening}


def _literal(text: str) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer.from_str(text)
    backend.encode_special_tokens = True
    return backend


def _hide_special_pieces(spec: dict[str, Any]) -> None:
    """Rename the special tokens of a unigram model, which else takes their text for them, so that no text has them."""
    special = {token["id"] for token in spec["added_tokens"] if token["special"]}
    pieces = spec["model"]["vocab"]
    for index in special & set(range(len(pieces))):
        pieces[index] = [secrets.token_hex(), pieces[index][1]]
    spec["added_tokens"] = [
        token for token in spec["added_tokens"] if token["id"] >= len(pieces) or token["id"] not in special
    ]
