"""Checks that the tokenizer is the engine's; with another one answers are fluent nonsense."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gateway.generation import Capability, EngineFeatures
from gateway.generation.tokenizing import SENTENCES, TokenizedSentences
from gateway.text.tokens import Tokenizer, TokenizerError

OVERRIDE = "set the tokenizer folder of the model, or set check_tokenizer: false"
_MORE = 1.05  # of the tokenizer's width; padding of a vocabulary is less


def tokenizer_mismatch(tokenizer: Tokenizer, folder: Path, features: EngineFeatures) -> str | None:
    """Say how a tokenizer differs from the engine's, in one sentence; None without a difference. May read files.

    Args:
        tokenizer: the tokenizer.
        folder: folder of the tokenizer.
        features: features of the engine.
    """
    width = features.vocab_size
    if width is not None and tokenizer.vocab_size > width:
        last = tokenizer.vocab_size - 1
        return f"the tokenizer in {folder} has ids up to {last}, but the engine has logits for {width} ids"
    there = _there(folder, features)
    if there is None:
        return None
    for sentence, ids in zip(SENTENCES, there.ids, strict=True):
        own, other = _bare(tokenizer, tokenizer.encode(sentence)), _bare(tokenizer, ids)
        if own != other:
            words = f"and Triton's tokenizer as {_few(other)}"
            return (
                f"the tokenizer in {folder} is not the engine's tokenizer: it encodes {sentence[:20]!r} as "
                f"{_few(own)}, {words}"
            )
    if there.end_id is not None and there.end_id >= 0 and tokenizer.eos_ids and there.end_id not in tokenizer.eos_ids:
        ends = ", ".join(map(str, tokenizer.eos_ids))
        return f"the tokenizer in {folder} ends answers at {ends}, but Triton's tokenizer at {there.end_id}"
    return None


def compared(features: EngineFeatures) -> Capability:
    """Say how the tokenizer was compared with the engine's, as a capability."""
    if features.tokenized is not None:
        return Capability("native", "Compared with Triton's preprocessing: three sentences have the same ids.")
    if _other_folder(features) is not None:
        return Capability("native", "Compared with the tokenizer_dir of Triton's model: the same ids.")
    return Capability(
        "impossible", "The tokenizer is not compared because this Triton does not show the engine's tokenizer."
    )


def wide_engine(tokenizer: Tokenizer, features: EngineFeatures) -> str | None:
    """Say that the engine has far more logits than the tokenizer has ids; None where it does not."""
    width = features.vocab_size
    if width is None or width <= tokenizer.vocab_size * _MORE:
        return None
    return (
        f"the engine has logits for {width} ids, but the tokenizer has {tokenizer.vocab_size}: check that it is "
        "the tokenizer of the model"
    )


def _there(folder: Path, features: EngineFeatures) -> TokenizedSentences | None:
    if features.tokenized is not None:
        return features.tokenized
    other = _other_folder(features)
    if other is None or other.resolve() == folder.resolve():
        return None
    try:
        tokenizer = Tokenizer.from_folder(other)
    except TokenizerError:
        return None
    ends = tokenizer.eos_ids
    return TokenizedSentences(tuple(tuple(tokenizer.encode(each)) for each in SENTENCES), ends[0] if ends else None)


def _other_folder(features: EngineFeatures) -> Path | None:
    """The folder that Triton names, where it can be read."""
    other = Path(features.tokenizer_dir) if features.tokenizer_dir else None
    return other if other is not None and (other / "tokenizer.json").is_file() else None


def _bare(tokenizer: Tokenizer, ids: Iterable[int]) -> tuple[int, ...]:
    """The ids without a BOS before them and an end behind them."""
    found = tuple(ids)
    if found[:1] == (tokenizer.bos_id,):
        found = found[1:]
    return found[:-1] if found[-1:] and found[-1] in tokenizer.eos_ids else found


def _few(ids: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, ids[:4]))}{', ...' if len(ids) > 4 else ''}]"
