"""Tokenizes a text by parts, each of which may be known from earlier prompts.

A tokenizer cuts text at its added tokens before it does anything else, unless they are to be found in normalized text,
and goes on with what is between them. So a part from behind one such token to the end of another has the same ids in
every text, but for what the token before it takes from it (``rstrip``), and for a space that some put before the first
word of all. A part is therefore tokenized behind that token, whose id is then dropped. What else a library may do,
``obstacle`` finds out by comparing.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol

import tokenizers

from gateway.text.tokens.any_of import any_of
from gateway.text.tokens.token_cache import TokenCache
from gateway.text.tokens.token_ids import ID_BYTES, pack

_LEAST: Final = 512  # characters of a part; what is left at the end is tokenized anew each time
_LEAST_FIRST: Final = 256  # of the first one: the system's part, tools among it, is that of many requests
_BLOCK: Final = 8192
_BATCH: Final = 65536  # characters that are tokenized in one go
_PIECE: Final = 32768  # characters that are counted in one go
_PROBED: Final = 64  # tokens
_TEXTS: Final = (
    "", " ", "  ", "\n", " a", "a ", "user\n", "\n\nHello  world", "it's 12345.67", "x\r\n\ty", "\u2581\u2581",
    "\u3000", "\u00e9\u0301 \u4f60\u597d\U0001f600",
    "<", "|>", "_a_", "\u0301", "\ufb01 \u00bd", "\u200d\ufe0f", "</s", "[INST",
)  # fmt: skip


# The library would spread the parts of one prompt over threads of its own, one for each core, in each worker.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


class CacheScope:
    """The part of the token cache that belongs to one tokenizer and caller.

    Args:
        cache: cache of all scopes.
        scope: identity of the tokenizer and the caller.

    Attributes:
        found: number of found tokens.
    """

    def __init__(self, cache: TokenCache, *scope: bytes) -> None:
        self._cache = cache
        self._scope = scope
        self._begun: hashlib.blake2b | None = None  # once there is a part to look up
        self.found = 0

    def key(self, kind: str, text: str) -> bytes:
        """Make the key of a text, with the other facts on which its ids depend."""
        if self._begun is None:
            self._begun = self._cache.hasher(*self._scope)
        hasher = self._begun.copy()
        hasher.update(f"{len(kind)} {kind}{text}".encode("utf-8", "surrogatepass"))
        return hasher.digest()

    def find(self, key: bytes) -> bytes | None:
        """Find packed ids; None for an unknown key."""
        packed = self._cache.get(key)
        if packed is not None:
            self.found += len(packed) // ID_BYTES
        return packed

    def keep(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Store packed ids by their keys."""
        self._cache.put(entries)


class TokenizingContext(Protocol):
    """The cache and the bounds with which a prompt is tokenized."""

    @property
    def recall(self) -> CacheScope | None:
        """The cache of ids; None without one."""
        ...

    @property
    def limit(self) -> int:
        """The most tokens; nothing is tokenized beyond them."""
        ...

    @property
    def characters(self) -> int:
        """Characters that ``check_characters`` accepts in any case."""
        ...

    def check_characters(self, size: int) -> None:
        """Raise an error of the context where so many characters cannot fit."""
        ...

    def check(self, count: int) -> None:
        """Raise an error of the context after too many tokens, or when the caller no longer waits."""
        ...

    def stopped(self) -> bool:
        """Tell whether the caller no longer waits."""
        ...

    def begin(self, size: int) -> None:
        """Raise an error of the context where so many more unknown characters are not allowed."""
        ...


class NoBounds:
    """A context without bounds.

    Args:
        recall: the cache of ids; None without one.
    """

    limit = 2**62
    characters = 2**62

    def __init__(self, recall: CacheScope | None = None) -> None:
        self.recall = recall

    def check_characters(self, size: int) -> None:
        """Accept any length."""

    def check(self, count: int) -> None:
        """Accept any count."""

    def stopped(self) -> bool:
        """Never stop."""
        return False

    def begin(self, size: int) -> None:
        """Do nothing."""


Part = tuple[str, str, bool]
"""A part of a text: the added token that it follows, empty at the beginning; the part, with the added token at its end;
whether there is one, so that it is the same whatever follows."""
_Missing = tuple[int, str, str, bytes | None]  # where its ids belong, what it follows, the part, its key
_UnknownBlock = tuple[int, int, bytes]  # from and up to where the ids of its parts are, its key


class SegmentTokenizer:
    """Tokenizes texts by parts.

    Args:
        backend: the tokenizer.
        least: characters of a part.
        block: characters of parts that are also looked up as one.
    """

    def __init__(self, backend: tokenizers.Tokenizer, least: int = _LEAST, block: int = _BLOCK) -> None:
        self._backend = backend
        self._least = least
        self._least_first = min(least, _LEAST_FIRST)
        self._block = block
        added = [token for token in backend.get_added_tokens_decoder().values() if not token.normalized]
        self.tokens = frozenset(token.content for token in added if token.content and not token.single_word)
        self._pattern = any_of(token.content for token in added)

    def parts(self, text: str) -> Iterator[Part]:
        """Cut a text into parts."""
        start, before, tokens, least = 0, "", self.tokens, self._least_first
        for found in self._pattern.finditer(text) if self._pattern else ():
            end = found.end()
            if end - start >= least and found[0] in tokens:
                yield before, text[start:end], True
                start, before, least = end, found[0], self._least
        if start < len(text):
            yield before, text[start:], False

    def encode(self, text: str, how: TokenizingContext, count: int = 0) -> bytes:
        """Tokenize a text; returns packed ids.

        Args:
            text: text to tokenize; texts of special tokens in it are special tokens.
            how: the context.
            count: tokens that count in addition.

        Raises:
            UnicodeEncodeError: the text has a lone surrogate.
        """
        recall = how.recall
        if 0 < len(text) < self._least_first:  # no part of it can be known
            how.begin(len(text))
            how.check(count)
            (packed,) = self._packed([(0, "", text, None)], how, count)
            if (count := count + len(packed) // ID_BYTES) > how.limit:
                how.check(count)
            return packed
        pieces, missing, unknown = self._look_up(text, how)
        count += sum(map(len, pieces)) // ID_BYTES
        while missing:
            how.check(count)
            batch = _batch(missing, how.limit - count)
            entries = []
            for (place, _, _, key), packed in zip(batch, self._packed(batch, how, count), strict=True):
                pieces[place] = packed
                count += len(packed) // ID_BYTES
                if key:
                    entries.append((key, packed))
            if recall and entries:  # else nothing is locked
                recall.keep(entries)
            del missing[: len(batch)]
        if recall and unknown:
            recall.keep([(key, b"".join(pieces[first:end])) for first, end, key in unknown])
        if count > how.limit:
            how.check(count)
        return b"".join(pieces)

    def _look_up(self, text: str, how: TokenizingContext) -> tuple[list[bytes], list[_Missing], list[_UnknownBlock]]:
        """Packed ids of a text's parts, or of blocks of them; the parts that are missing there; the unknown blocks."""
        recall = how.recall
        pieces: list[bytes] = []
        missing: list[_Missing] = []
        unknown: list[_UnknownBlock] = []
        for block in _blocks(self.parts(text), self._block):
            if recall and len(block) > 1:
                key = recall.key(block[0][0], "".join([part for _, part, _ in block]))
                if packed := recall.find(key):
                    pieces.append(packed)
                    continue
                unknown.append((len(pieces), len(pieces) + len(block), key))
            for before, part, closed in block:
                part_key = recall.key(before, part) if recall and closed else None
                packed = recall.find(part_key) if recall and part_key else None
                if packed is None:
                    how.begin(len(part))
                    missing.append((len(pieces), before, part, part_key))
                pieces.append(packed or b"")
        return pieces, missing, unknown

    def _packed(self, batch: Sequence[_Missing], how: TokenizingContext, count: int) -> list[bytes]:
        size, texts = 0, []
        for _, before, part, _ in batch:
            size += len(part.encode())
            texts.append(before + part)
        if size > how.limit - count:
            for _, _, part, _ in batch:
                count += count_beyond(self._backend, part, how.limit - count, how.stopped)
            how.check(count)
        encoded = self._backend.encode_batch_fast(texts, add_special_tokens=False)
        found = []
        for each, (_, before, _, _) in zip(encoded, batch, strict=True):
            found.append(pack(each.ids[1:] if before else each.ids))
        return found


def _blocks(parts: Iterable[Part], least: int) -> Iterator[list[Part]]:
    """Group parts, up to so many characters: a block is a longer part, so that a long text takes few look-ups.

    Blocks are counted from the beginning of the text: one that is longer by a turn has the same ones.
    """
    block: list[Part] = []
    size = 0
    for part in parts:
        block.append(part)
        size += len(part[1])
        if size >= least and part[2]:
            yield block
            block, size = [], 0
    yield from [[part] for part in block]


def _batch(missing: Sequence[_Missing], most: int) -> Sequence[_Missing]:
    """The first parts, at least one, that are tokenized together: no more than surely have so many tokens."""
    characters = 0
    for index, (_, _, part, _) in enumerate(missing):
        characters += len(part)
        if index and characters > min(_BATCH, most):
            return missing[:index]
    return missing[:]


def count_beyond(
    backend: tokenizers.Tokenizer, text: str, limit: int, stopped: Callable[[], bool] = lambda: False
) -> int:
    """Count the tokens of a text roughly, by pieces, up to the piece with too many.

    See ``Tokenizer.count_beyond``.
    """
    count = 0
    for start in range(0, len(text), _PIECE):
        if count > limit or stopped():
            break
        count += len(backend.encode_batch_fast([text[start : start + _PIECE]], add_special_tokens=False)[0].ids)
    return count


def obstacle(backend: tokenizers.Tokenizer) -> str | None:
    """Say why a tokenizer's texts must be tokenized whole, as the end of a sentence; None where parts are the same.

    Texts that are hard to cut are tokenized whole and by parts, between tokens of all sorts.
    """
    segments = SegmentTokenizer(backend, least=0)
    if not segments.tokens:
        return "its tokenizer has no added tokens that split a text before normalization"
    if getattr(backend.model, "dropout", None):
        return "its tokenizer splits words at random (dropout)"
    added = [token for token in backend.get_added_tokens_decoder().values() if not token.normalized]
    if any(t.content != t.content.strip() for t in added) and any(t.lstrip or t.rstrip for t in added):
        return "its tokenizer has added tokens of spaces and added tokens that strip the spaces around them"
    ways = random.Random(0)  # noqa: S311 - the same at each start
    tokens = ways.sample(sorted(segments.tokens), min(_PROBED, len(segments.tokens)))
    for token in tokens:
        between = [ways.choice(_TEXTS) for _ in range(4)]
        text = between[0] + token + between[1] + ways.choice(tokens) + between[2] + token + between[3]
        for probe in (text, text[len(between[0]) :]):
            whole = backend.encode_batch_fast([probe], add_special_tokens=False)[0].ids
            if segments.encode(probe, NoBounds()) != pack(whole):
                return f"its tokenizer encodes text next to {token} differently"
    return None
