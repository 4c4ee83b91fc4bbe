"""Small tokenizers with the settings of the well-known families: normalizer, pre-tokenizer, model options, decoder.

What matters for detokenization is not the vocabulary but these settings, which are those of each family's published
``tokenizer.json``; the vocabularies are trained here on a few lines, or written out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

from gateway.text.tokens import Tokenizer
from gateway.text.tokens.folder import FolderMetadata
from tests.tokens.build import CORPUS, sentence_piece_model

LINES = [*CORPUS, "Don't you'LL  see\r\n\r\n\tx = 12345.67;  // ok", "ﬁne ½ Åñ 한국어 ไทย हिन्दी 👩‍👩‍👧 🏳️‍🌈"]

# Contractions, letters with one leading sign, digits, signs with line ends, line ends, spaces.
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _special(*texts: str) -> list[AddedToken]:
    return [AddedToken(text, normalized=False, special=True) for text in texts]


def _byte_level(
    pre_tokenizer: Any,
    special: list[AddedToken],
    *,
    normalizer: Any = None,
    first: bool = False,
    plain: tuple[str, ...] = (),
    ends: tuple[str, ...] = (),
    ignore_merges: bool = False,
) -> Tokenizer:
    """A byte-level BPE; ``first`` gives the special tokens the first ids, else they follow the vocabulary."""
    backend = tokenizers.Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizer
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=460, initial_alphabet=alphabet, special_tokens=special if first else [], show_progress=False
    )
    backend.train_from_iterator(LINES, trainer)
    backend.add_special_tokens(special)
    backend.add_tokens([AddedToken(text, normalized=False, special=False) for text in plain])
    names = {"eos_token": ends[0]}
    eos_ids = tuple(index for index in map(backend.token_to_id, ends) if index is not None)
    return Tokenizer(backend, FolderMetadata(special_tokens=names, eos_ids=eos_ids))


def split(pattern: str) -> Any:
    """Byte level, after text is split by a pattern."""
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False),
        ]
    )


def gpt2() -> Tokenizer:
    """GPT-2: byte level with its own pattern, one special token at the end."""
    return _byte_level(
        pre_tokenizers.ByteLevel(add_prefix_space=False), _special("<|endoftext|>"), ends=("<|endoftext|>",)
    )


def smollm() -> Tokenizer:
    """SmolLM: as GPT-2 with single digits, special tokens first."""
    steps = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    special = _special("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    return _byte_level(pre_tokenizers.Sequence(steps), special, first=True, ends=("<|im_end|>",))


def llama3() -> Tokenizer:
    """Llama 3: words of the vocabulary before merges, special tokens at the end."""
    special = _special("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|eot_id|>", "<|python_tag|>")
    return _byte_level(split(LLAMA3), special, ends=("<|eot_id|>", "<|end_of_text|>"), ignore_merges=True)


def qwen() -> Tokenizer:
    """Qwen: NFC before, tool and thinking marks that are added but not special."""
    return _byte_level(
        split(_QWEN),
        _special("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        normalizer=normalizers.NFC(),
        plain=("<tool_call>", "</tool_call>", "<think>", "</think>"),
        ends=("<|im_end|>", "<|endoftext|>"),
    )


def tekken() -> Tokenizer:
    """Mistral's tekken: a pattern that sees upper case, special tokens first, unused ones among them."""
    special = _special("<unk>", "<s>", "</s>", "[INST]", "[/INST]", *(f"<SPECIAL_{i}>" for i in range(20, 24)))
    return _byte_level(split(TEKKEN), special, first=True, ends=("</s>",), ignore_merges=True)


_WORDS = ("▁the", "▁capital", "▁of", "▁Hello", "▁▁", "▁▁▁▁", "ing", "▁a", "▁is", "you")


def _sentence_piece(extra: tuple[str, ...] = ()) -> tokenizers.Tokenizer:
    special = ("<unk>", "<s>", "</s>", "[INST]", "[/INST]")
    letters = {character for line in LINES for character in line if character.isalpha()}
    singles = sorted(letters | {"▁", ".", ",", "-"})[:90]
    backend = tokenizers.Tokenizer(sentence_piece_model(special, (*singles, *_WORDS, *extra)))
    backend.add_special_tokens(_special(*special))
    return backend


def _wrapped(backend: tokenizers.Tokenizer, end: str = "</s>") -> Tokenizer:
    return Tokenizer(backend, FolderMetadata(special_tokens={"eos_token": end}))


def mistral_v1() -> Tokenizer:
    """Mistral and Llama 2 as first exported: a space before the text by the normalizer, one stripped by the decoder."""
    backend = _sentence_piece()
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return _wrapped(backend)


def mistral_v3() -> Tokenizer:
    """Mistral's later exports: the space before the first word only, by the pre-tokenizer."""
    backend = _sentence_piece()
    backend.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return _wrapped(backend)


def gemma() -> Tokenizer:
    """Gemma: no space before, none stripped; runs of spaces and line ends are tokens, tags are added, not special."""
    backend = _sentence_piece(("\n", "\n\n", "\n\n\n", "▁▁▁▁▁▁▁▁"))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens(_special("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"))
    backend.add_tokens(
        [AddedToken(text, normalized=False) for text in ("<table>", "</b>", "<unused0>", "[multimodal]")]
    )
    return _wrapped(backend, "<eos>")


def _followed_by_window(source: Tokenizer, *steps: Any, end: str) -> Tokenizer:
    """A tokenizer with a decoder that does the same in steps that are not recognised."""
    backend = tokenizers.Tokenizer.from_str(source.backend.to_str())
    backend.decoder = decoders.Sequence(list(steps))
    return _wrapped(backend, end)


def bytes_and_fuse() -> Tokenizer:
    """Byte level with a further step: what its tokens are, only their spelling tells."""
    return _followed_by_window(gpt2(), decoders.ByteLevel(), decoders.Fuse(), end="<|endoftext|>")


def bytes_before_spaces() -> Tokenizer:
    """Byte tokens are read before spaces are, the other way round than in any published model."""
    steps = [decoders.ByteFallback(), decoders.Replace("▁", " "), decoders.Fuse()]
    return _followed_by_window(gemma(), *steps, end="<eos>")


def suffixes() -> Tokenizer:
    """OpenAI's first GPT: words end with a suffix that becomes a space."""
    backend = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.BPEDecoder(suffix="</w>")
    special = _special("<unk>", "</s>")
    backend.train_from_iterator(
        LINES,
        trainers.BpeTrainer(vocab_size=400, special_tokens=special, end_of_word_suffix="</w>", show_progress=False),
    )
    return _wrapped(backend)


def word_pieces() -> Tokenizer:
    """BERT: spaces between words, which are not in any token."""
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(cleanup=False)
    special = _special("[UNK]", "</s>")
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=special, show_progress=False)
    backend.train_from_iterator(LINES, trainer)
    return _wrapped(backend)


WINDOWS: dict[str, Callable[[], Tokenizer]] = {
    make.__name__: functools.cache(make) for make in (bytes_and_fuse, bytes_before_spaces, suffixes, word_pieces)
}
"""Those whose decoders are followed by decoding a window."""

FAMILIES: dict[str, Callable[[], Tokenizer]] = {
    make.__name__: functools.cache(make) for make in (gpt2, smollm, llama3, qwen, tekken, mistral_v1, mistral_v3, gemma)
}
