"""Guided decoding where llguidance is installed; the engine works without it, and then rejects guides."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from cpu_double.guided import GuidedDecoder


_LOG = logging.getLogger("tensorrt_llm")


def load_guided_decoder(folder: Path, vocab: int) -> GuidedDecoder | None:
    """Make a decoder for a model folder; None, and a warning, where llguidance is missing or cannot read the tokenizer.

    Args:
        folder: of the model.
        vocab: length of its logits.
    """
    try:
        from cpu_double.guided import GuidedDecoder  # noqa: PLC0415 - llguidance is optional

        return GuidedDecoder.of(folder, vocab)
    except (ImportError, OSError, ValueError) as error:
        _LOG.warning("no guided decoding: %s", error)
        return None
