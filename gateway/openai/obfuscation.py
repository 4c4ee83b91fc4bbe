"""Padding of chunks to one length: OpenAI's ``stream_options.include_obfuscation``.

An observer of encrypted traffic sees the length of each event and with it that of its token. The field ``obfuscation``
fills every chunk up to a multiple of ``STEP`` bytes. Its characters are random, so that nothing compresses them away.
"""

from __future__ import annotations

import re
import secrets

from gateway.relay.text_events import one_line

STEP = 64
"""Bytes; more than most tokens have, so that their chunks are all of one length."""

_END = b"}\n\n"
_NAMED_DELTA = re.compile(rb"event: [\w.]+\.delta\n")  # of a response, whose other events have no text of one token
_FIELD = b',"obfuscation":"'
_LEAST = len(_FIELD) + 1  # with its closing quote


def obfuscated(events: bytes) -> bytes:
    """Pad every chunk or delta among the events of a stream; comments and other events stay as they are.

    Args:
        events: complete events, ready to send.
    """
    return b"".join(_padded(event + b"\n\n") for event in one_line(events).split(b"\n\n")[:-1])


def _padded(event: bytes) -> bytes:
    if not event.startswith(b"data: {") and not _NAMED_DELTA.match(event):
        return event
    wanted = -(len(event) + _LEAST) % STEP
    padding = secrets.token_urlsafe(STEP)[:wanted].encode()
    return event[: -len(_END)] + _FIELD + padding + b'"' + _END
