"""Chunks of a streamed completion as ready Server-Sent Events."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.generation import Usage
from gateway.openai.answering import DONE
from gateway.openai.usage import usage_object
from gateway.relay.interface import Forward, Write
from gateway.relay.text_events import text_events


class ChunkWriter:
    """Writes the events of one answer; everything that they share is built once.

    Attributes:
        wants_usage: whether every chunk needs the usage so far.
    """

    __slots__ = ("_head", "_include_usage", "wants_usage")

    def __init__(
        self, completion_id: str, created: int, model: str, *, include_usage: bool = False, continuous: bool = False
    ) -> None:
        """Build what all chunks share.

        Args:
            completion_id: the answer's id.
            created: Unix time.
            model: the name that the client sent.
            include_usage: whether a usage chunk will come; then the others say ``"usage": null``.
            continuous: whether every chunk says the usage so far.
        """
        head = orjson.dumps({"id": completion_id, "object": "text_completion", "created": created, "model": model})
        self._head = b"data: " + head[:-1] + b',"choices":['
        self._include_usage = include_usage
        self.wants_usage = continuous

    def choice(
        self,
        index: int,
        text: str,
        usage: Usage | None = None,
        *,
        logprobs: dict[str, Any] | None = None,
        finish_reason: str | None = None,
        extra: dict[str, Any] | None = None,
    ) -> bytes:
        """A chunk of one choice.

        Args:
            index: of the choice.
            text: new text.
            usage: so far, where it is wanted.
            logprobs: lists of the tokens whose text this is.
            finish_reason: on the last chunk of the choice.
            extra: further fields of the choice.
        """
        choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason, **(extra or {})}
        return self._head + orjson.dumps(choice) + b"]" + self._tail(usage)

    def forward(self, write: Write) -> Forward:
        """What writes pieces of the only choice at once, of which nothing but their text is shown.

        Args:
            write: takes events on one line each.
        """
        after = b',"logprobs":null,"finish_reason":null}]' + self._tail(None)
        return text_events(self._head + b'{"index":0,"text":', after, write)

    def end(self, usage: Usage) -> bytes:
        """The usage chunk where it is wanted, and ``[DONE]``."""
        if not self._include_usage:
            return DONE
        return self._head + b'],"usage":' + orjson.dumps(usage_object(usage)) + b"}\n\n" + DONE

    def _tail(self, usage: Usage | None) -> bytes:
        if usage is not None:
            return b',"usage":' + orjson.dumps(usage_object(usage)) + b"}\n\n"
        return b',"usage":null}\n\n' if self._include_usage else b"}\n\n"
