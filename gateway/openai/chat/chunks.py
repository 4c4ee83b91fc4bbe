"""Chunks of a stream as ready Server-Sent Events: everything but the text is built once for each request."""

from __future__ import annotations

import orjson

from gateway.generation import Piece, Usage
from gateway.openai.chat.logprobs import logprobs_object
from gateway.openai.errors import OpenAIError

DONE = b"data: [DONE]\n\n"


def error_event(error: OpenAIError) -> bytes:
    """The event that ends a stream which has already begun; no ``[DONE]`` follows it."""
    return b"data: " + error.body() + b"\n\n"


def usage_object(usage: Usage) -> dict[str, int]:
    """OpenAI's ``usage``."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


class ChunkWriter:
    """Writes the events of one answer."""

    __slots__ = ("_after", "_before", "_close", "_head", "_include_usage")

    def __init__(self, completion_id: str, created: int, model: str, *, include_usage: bool) -> None:
        """Build what all chunks share.

        Args:
            completion_id: the answer's id.
            created: Unix time.
            model: the served model's name.
            include_usage: whether a usage chunk will come; then the others say ``"usage": null``.
        """
        head = orjson.dumps(
            {"id": completion_id, "object": "chat.completion.chunk", "created": created, "model": model}
        )
        usage = b',"usage":null' if include_usage else b""
        self._include_usage = include_usage
        self._head = b"data: " + head[:-1] + b',"system_fingerprint":null,"choices":['
        self._close = b"]" + usage + b"}\n\n"
        self._before = self._head + b'{"index":0,"delta":{"content":'
        self._after = b'},"logprobs":null,"finish_reason":null}' + self._close

    def role(self) -> bytes:
        """The first chunk."""
        return (
            self._head
            + b'{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'
            + self._close
        )

    def piece(self, piece: Piece) -> bytes:
        """A chunk with text, and the log-prob entries that belong to it."""
        if not piece.logprobs:
            return self._before + orjson.dumps(piece.text) + self._after
        logprobs = orjson.dumps(logprobs_object(piece.logprobs))
        return (
            self._before
            + orjson.dumps(piece.text)
            + b'},"logprobs":'
            + logprobs
            + b',"finish_reason":null}'
            + self._close
        )

    def end(self, finish_reason: str, usage: Usage) -> bytes:
        """The chunk with the finish reason, the usage chunk where it is wanted, and ``[DONE]``."""
        reason = orjson.dumps(finish_reason)
        events = self._head + b'{"index":0,"delta":{},"logprobs":null,"finish_reason":' + reason + b"}" + self._close
        if self._include_usage:
            events += self._head + b'],"usage":' + orjson.dumps(usage_object(usage)) + b"}\n\n"
        return events + DONE
