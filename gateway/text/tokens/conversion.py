"""Converts tokenizer folders without tokenizer.json by transformers, and checks the result by the file's own library.

Both run in another process, since they take seconds and hundreds of megabytes, which would slow running streams at a
reload. The packages for it are the extra ``transformers``; nothing else of the gateway imports them.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import tokenizers

from gateway.settings.extras import pip_install
from gateway.text.tokens.folder import NAMED_TOKENS, TOKENIZER_FILE, TokenizerError, read_folder
from gateway.text.tokens.literal import literal_copies
from gateway.text.untrusted_work import Helper, HelperFailedError

VOCABULARY_FILES: Final = ("tokenizer.model", "tekken.json")
"""Vocabularies that are converted: of SentencePiece or tiktoken, and Mistral's."""

_MAKE = "create a tokenizer.json with transformers: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
_PACKAGES = ("transformers", "sentencepiece", "tiktoken")
# Nothing is fetched; tiktoken keeps no copy of a file, which it would prefer to a newer one at the same path.
_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TIKTOKEN_CACHE_DIR": "", "TOKENIZERS_PARALLELISM": "false"}

# A tiktoken file does not hold the pattern that splits text; transformers takes this one, of Llama 3.
_LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3_TYPES = ("llama", "mllama")
_TIKTOKEN_LINE = re.compile(rb"[A-Za-z0-9+/]+=* \d+\r?\n")

# None begins with a space or spells a token (\u2581, <0x41>): there conversions differ from sentencepiece by design.
_TEXTS = (
    "Hello, world! What's the capital of France?",
    "two  spaces, \t a tab,\n\n\n lines\r\n and an end  ",
    "def f(x):\n    return x ** 2 if x else -1  # 12345.678e-9",
    "naïve café, größer, ÅNGSTRÖM, e\u0301, ﬁne ½ ²",
    "你好世界 こんにちは 한국어 हिन्दी ไทย مرحبا שלום",
    "😀👩‍👩‍👧🏳️‍🌈 🜚 \U0010fffd \x00\x7f\u200b\ufeff\u00a0\u3000",
    "DON'T don't I'LL we've ''' \"\"\" ___ <s> <0x> {[()]} \\n",
    "a" * 70 + " " * 40 + "\n" * 20 + "0" * 30,
)
_RUN = 25  # tokens of the vocabulary in one text


def unreadable(folder: Path) -> str | None:
    """Say in a sentence why a folder's tokenizer cannot be read, by the names of its files; else None."""
    if (folder / TOKENIZER_FILE).is_file():
        return None
    if not folder.exists():
        return f"The folder {folder} does not exist. Set a folder of this machine with a {TOKENIZER_FILE}."
    found = next((name for name in VOCABULARY_FILES if (folder / name).is_file()), None)
    if found is None:
        return f"{folder} has no {TOKENIZER_FILE}, nor {' or '.join(VOCABULARY_FILES)} to convert; {_MAKE}."
    if not all(map(importlib.util.find_spec, _PACKAGES)):
        return (
            f"{folder} has no {TOKENIZER_FILE}; install transformers to convert its {found} "
            f"({pip_install('transformers')}), or {_MAKE}."
        )
    return None


def convert(folder: Path) -> tuple[tokenizers.Tokenizer, Mapping[str, str]]:
    """Convert the tokenizer of a folder, and compare the result with the library of its file.

    Returns:
        The tokenizer, and the texts of the named special tokens as transformers has them.

    Raises:
        TokenizerError: the tokenizer cannot be converted, or the result makes other ids or other text.
    """
    helper = Helper(__name__, memory_bytes=2**36, seconds=600, largest=2**30)
    try:
        found = json.loads(helper.ask(os.fsencode(folder.absolute())))
    except HelperFailedError as error:
        raise TokenizerError(f"{folder} needs a {TOKENIZER_FILE}: its conversion failed ({error.reason}).") from None
    finally:
        helper.close()
    if "rejected" in found:
        raise TokenizerError(f"{folder} needs a {TOKENIZER_FILE}: {found['rejected']}.")
    return tokenizers.Tokenizer.from_str(found["tokenizer"]), found["special_tokens"]


# In the process of its own


class _RejectedError(Exception):
    """A folder that is not converted; the message is the reason, as half a sentence."""


def answer(question: bytes | bytearray) -> bytes:
    """Convert the folder whose path is the question, in the other process.

    Returns:
        JSON: the ``tokenizer`` and its ``special_tokens``, or why it is ``rejected``.
    """
    os.environ.update(_ENVIRONMENT)
    try:
        found = _converted(Path(os.fsdecode(bytes(question))))
    except _RejectedError as error:
        found = {"rejected": str(error)}
    except Exception as error:  # noqa: BLE001 - of any of these packages; the parent tells it
        said = str(error).strip().partition("\n")[0].rstrip(".")
        found = {"rejected": f"transformers cannot convert its tokenizer ({type(error).__name__}: {said})"}
    return json.dumps(found).encode()


def _converted(folder: Path) -> dict[str, Any]:
    from transformers import AutoTokenizer  # noqa: PLC0415 - in the process of its own only

    loaded = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    backend = loaded.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    _compare(backend, _original(Path(loaded.vocab_file), read_folder(folder).model_type, special))
    named = {key: str(getattr(loaded, key)) for key in NAMED_TOKENS if getattr(loaded, key, None) is not None}
    return {"tokenizer": backend.to_str(), "special_tokens": named}


@dataclass(frozen=True, slots=True)
class _Original:
    """A vocabulary file in the hands of the library that it was made for.

    Attributes:
        library: its name.
        encode: text to ids, where the text of a special token is ordinary text.
        decode: ids to text.
        words: texts to encode: of the tokens, empty for parts of characters, and of those special tokens that the
            library does not look for.
        unknown: the id of text that has no token; None where all text has.
    """

    library: str
    encode: Callable[[str], list[int]]
    decode: Callable[[list[int]], str]
    words: list[str]
    unknown: int | None = None


def _original(path: Path, model_type: str | None, special: set[str]) -> _Original:
    if path.name == "tekken.json":
        spec = json.loads(path.read_text(encoding="utf-8"))
        first = spec["config"]["default_num_special_tokens"]
        count = spec["config"]["default_vocab_size"] - first
        ranks = {base64.b64decode(token["token_bytes"]): token["rank"] for token in spec["vocab"][:count]}
        return _by_tiktoken(spec["config"]["pattern"], ranks, first, special)
    if _TIKTOKEN_LINE.match(path.read_bytes()):
        if model_type not in _LLAMA3_TYPES:
            raise _RejectedError(f"its {path.name} is a tiktoken file; only the text splitting of Llama 3 is supported")
        from tiktoken.load import load_tiktoken_bpe  # noqa: PLC0415 - in the process of its own only

        return _by_tiktoken(_LLAMA3_PATTERN, load_tiktoken_bpe(str(path)), 0, special)
    return _by_sentencepiece(path, special)


def _by_tiktoken(pattern: str, ranks: dict[bytes, int], first: int, special: set[str]) -> _Original:
    """As tiktoken has it, with ``first`` as the id of rank 0."""
    import tiktoken  # noqa: PLC0415 - in the process of its own only

    encoding = tiktoken.Encoding("file", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return _Original(
        "tiktoken",
        encode=lambda text: [rank + first for rank in encoding.encode_ordinary(text)],
        decode=lambda ids: encoding.decode([index - first for index in ids]),
        words=[*(token.decode(errors="ignore") for token in ranks), *sorted(special)],
    )


def _by_sentencepiece(path: Path, special: set[str]) -> _Original:
    import sentencepiece  # noqa: PLC0415 - in the process of its own only

    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    no_text = (model.is_unknown, model.is_byte, model.is_unused)
    ids = [index for index in range(len(model)) if not any(test(index) for test in no_text)]
    pieces = [(model.id_to_piece(index), model.is_control(index)) for index in ids]
    words = [piece.replace("\u2581", " ") for piece, control in pieces if control or piece not in special]
    return _Original("sentencepiece", model.encode, model.decode, words, model.unk_id())


def _compare(backend: tokenizers.Tokenizer, original: _Original) -> None:
    """Compare the ids of hard texts and of every token among others, and the text of these ids.

    Raises:
        _RefusedError: they differ.
    """
    words = random.Random(0).sample(original.words, len(original.words))  # noqa: S311 - the same in every run
    texts = [*_TEXTS, *("a" + "".join(words[start : start + _RUN]) for start in range(0, len(words), _RUN))]
    encoded = literal_copies(backend)[True].encode_batch_fast(texts, add_special_tokens=False)
    for text, found in zip(texts, encoded, strict=True):
        ids = original.encode(text)
        if found.ids != ids:
            raise _RejectedError(f"transformers and {original.library} encode {text[:200]!r} differently")
        if original.unknown not in ids and backend.decode(ids, skip_special_tokens=False) != original.decode(ids):
            raise _RejectedError(f"transformers and {original.library} decode the ids of {text[:200]!r} differently")
