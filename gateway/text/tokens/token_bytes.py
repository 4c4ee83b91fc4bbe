"""The bytes that one token adds to the text, by the tokenizer's kind of decoder.

The kinds are recognised from the decoder's own serialised form. Two of them cover nearly all language models and are
streamed exactly; anything else is streamed by decoding a window (see ``detokenizer``).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2}|\+[0-9A-Fa-f])>")


def _byte_level_alphabet() -> dict[str, int]:
    """The printable stand-in character of each byte, as GPT-2's encoder defines it."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    alphabet.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return alphabet


_BYTE_OF = _byte_level_alphabet()


def byte_level_bytes(token: str) -> bytes:
    """The bytes of a byte-level token; a token with a character outside the alphabet is its UTF-8."""
    try:
        return bytes([_BYTE_OF[character] for character in token])
    except KeyError:
        return token.encode()


def byte_token(token: str) -> int | None:
    """The byte of a SentencePiece ``<0xNN>`` token; None for any other token."""
    match = _BYTE_TOKEN.fullmatch(token)
    return int(match[1], 16) if match else None


def spelled_bytes(token: str) -> bytes:
    """The bytes that a token's spelling stands for, in either of the two ways."""
    byte = byte_token(token)
    return byte_level_bytes(token) if byte is None else bytes([byte])


@dataclass(frozen=True, slots=True)
class ByteLevelDecoder:
    """Tokens are bytes; the text is their concatenation, read as UTF-8."""


@dataclass(frozen=True, slots=True)
class SentencePieceDecoder:
    """Tokens are text with a stand-in for the space, or single bytes.

    Attributes:
        replacements: (from, to) applied to each token in order.
        metaspace: the character that becomes a space, except in the first token when ``drop_first`` is set.
        drop_first: whether the first token loses its metaspace characters.
        byte_fallback: whether ``<0xNN>`` tokens are bytes.
        strip: (character, how many at most) removed from the start of the whole text.
    """

    replacements: tuple[tuple[str, str], ...] = ()
    metaspace: str | None = None
    drop_first: bool = False
    byte_fallback: bool = False
    strip: tuple[str, int] | None = None

    def text(self, token: str, *, first: bool) -> str:
        """The text of a token, ``first`` when no token came before it, without the stripping."""
        for old, new in self.replacements:
            token = token.replace(old, new)
        if self.metaspace is not None:
            token = token.replace(self.metaspace, "" if first and self.drop_first else " ")
        return token


Decoder = ByteLevelDecoder | SentencePieceDecoder | None


def classify(serialised: bytes) -> Decoder:
    """Recognise a decoder by its serialised form (JSON); None for any other decoder."""
    spec = json.loads(serialised)
    if not isinstance(spec, dict):
        return None
    steps = spec["decoders"] if spec.get("type") == "Sequence" else [spec]
    if [step.get("type") for step in steps] == ["ByteLevel"]:
        return ByteLevelDecoder()
    return _sentence_piece(steps)


def _sentence_piece(steps: list[dict[str, Any]]) -> SentencePieceDecoder | None:
    """Replace*, Metaspace?, ByteFallback?, then Fuse and a Strip of the start; None for any other order."""
    rest = list(steps)
    replacements: list[tuple[str, str]] = []
    while rest and rest[0]["type"] == "Replace" and "String" in rest[0]["pattern"]:
        step = rest.pop(0)
        replacements.append((step["pattern"]["String"], step["content"]))
    metaspace = rest.pop(0) if rest and rest[0]["type"] == "Metaspace" else None
    byte_fallback = bool(rest) and rest[0]["type"] == "ByteFallback"
    if byte_fallback:
        rest.pop(0)
    strip = None
    if rest and rest[0]["type"] == "Fuse":
        rest.pop(0)
        if rest and rest[0]["type"] == "Strip" and rest[0]["stop"] == 0:
            step = rest.pop(0)
            strip = (step["content"], step["start"])
    if rest:
        return None
    return SentencePieceDecoder(
        replacements=tuple(replacements),
        metaspace=metaspace["replacement"] if metaspace else None,
        drop_first=metaspace is not None and metaspace.get("prepend_scheme", "always") != "never",
        byte_fallback=byte_fallback,
        strip=strip,
    )
