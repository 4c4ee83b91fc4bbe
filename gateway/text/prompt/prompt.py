"""A rendered prompt, as text and as token ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered prompt.

    Attributes:
        text: the template's output, without escape marks; text dialects send it.
        ids: its token ids, BOS exactly once where the model has one; token dialects send them.
        escaped: True when control-token text from a user was split so that ids hold no control token for it.
            That prompt cannot travel as text.
        bos_text: the BOS token's text where ``ids`` begin with BOS and the tokenizer adds BOS by itself when asked
            for special tokens; empty otherwise. A text dialect needs it to send BOS exactly once.
        recalled: number of ids from the token cache; the same prompt may be cached or not.
        changed: paths of texts of the conversation that the prompt has changed or moved.
    """

    text: str
    ids: Sequence[int]
    escaped: bool = False
    bos_text: str = ""
    recalled: int = field(default=0, compare=False)
    changed: Sequence[str] = field(default=(), compare=False)

    @property
    def bare_text(self) -> str:
        """The text for a server that adds BOS itself."""
        return self.text.removeprefix(self.bos_text)
