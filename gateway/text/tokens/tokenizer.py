"""A Hugging Face tokenizer with exact bytes, special tokens, end ids and templates."""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType

import tokenizers
from tokenizers import models

from gateway.text.tokens.conversion import convert, unreadable
from gateway.text.tokens.folder import TOKENIZER_FILE, FolderMetadata, TokenizerError, read_folder
from gateway.text.tokens.literal import literal_copies
from gateway.text.tokens.segments import NoBounds, SegmentTokenizer, TokenizingContext, count_beyond, obstacle
from gateway.text.tokens.token_bytes import (
    ByteLevelDecoder,
    Decoder,
    byte_level_bytes,
    byte_token,
    classify,
    spelled_bytes,
)
from gateway.text.tokens.token_ids import ID_BYTES, TokenIds, pack

_FRAMED = ("a", "", " Hello  world\n", "\u00e9\u4f60\U0001f600")
_SURROGATE = "The text cannot be tokenized because it contains a lone surrogate, which is not valid UTF-8."
_PANIC = "The text cannot be tokenized because the tokenizers library fails with this tokenizer."


class Tokenizer:
    """Converts text to ids and back.

    Immutable after construction and safe to share between threads.

    No method adds special tokens by itself: a prompt has the BOS that its template writes, and no other.

    Attributes:
        backend: the tokenizer of the library.
        decoder: the kind of decoder, None for one that is followed as a black box.
        control_tokens: texts of the added tokens marked special.
        vocab_size: one more than the largest id, added tokens included.
        longest_token: characters that one token can stand for at most.
        bos_token: text of BOS; None when the model has none.
        bos_id: id of BOS; None when the model has none.
        adds_bos: whether the tokenizer puts BOS first when it is asked to add special tokens, as a server does that
            tokenizes text by itself.
        eos_token: text of EOS; None when the model has none.
        eos_ids: every id that ends an answer, of generation_config.json, else config.json, else ``eos_token``.
        special_tokens: texts of the named special tokens, for example ``{"bos_token": "<s>"}``.
        tokenizer_class: the class that transformers would load, by tokenizer_config.json; None when that does not say.
        architectures: the model's classes, by config.json; empty when that does not say.
        model_type: the model's kind, by config.json; None when that does not say.
        chat_template: the folder's default chat template; None when it has none.
        named_templates: the folder's chat templates by name.
        max_position_embeddings: positions the model was made for, by config.json; None when that does not say.
        logits_size: width of the model's logits: ``vocab_size`` of config.json, else one more than the largest id.
    """

    def __init__(self, backend: tokenizers.Tokenizer, metadata: FolderMetadata, source: str = "the tokenizer") -> None:
        """Wrap a loaded tokenizer.

        Args:
            backend: the loaded tokenizer; its truncation and padding are switched off.
            metadata: of the other files of the folder.
            source: where it came from, for error messages.

        Raises:
            TokenizerError: when a named special token or an end id is not in the vocabulary.
        """
        self.pad_id: int | None = (backend.padding or {}).get("pad_id")
        backend.no_truncation()
        backend.no_padding()
        self.backend = backend
        self._literal: dict[bool, tokenizers.Tokenizer] = {}
        self._literal_lock = threading.Lock()
        self._source = source
        self.decoder: Decoder = classify(backend.decoder.__getstate__()) if backend.decoder is not None else None
        added = backend.get_added_tokens_decoder()
        self._special_ids = frozenset(index for index, token in added.items() if token.special)
        self._added_ids = frozenset(added)
        self.control_tokens: tuple[str, ...] = tuple(
            token.content for _, token in sorted(added.items()) if token.special and token.content
        )
        self.vocab_size: int = max(backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        self.longest_token: int = max(map(len, backend.get_vocab(with_added_tokens=True)), default=1)
        self._bytes: dict[int, bytes] = {}
        # Of ordinary tokens that end with a whole character; filled by detokenizers, on the event loop.
        self.whole_texts: dict[int, str] = {}
        self.special_tokens: Mapping[str, str] = metadata.special_tokens
        self.tokenizer_class = metadata.tokenizer_class
        self.architectures = metadata.architectures
        self.model_type = metadata.model_type
        self.chat_template = metadata.chat_template
        self.named_templates: Mapping[str, str] = metadata.named_templates
        self.max_position_embeddings = metadata.max_position_embeddings
        self.logits_size: int = metadata.vocab_size or self.vocab_size
        self.bos_token, self.bos_id = self._bos(metadata.bos_id)
        self.adds_bos: bool = backend.encode("a", add_special_tokens=True).ids[:1] == [self.bos_id]
        self.eos_token = self.special_tokens.get("eos_token")
        self.eos_ids: tuple[int, ...] = self._ends(metadata.eos_ids)
        if self.eos_token is None and self.eos_ids:
            self.eos_token = self.token_text(self.eos_ids[0])

    @classmethod
    def from_folder(cls, folder: Path) -> Tokenizer:
        """Load a folder: its tokenizer, and configuration files and templates where present.

        Without a tokenizer.json the folder's vocabulary is converted, which takes seconds.

        Raises:
            TokenizerError: a usable tokenizer is missing, or another file has a wrong key.
        """
        if trouble := unreadable(folder):
            raise TokenizerError(trouble)
        metadata = read_folder(folder)
        path = folder / TOKENIZER_FILE
        if path.is_file():
            try:
                backend = tokenizers.Tokenizer.from_file(str(path))
            except Exception as error:  # the library raises this very class
                raise TokenizerError(f"{path} cannot be read by the tokenizers library: {error}") from error
        else:
            backend, named = convert(folder)
            metadata = dataclasses.replace(metadata, special_tokens={**named, **metadata.special_tokens})
        return cls(backend, metadata, str(folder))

    # Text to ids

    def encode(self, text: str) -> list[int]:
        """Tokenize ``text``; texts of special tokens become these tokens, and no others are added.

        Raises:
            TokenizerError: when the text holds a lone surrogate, which no UTF-8 text can.
        """
        return self._encode(self.backend, text)

    def encode_framed(self, text: str) -> list[int]:
        """Tokenize ``text`` with the special tokens that the tokenizer adds around it, such as BOS.

        Raises:
            TokenizerError: as ``encode``.
        """
        return self._encode(self.backend, text, framed=True)

    @cached_property
    def obstacle(self) -> str | None:
        """The reason why parts of texts are not cached, as the end of a sentence; None where they are."""
        try:
            with _failures_of_the_library:
                return obstacle(self.backend)
        except TokenizerError:
            return "its tokenizer fails on some texts"

    @cached_property
    def normalizes_control_tokens(self) -> bool:
        """Whether a control token is recognised by more than its exact text."""
        special = [token for token in self.backend.get_added_tokens_decoder().values() if token.special]
        normalized = any(token.normalized for token in special) or isinstance(self.backend.model, models.Unigram)
        return any(token.single_word for token in special) or (self.backend.normalizer is not None and normalized)

    def control_spans(self, text: str) -> list[tuple[int, int]]:
        """The places of control tokens in a text, in characters, without tokens for unknown text.

        Raises:
            TokenizerError: as ``encode``.
        """
        unknown = getattr(self.backend.model, "unk_token", None)
        counted = self._special_ids - {self.backend.token_to_id(unknown) if unknown else None}
        with _failures_of_the_library:
            found = self.backend.encode(text, add_special_tokens=False)
        return [span for index, span in zip(found.ids, found.offsets, strict=True) if index in counted]

    @cached_property
    def fingerprint(self) -> bytes:
        """The identity of this tokenizer's content."""
        return hashlib.sha256(self.backend.to_str().encode()).digest()

    def encode_known(self, text: str, how: TokenizingContext | None = None, count: int = 0) -> TokenIds:
        """Tokenize as ``encode`` does, in steps.

        Known parts are looked up, and the others are tokenized, some at a time.

        Args:
            text: text to tokenize.
            how: the context: a cache, and bounds, which raise an error before many more tokens are made.
            count: tokens that count in addition.

        Raises:
            TokenizerError: as ``encode``.
        """
        how = how or NoBounds()
        if self._segments is not None:
            with _failures_of_the_library:
                return TokenIds(self._segments.encode(text, how, count))
        self._check_size(text, how, count)
        ids = self._encode(self.backend, text)
        how.check(count + len(ids))
        return TokenIds.of(ids)

    def framed_known(self, text: str, how: TokenizingContext | None = None) -> TokenIds:
        """Tokenize as ``encode_framed`` does, with cached parts.

        Raises:
            TokenizerError: as ``encode``.
        """
        if self._frame is None:
            return TokenIds.of(self.encode_framed(text))
        before, after = self._frame
        return TokenIds(before + self.encode_known(text, how).packed + after)

    @cached_property
    def _frame(self) -> tuple[bytes, bytes] | None:
        """The packed ids that stand before and behind every text that is framed; None where that is not all."""
        framed, plain = ([pack(encode(text)) for text in _FRAMED] for encode in (self.encode_framed, self.encode))
        before, found, after = framed[0].partition(plain[0])
        same = all(whole == before + ids + after for whole, ids in zip(framed, plain, strict=True))
        return (before, after) if found and same else None

    @cached_property
    def _segments(self) -> SegmentTokenizer | None:
        return SegmentTokenizer(self.backend) if self.obstacle is None else None

    def literal_known(
        self, text: str, how: TokenizingContext | None = None, count: int = 0, *, at_start: bool = False
    ) -> TokenIds:
        """Tokenize as ``encode_literal`` does, with cached parts; other arguments as of ``encode_known``."""
        how = how or NoBounds()
        recall = how.recall
        key = recall.key(f"literal {at_start}", text) if recall else None
        packed = recall.find(key) if recall and key else None
        if packed is None:
            self._check_size(text, how, count)
            packed = pack(self.encode_literal(text, at_start=at_start))
            if recall and key:
                recall.keep([(key, packed)])
        how.check(count + len(packed) // ID_BYTES)
        return TokenIds(packed)

    def _check_size(self, text: str, how: TokenizingContext, count: int) -> None:
        """Count roughly what may be too long; no token is shorter than a byte."""
        how.begin(len(text))
        if len(text.encode("utf-8", "surrogatepass")) > how.limit - count:
            how.check(count + self.count_beyond(text, how.limit - count, how.stopped))

    def count_beyond(self, text: str, limit: int, stopped: Callable[[], bool] = lambda: False) -> int:
        """Count the tokens of a text roughly, until there are too many.

        Pieces of the text are counted separately. A cut adds or removes a token or two next to the cut, so the sum
        differs from the text's own count by some per mille. Unlike encoding the whole, this takes no memory for each
        token.

        Args:
            text: text to count.
            limit: tokens after which the rest is not counted.
            stopped: returns, before each piece, whether to stop.

        Raises:
            TokenizerError: as ``encode``.
        """
        with _failures_of_the_library:
            return count_beyond(self.backend, text, limit, stopped)

    def encode_literal(self, text: str, *, at_start: bool = False) -> list[int]:
        """Tokenize ``text``, in which texts of special tokens are ordinary text.

        Args:
            text: one stretch of text between two special tokens of a prompt.
            at_start: whether the stretch opens the prompt (some tokenizers put a space before the first word only).

        Raises:
            TokenizerError: as ``encode``.
        """
        self.prepare_literal()
        return self._encode(self._literal[at_start], text)

    def prepare_literal(self) -> None:
        """Make the tokenizers of ``encode_literal``; otherwise its first call makes them.

        That takes as long as loading. They are copies, since the library's switch for special tokens must not change
        while other threads encode.
        """
        with self._literal_lock:
            if not self._literal:
                self._literal = literal_copies(self.backend)

    # Ids to text

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Decode ``ids`` as one whole; ids outside the vocabulary are ignored, invalid UTF-8 becomes U+FFFD."""
        # A batch of one, as in ``_encode``.
        text: str = self.backend.decode_batch([list(ids)], skip_special_tokens=skip_special_tokens)[0]
        return text

    def token_bytes(self, index: int) -> bytes:
        """The bytes that a token adds in the middle of a text; empty for an id outside the vocabulary.

        A special token's bytes are its text. A leading space is included, although the decoder may drop it at the
        start of a text (``IncrementalDetokenizer.contribution`` considers the position).
        """
        known = self._bytes.get(index)
        if known is None:
            known = self._bytes[index] = self._token_bytes(index)
        return known

    def token_text(self, index: int) -> str:
        """The text of an added token, or another token's bytes as UTF-8, with U+FFFD for incomplete characters."""
        if index in self._added_ids:
            return self.backend.id_to_token(index) or ""
        return self.token_bytes(index).decode("utf-8", "replace")

    def raw_token(self, index: int) -> str | None:
        """The vocabulary's spelling of a token; None for an id outside the vocabulary."""
        return self.backend.id_to_token(index) if index >= 0 else None

    def token_id(self, text: str) -> int | None:
        """The id of a token by the vocabulary's spelling; None without one."""
        return self.backend.token_to_id(text)

    def is_special(self, index: int) -> bool:
        """Tell whether an id is an added token marked special, which ``decode`` skips by default."""
        return index in self._special_ids

    # Private

    def _encode(self, backend: tokenizers.Tokenizer, text: str, *, framed: bool = False) -> list[int]:
        with _failures_of_the_library:
            # A batch of one: it releases the GIL unlike ``encode``, so a long text does not stall other threads.
            ids: list[int] = backend.encode_batch_fast([text], add_special_tokens=framed)[0].ids
        return ids

    def _token_bytes(self, index: int) -> bytes:
        token = self.raw_token(index)
        if token is None:
            return b""
        if isinstance(self.decoder, ByteLevelDecoder):
            return byte_level_bytes(token)
        if self.decoder is None:
            if index in self._added_ids:
                return token.encode()
            text: str = self.backend.decode([index], skip_special_tokens=False)
            spelled = spelled_bytes(token)  # tells the bytes behind a replacement character
            return spelled if "\ufffd" in text and spelled.decode("utf-8", "replace") == text else text.encode()
        byte = byte_token(token) if self.decoder.byte_fallback else None
        return self.decoder.text(token, first=False).encode() if byte is None else bytes([byte])

    def _bos(self, index: int | None) -> tuple[str | None, int | None]:
        """Text and id of the named token, else of the configured id."""
        token = self.special_tokens.get("bos_token")
        if token is not None:
            return token, self._known_id(token, "bos_token")
        if index is not None and (text := self.raw_token(index)) is not None:
            return text, index
        return None, None

    def _ends(self, configured: tuple[int, ...]) -> tuple[int, ...]:
        if outside := [index for index in configured if self.raw_token(index) is None]:
            raise TokenizerError(f"{self._source}: `eos_token_id` names {outside}, outside the tokenizer's vocabulary.")
        if configured or self.eos_token is None:
            return configured
        return (self._known_id(self.eos_token, "eos_token"),)

    def _known_id(self, token: str, key: str) -> int:
        index = self.token_id(token)
        if index is None:
            raise TokenizerError(f"{self._source}: `{key}` is {token!r}, which is not in the tokenizer's vocabulary.")
        return index


class _Failures:
    """A context that raises what the library raises for a text as a TokenizerError."""

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, (TypeError, UnicodeEncodeError)):
            raise TokenizerError(_SURROGATE) from error
        if type(error).__name__ == "PanicException":  # which is not an ``Exception``, and cannot be imported
            raise TokenizerError(_PANIC) from error


_failures_of_the_library = _Failures()


_ANCHOR = "\n"  # text after it continues no word and begins no text


def word_sequences(tokenizer: Tokenizer, word: str) -> tuple[tuple[int, ...], ...]:
    """The token sequences that write ``word``: at the start of a text, after a space, and right after other text.

    An engine bans exact token sequences (wire contract 1.4), and most vocabularies write a word with a space before
    it in another way than without. Unusual ways to split the word into tokens are not in here, so a ban makes the word
    unlikely rather than impossible. A word that begins with a space is only meant with it.

    Returns:
        The sequences without repeats; empty when the word is.

    Raises:
        TokenizerError: the word is not valid Unicode.
    """
    if not word:
        return ()
    found = [tokenizer.encode(word)]
    anchor, inside = tokenizer.encode(_ANCHOR), tokenizer.encode(_ANCHOR + word)
    if anchor and inside[: len(anchor)] == anchor:
        found.append(inside[len(anchor) :])
    if not word[0].isspace():
        found.append(tokenizer.encode(" " + word))
        spaced = tokenizer.encode(f"{_ANCHOR} {word}")
        if anchor and spaced[: len(anchor)] == anchor:
            found.append(spaced[len(anchor) :])
    return tuple(dict.fromkeys(tuple(ids) for ids in found if ids))
