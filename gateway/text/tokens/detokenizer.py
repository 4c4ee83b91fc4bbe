"""Converts ids to text one at a time; the text so far is always a prefix of the full decode.

Wire contract 3.2 says why chunks must not be decoded alone. Byte-level and SentencePiece decoders are followed
exactly, whatever the ids; any other decoder is followed by decoding a window (the last bullet of that section).
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Protocol

from gateway.text.tokens.token_bytes import ByteLevelDecoder, SentencePieceDecoder, byte_token
from gateway.text.tokens.tokenizer import Tokenizer

_REPLACEMENT = "\ufffd"
_Hidden = Callable[[int], bool]  # whether an id leaves no text
_utf8_decoder = codecs.getincrementaldecoder("utf-8")


class _Stream(Protocol):
    """One way of following a decoder; the attributes are those of IncrementalDetokenizer."""

    @property
    def characters(self) -> int: ...

    @property
    def unfinished(self) -> bool: ...

    def push(self, index: int, /) -> str: ...

    def flush(self) -> str: ...

    def contribution(self, index: int, /) -> bytes: ...

    def foresee(self, index: int, /) -> str | None: ...


class IncrementalDetokenizer:
    """Converts a sequence of ids to text, token by token, at a constant cost for each.

    The concatenation of all pushes and the flush equals ``Tokenizer.decode`` of all ids: for any ids when the decoder
    is byte-level or SentencePiece-like, for valid text otherwise. A byte-fallback decoder reads a run of byte tokens as
    one whole (an invalid byte turns all of the run into U+FFFD), so such a run is held until another token ends it.
    """

    __slots__ = ("_stream", "flush", "foresee", "push")

    push: Callable[[int], str]
    """Take the next id; returns the text that became complete, empty while a character is unfinished."""

    flush: Callable[[], str]
    """End the sequence, once; returns the text that was held, an unfinished character as U+FFFD."""

    foresee: Callable[[int], str | None]
    """Tell what ``push`` would return for an id, where that is all that it adds and is known."""

    def __init__(
        self, tokenizer: Tokenizer, skip_special_tokens: bool = True, visible: frozenset[int] = frozenset()
    ) -> None:
        """Start an empty sequence.

        Args:
            tokenizer: of the ids that will come.
            skip_special_tokens: whether special tokens leave no text.
            visible: special tokens that leave their text nevertheless.
        """
        stream: _Stream
        hidden: _Hidden = _never
        if skip_special_tokens:
            hidden = _all_but(visible, tokenizer.is_special) if visible else tokenizer.is_special
        if isinstance(tokenizer.decoder, ByteLevelDecoder):
            stream = _ByteLevelStream(tokenizer, hidden)
        elif isinstance(tokenizer.decoder, SentencePieceDecoder):
            stream = _SentencePieceStream(tokenizer, tokenizer.decoder, hidden)
        else:
            stream = _WindowStream(tokenizer, hidden)
        self._stream = stream
        self.push = stream.push  # bound once: this is called for every generated token
        self.flush, self.foresee = stream.flush, stream.foresee

    def contribution(self, index: int) -> bytes:
        """The bytes that a token would add if its id were pushed now; none for a skipped token."""
        return self._stream.contribution(index)

    @property
    def characters(self) -> int:
        """The number of complete characters, which is the index of the next token's first character."""
        return self._stream.characters

    @property
    def unfinished(self) -> bool:
        """Whether the character at the index ``characters`` has begun."""
        return self._stream.unfinished


class _ByteLevelStream:
    """Bytes through an incremental UTF-8 decoder; it replaces invalid sequences as the full decode does."""

    __slots__ = ("_bytes", "_decode", "_decoder", "_hidden", "_special", "_whole", "characters", "unfinished")

    def __init__(self, tokenizer: Tokenizer, hidden: _Hidden) -> None:
        self._decoder = _utf8_decoder("replace")
        self._decode = self._decoder.decode
        self._bytes = tokenizer.token_bytes
        self._special = tokenizer.is_special
        self._whole = tokenizer.whole_texts
        self._hidden = hidden
        self.characters = 0
        self.unfinished = False

    def contribution(self, index: int) -> bytes:
        return b"" if self._hidden(index) else self._bytes(index)

    def foresee(self, index: int) -> str | None:
        return None if self.unfinished else self._whole.get(index)

    def push(self, index: int) -> str:
        if not self.unfinished:
            text = self._whole.get(index)
            if text is not None:
                self.characters += len(text)
                return text
        if self._hidden(index):
            return ""
        began = not self.unfinished
        text = self._decode(self._bytes(index))
        self.unfinished = bool(self._decoder.getstate()[0])
        if began and not self.unfinished and not self._special(index):  # its text at any start of a character
            self._whole[index] = text
        self.characters += len(text)
        return text

    def flush(self) -> str:
        text = self._decode(b"", True)
        self.unfinished = False
        self.characters += len(text)
        return text


class _SentencePieceStream:
    """Text pieces; runs of byte tokens are held to their end, as the decoder judges each run as a whole."""

    __slots__ = (
        "_ahead",
        "_character",
        "_decoder",
        "_emitted",
        "_hidden",
        "_pieces",
        "_run",
        "_started",
        "_strip",
        "_tokenizer",
        "_utf8",
    )

    def __init__(self, tokenizer: Tokenizer, decoder: SentencePieceDecoder, hidden: _Hidden) -> None:
        self._tokenizer = tokenizer
        self._decoder = decoder
        self._hidden = hidden
        self._pieces: dict[int, str | int | None] = {}
        self._started = False  # whether any token that counts has come
        self._character, self._strip = decoder.strip or ("", 0)  # how many may still be stripped
        self._run = bytearray()
        self._utf8 = _utf8_decoder("replace")
        self._ahead = ""  # the text of the run, if it is valid
        self._emitted = 0

    @property
    def characters(self) -> int:
        return self._emitted + len(self._strip_start(self._ahead))

    @property
    def unfinished(self) -> bool:
        return bool(self._utf8.getstate()[0])

    def contribution(self, index: int) -> bytes:
        piece = self._piece(index)
        if piece is None:
            return b""
        data = bytes([piece]) if isinstance(piece, int) else piece.encode()
        if self._strip and self._ahead == self._character * len(self._ahead):
            left = max(self._strip - len(self._ahead), 0)
            data = _strip_start(data.decode("latin-1"), self._character, left).encode("latin-1")
        return data

    def foresee(self, index: int) -> str | None:
        piece = None if self._run or self._strip else self._pieces.get(index)
        return piece if isinstance(piece, str) else None

    def push(self, index: int) -> str:
        piece = self._piece(index)
        if piece is None:
            return ""
        self._started = True
        if isinstance(piece, int):
            self._run.append(piece)
            self._ahead += self._utf8.decode(bytes([piece]))
            return ""
        if self._run:
            piece = self._end_run() + piece
        return self._emit(piece)

    def flush(self) -> str:
        return self._emit(self._end_run())

    def _piece(self, index: int) -> str | int | None:
        """The text of a token, the byte of a byte token, None for one that leaves nothing."""
        if index in self._pieces:
            return self._pieces[index]
        token = self._tokenizer.raw_token(index)
        if token is None or self._hidden(index):
            self._pieces[index] = None
            return None
        piece = byte_token(token) if self._decoder.byte_fallback else None
        if piece is not None:
            self._pieces[index] = piece
            return piece
        if not self._started:  # a text of its own, not to be remembered
            return self._decoder.text(token, first=True)
        text = self._decoder.text(token, first=False)
        self._pieces[index] = text
        return text

    def _end_run(self) -> str:
        try:
            text = self._run.decode()
        except UnicodeDecodeError:
            text = _REPLACEMENT * len(self._run)
        self._run.clear()
        self._utf8.reset()
        self._ahead = ""
        return text

    def _strip_start(self, text: str) -> str:
        return _strip_start(text, self._character, self._strip) if self._strip else text

    def _emit(self, text: str) -> str:
        if self._strip and text:
            kept = self._strip_start(text)
            self._strip = 0 if kept else self._strip - len(text)
            text = kept
        self._emitted += len(text)
        return text


class _WindowStream:
    """The decode of a window that ends now, minus the decode of the same window up to the last complete text."""

    __slots__ = ("_asked", "_given", "_hidden", "_read", "_tokenizer", "_window", "characters", "unfinished")

    _LONGEST = 64  # tokens held at most; a U+FFFD after these is not an unfinished character

    def __init__(self, tokenizer: Tokenizer, hidden: _Hidden) -> None:
        self._tokenizer = tokenizer
        self._hidden = hidden
        self._window: list[int] = []
        self._read = 0  # ids of the window whose text was given out
        self._asked: dict[int, bytes] = {}  # contributions to this place that were asked for
        self._given = b""  # those of the tokens whose text is held
        self.characters = 0
        self.unfinished = False

    def contribution(self, index: int) -> bytes:
        if index < 0 or self._hidden(index):
            return b""
        known = self._asked.get(index)
        if known is None:
            known = self._asked[index] = self._contribution(index)
        return known

    def _contribution(self, index: int) -> bytes:
        """The rest of the text that the token completes; its own bytes where it completes none, if these fit."""
        old, new = self._texts([*self._window, index])
        added = new[len(old) :]
        held = added.endswith(_REPLACEMENT) and len(self._window) + 1 - self._read < self._LONGEST
        if not held and added.encode().startswith(self._given):
            return added.encode()[len(self._given) :]
        own = self._tokenizer.token_bytes(index)
        # Bytes that do not fit, or are not known, are left to the token that completes the text. Decoders differ in how
        # many replacement characters stand for an unfinished one.
        read = (self._given + own).decode("utf-8", "replace")
        fits = read.rstrip(_REPLACEMENT) == added.rstrip(_REPLACEMENT) and _REPLACEMENT.encode() not in own
        return own if fits or not held else b""

    def foresee(self, index: int) -> None:
        """Nothing: only the decode tells."""

    def push(self, index: int) -> str:
        if index < 0 or self._hidden(index):
            return ""
        self._window.append(index)
        text = self._take(hold=len(self._window) - self._read < self._LONGEST)
        self._given = b"" if text else self._given + self._asked.get(index, b"")
        self._asked.clear()
        return text

    def flush(self) -> str:
        return self._take(hold=False)

    def _texts(self, window: list[int]) -> tuple[str, str]:
        """The text given out of a window and all of its text."""
        decode = self._tokenizer.decode
        return decode(window[: self._read], False), decode(window, False)

    def _take(self, *, hold: bool) -> str:
        old, new = self._texts(self._window)
        self.unfinished = hold and len(new) > len(old) and new.endswith(_REPLACEMENT)
        if self.unfinished or len(new) <= len(old):
            return ""
        del self._window[: self._read]  # the last tokens that gave text stay: they decide about spaces
        self._read = len(self._window)
        text = new[len(old) :]
        self.characters += len(text)
        return text


def _never(_index: int) -> bool:
    return False


def _all_but(visible: frozenset[int], is_special: _Hidden) -> _Hidden:
    return lambda index: index not in visible and is_special(index)


def _strip_start(text: str, character: str, most: int) -> str:
    """Remove ``character`` from the start, ``most`` times at most."""
    count = 0
    while count < most and text.startswith(character, count):
        count += 1
    return text[count:]
