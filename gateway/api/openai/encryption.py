"""Encrypts state that clients hold, bound to its owner.

Texts are encrypted by ``cryptography``'s Fernet (AES-128-CBC and HMAC-SHA256) with the operator's keys. Nothing is
compressed, so that no encrypted text decrypts to more bytes than were sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

Kind = Literal["reasoning", "compaction"]
"""The kind of an encrypted text; one kind does not pass for another."""

_BEGINNING = "sealed1."  # distinguishes the gateway's texts without any work on them; 1 is the version of the form


class TextCipher:
    """Encrypts and decrypts texts with the operator's keys."""

    def __init__(self, keys: Sequence[str]) -> None:
        """Take the keys.

        Args:
            keys: 32 bytes each as URL-safe base64; the first key encrypts, all keys decrypt. At least one key.

        Raises:
            ValueError: a key is not valid.
            ImportError: the extra ``encrypted`` is not installed.
        """
        from cryptography.fernet import Fernet, MultiFernet  # noqa: PLC0415 - an extra, of use to some only

        self._fernet = MultiFernet([Fernet(key) for key in keys])

    def of(self, owner: str) -> OwnerCipher:
        """Return the cipher of one owner."""
        return OwnerCipher(self._fernet, owner)


@dataclass(frozen=True, slots=True)
class OwnerCipher:
    """Encrypts and decrypts texts of one owner.

    Attributes:
        fernet: Fernet with the operator's keys.
        owner: the caller to whom the texts belong; no other caller can decrypt them.
    """

    fernet: MultiFernet
    owner: str

    def encrypt(self, kind: Kind, text: str) -> str:
        """Encrypt a text as ASCII, bound to the owner and the kind."""
        return _BEGINNING + self.fernet.encrypt(self._label(kind) + text.encode()).decode()

    def decrypt(self, kind: Kind, encrypted: str) -> str | None:
        """Decrypt a text; None where it is damaged, of another kind, owner or server, or of a removed key."""
        from cryptography.fernet import InvalidToken  # noqa: PLC0415 - as above

        if not encrypted.startswith(_BEGINNING) or not encrypted.isascii():
            return None
        try:
            plain = self.fernet.decrypt(encrypted[len(_BEGINNING) :].encode())
        except InvalidToken:
            return None
        label = self._label(kind)
        return plain[len(label) :].decode() if plain.startswith(label) else None

    def _label(self, kind: Kind) -> bytes:
        return f"{kind}\0{self.owner}\0".encode()
