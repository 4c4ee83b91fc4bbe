"""The room's one exception."""

from __future__ import annotations


class TokenizerError(Exception):
    """A tokenizer folder or a text that cannot be used; the message is one sentence naming the file and key."""
