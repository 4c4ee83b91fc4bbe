"""Signatures of thinking blocks: they bring reasoning back to the model that the client does not show.

Signatures are not secret and prove nothing. Signatures of other servers are left alone.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import Any

from gateway.api.openai.request_json import MOST_CHARACTERS

_MARK = "gateway-1."


def signature_of(reasoning: str, *, has_text: bool) -> str:
    """Make the signature of a thinking block.

    Args:
        reasoning: of the block.
        has_text: whether the block has the text itself.
    """
    if has_text:
        return _MARK
    return _MARK + base64.b64encode(zlib.compress(reasoning.encode("utf-8", "surrogatepass"))).decode()


def reasoning_of(signature: Any, limit: int = MOST_CHARACTERS) -> str | None:
    """Read the reasoning in a signature; empty for a signature without reasoning.

    Args:
        signature: of a client's block.
        limit: bytes of reasoning that are unpacked; None is returned for more.
    """
    if not isinstance(signature, str) or not signature.startswith(_MARK):
        return ""
    unpacker = zlib.decompressobj()
    try:
        packed = base64.b64decode(signature.removeprefix(_MARK), validate=True)
        unpacked = unpacker.decompress(packed, limit + 1)  # 0 would be no bound
        if len(unpacked) > limit:
            return None
        text = unpacked.decode("utf-8")
    except (binascii.Error, zlib.error, UnicodeDecodeError):
        return ""
    return "" if "\0" in text else text
