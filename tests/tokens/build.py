"""Small tokenizers of the kinds that language models have, made with the tokenizers library."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tokenizers
from hypothesis import settings
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

from gateway.text.tokens import Tokenizer
from gateway.text.tokens.folder import FolderMetadata
from tests.rings import examples

FIXED = settings(derandomize=True, database=None, max_examples=examples(120))
"""Every run tries the same examples."""

CORPUS = [
    "Hello world, what is the capital of France? The capital of France is Paris.",
    "def add(a, b):\n    return a + b\n\n",
    "naïve café, größer, 你好世界, مرحبا بالعالم, 😀😃 emoji",
]
CONTROL = ("<|begin_of_text|>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>")


@functools.cache
def byte_level() -> Tokenizer:
    """GPT-2, Llama 3 and Qwen style: byte-level BPE, with added tokens of every sort."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(text, normalized=False, special=True) for text in CONTROL],
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    backend.add_tokens(["<think>", "two words", "\u00fc"])
    backend.add_special_tokens(["<|ünïcode \uff5cend|>"])
    bos = backend.token_to_id(CONTROL[0])
    backend.post_processor = processors.TemplateProcessing(
        single=f"{CONTROL[0]} $A", special_tokens=[(CONTROL[0], bos)]
    )
    tokens = {"bos_token": CONTROL[0], "eos_token": "<|im_end|>"}
    vocab = backend.get_vocab(with_added_tokens=True)
    ends = (vocab["<|im_end|>"], vocab["<|eot_id|>"])
    return Tokenizer(backend, FolderMetadata(special_tokens=tokens, eos_ids=ends))


def sentence_piece_model(special: Iterable[str], texts: Iterable[str]) -> models.BPE:
    """Pieces of SentencePiece: special ones, the bytes, and those that texts are merged of."""
    vocab = {text: index for index, text in enumerate([*special, *(f"<0x{byte:02X}>" for byte in range(256))])}
    merges: list[tuple[str, str]] = []
    for text in texts:
        pieces = text[0]
        vocab.setdefault(pieces, len(vocab))
        for character in text[1:]:
            vocab.setdefault(character, len(vocab))
            if pieces + character not in vocab:
                vocab[pieces + character] = len(vocab)
                merges.append((pieces, character))
            pieces += character
    return models.BPE(vocab, merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True)


_PIECES = (
    "▁", *map(chr, range(0x21, 0x7F)), "é", "你", "▁the", "▁capital", "▁of", "▁Paris", "▁hello", "he", "ll", "▁a", "▁▁",
    "in", "▁is",
)  # fmt: skip


@functools.cache
def sentence_piece(style: str) -> Tokenizer:
    """SentencePiece models as exported: ``llama2``, ``mistral``, ``gemma`` or ``metaspace`` (no byte decoder)."""
    backend = tokenizers.Tokenizer(sentence_piece_model(("<unk>", "<s>", "</s>"), _PIECES))
    spaces: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if style == "llama2":
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    elif style == "gemma":
        backend.normalizer = normalizers.Replace(" ", "▁")
    else:
        scheme = "first" if style == "mistral" else "always"
        backend.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme=scheme, split=False)
    if style in {"llama2", "mistral"}:
        spaces.append(decoders.Strip(" ", 1, 0))
    backend.decoder = decoders.Metaspace() if style == "metaspace" else decoders.Sequence(spaces)
    backend.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in ("<unk>", "<s>", "</s>")])
    backend.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in CONTROL])
    backend.add_tokens(["<think>", "▁▁▁x"])
    return Tokenizer(backend, FolderMetadata(special_tokens={"bos_token": "<s>", "eos_token": "</s>"}))


@functools.cache
def unigram() -> Tokenizer:
    """A unigram whose control tokens are pieces of its model; its unknown token has the id 0."""
    texts = ["<unk>", "<s>", "</s>", *"▁abcdehlo</s>"]
    pieces = [(text, -float(index + 1)) for index, text in enumerate(dict.fromkeys(texts))]
    backend = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    backend.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)
    backend.decoder = decoders.Metaspace("▁", prepend_scheme="first", split=False)
    backend.add_special_tokens(["<unk>", "<s>", "</s>", "<|im_end|>"])
    backend.add_tokens(["<think>"])
    return Tokenizer(backend, FolderMetadata(special_tokens={"bos_token": "<s>", "eos_token": "</s>"}))


@functools.cache
def word_piece() -> Tokenizer:
    """A decoder that is followed as a black box."""
    words = ["[UNK]", "hello", "world", "##ing", "play", "##ed", ",", "!", "é", "a"]
    backend = tokenizers.Tokenizer(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    backend.decoder = decoders.WordPiece(cleanup=False)
    return Tokenizer(backend, FolderMetadata())


def all_exact() -> list[Tokenizer]:
    """The tokenizers that are streamed exactly."""
    return [byte_level(), *(sentence_piece(style) for style in ("llama2", "mistral", "gemma", "metaspace"))]


def write_folder(folder: Path, tokenizer: Tokenizer, **files: Any) -> Path:
    """Save a tokenizer as a folder; each keyword is a JSON file's name without its ending, and its content."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.backend.save(str(folder / "tokenizer.json"))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder
