"""Tokenizer folders without a tokenizer.json, trained here on a few lines: SentencePiece, tiktoken and tekken."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sentencepiece
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from gateway.text.tokens.token_bytes import byte_level_bytes
from tests.tokens.families import LINES, LLAMA3, TEKKEN, split

TEMPLATE = "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{{ eos_token }}{% endfor %}"


def sentence_piece(kind: str, **options: Any) -> bytes:
    """A SentencePiece model of the type ``bpe`` or ``unigram``, with byte fallback and without normalization."""
    file = io.BytesIO()
    usual: dict[str, Any] = {
        "vocab_size": 420,
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "split_digits": True,
        "hard_vocab_limit": False,
        "minloglevel": 2,
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=file, model_type=kind, **(usual | options)
    )
    return file.getvalue()


def _ranks(pattern: str) -> list[bytes]:
    """Tokens by rank, of a BPE that splits text by ``pattern``."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = split(pattern)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=460, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(LINES, trainer)
    return [byte_level_bytes(token) for token, _ in sorted(backend.get_vocab().items(), key=lambda item: item[1])]


def tiktoken_file() -> bytes:
    """Llama 3's form: a line for each token, with its bytes in base64 and its rank."""
    lines = (b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(_ranks(LLAMA3)))
    return b"".join(lines)


def tekken_file() -> bytes:
    """Mistral's form: special tokens have the first ids, more of them than have names."""
    vocabulary = _ranks(TEKKEN)
    special = ("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]")
    spec = {
        "config": {
            "pattern": TEKKEN,
            "num_vocab_tokens": len(vocabulary),
            "default_vocab_size": len(vocabulary) + 20 - 10,  # the last ten tokens are not used
            "default_num_special_tokens": 20,
            "version": "v3",
        },
        "vocab": [
            {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
            for rank, token in enumerate(vocabulary)
        ],
        "special_tokens": [{"rank": rank, "token_str": text, "is_control": True} for rank, text in enumerate(special)],
    }
    return json.dumps(spec).encode()


def write(folder: Path, name: str, content: bytes, model_type: str, **config: Any) -> Path:
    """Write a folder: the vocabulary, a template, and what tokenizer_config.json says besides."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return folder


def llama2(folder: Path) -> Path:
    """Llama 2 and Mistral 7B: SentencePiece BPE with a space before the text."""
    config = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return write(folder, "tokenizer.model", sentence_piece("bpe"), "llama", add_bos_token=True, **config)


def llama3(folder: Path) -> Path:
    """Llama 3 as its makers give it out: a tiktoken file, whose special tokens are in tokenizer_config.json."""
    first = len(tiktoken_file().splitlines())
    names = ("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>")
    usual = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}
    added = {str(first + offset): {"content": text, **usual} for offset, text in enumerate(names)}
    return write(
        folder,
        "tokenizer.model",
        tiktoken_file(),
        "llama",
        tokenizer_class="PreTrainedTokenizerFast",
        bos_token=names[0],
        eos_token=names[2],
        added_tokens_decoder=added,
    )


def gemma(folder: Path) -> Path:
    """Gemma: SentencePiece BPE without a space before the text, runs of spaces and line ends as tokens."""
    model = sentence_piece(
        "bpe",
        add_dummy_prefix=False,
        user_defined_symbols=["<start_of_turn>", "<end_of_turn>", "\n", "\n\n", "▁▁", "▁▁▁▁"],
        pad_id=0,
        eos_id=1,
        bos_id=2,
        unk_id=3,
        pad_piece="<pad>",
        eos_piece="<eos>",
        bos_piece="<bos>",
    )
    config = {"tokenizer_class": "GemmaTokenizer", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}
    return write(folder, "tokenizer.model", model, "gemma", pad_token="<pad>", add_bos_token=True, **config)


def unigram(folder: Path) -> Path:
    """T5: SentencePiece unigram that normalizes text and joins spaces; a character without a token is unknown."""
    model = sentence_piece(
        "unigram",
        byte_fallback=False,
        normalization_rule_name="nmt_nfkc",
        remove_extra_whitespaces=True,
        bos_id=-1,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        pad_piece="<pad>",
    )
    config = {"tokenizer_class": "T5Tokenizer", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    return write(folder, "tokenizer.model", model, "t5", extra_ids=0, **config)


def tekken(folder: Path) -> Path:
    """Mistral Nemo and later as their maker gives them out."""
    config = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return write(folder, "tekken.json", tekken_file(), "mistral", **config)


FOLDERS: dict[str, Callable[[Path], Path]] = {make.__name__: make for make in (llama2, llama3, gemma, unigram, tekken)}
