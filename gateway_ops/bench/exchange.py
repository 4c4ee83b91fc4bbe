"""One streamed request and its response."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import aiohttp
import orjson

from gateway.serving.comparison.answer_forms import RequestFailedError
from gateway.serving.comparison.facts import generates

_LONGEST_LINE = 2**20
_COUNTS = ("prompt_tokens", "completion_tokens")
_TEXT_KEYS = ("content", "reasoning_content", "reasoning", "refusal", "tool_calls")


@dataclass(slots=True)
class TimedExchange:
    """The times and the usage of one answer, by ``time.perf_counter()``.

    Attributes:
        events: when each event with text came.
        ended: when the answer was complete.
        usage: token counts; empty where the server sends none.
    """

    events: list[float] = field(default_factory=list)
    ended: float = 0.0
    usage: dict[str, int] = field(default_factory=dict)

    @property
    def completion_tokens(self) -> int:
        """The generated tokens by usage, else one for each event."""
        counted = self.usage.get("completion_tokens")
        return len(self.events) if counted is None else counted


async def exchange(
    session: aiohttp.ClientSession, url: str, body: dict[str, Any], timeout_s: float, on_text: Callable[[], None]
) -> TimedExchange:
    """Send a chat request and read its stream to the end.

    Args:
        session: a session with the API key among its headers.
        url: the endpoint.
        body: the request.
        timeout_s: seconds for the whole answer.
        on_text: called for each event with text.

    Raises:
        RequestFailedError: the answer is missing or incomplete.
    """
    found = TimedExchange()
    with failures_by_kind():
        async with session.post(
            url, data=orjson.dumps(body), timeout=aiohttp.ClientTimeout(total=timeout_s, connect=timeout_s)
        ) as answer:
            if answer.status != HTTPStatus.OK:
                raise RequestFailedError(await _refusal(answer))
            async for line in lines_of(answer.content):
                if _take(line, found, on_text):
                    found.ended = time.perf_counter()
                    return found
    raise RequestFailedError("the stream ended without [DONE]")


@contextlib.contextmanager
def failures_by_kind() -> Iterator[None]:
    """Convert errors of the HTTP client within a context to kinds of failures.

    Raises:
        RequestFailedError: replaces the client's errors.
    """
    try:
        yield
    except asyncio.TimeoutError:
        raise RequestFailedError("timeout") from None
    except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError, ConnectionResetError):
        raise RequestFailedError("connection lost") from None
    except aiohttp.ClientConnectorError:
        raise RequestFailedError("cannot connect") from None
    except aiohttp.ClientError as error:
        raise RequestFailedError(type(error).__name__) from None


async def first_model(session: aiohttp.ClientSession, url: str, timeout_s: float) -> str:
    """Find the first model in a server's list that generates text.

    Args:
        session: a session with the API key among its headers.
        url: the list, ``.../v1/models``.
        timeout_s: seconds for the response.

    Raises:
        RequestFailedError: the server lists none, or does not respond; the message says so.
    """
    try:
        async with session.get(url, timeout=aiohttp.ClientTimeout(total=timeout_s)) as answer:
            if answer.status != HTTPStatus.OK:
                raise RequestFailedError(f"{url} responds with {await _refusal(answer)}")
            listed = orjson.loads(await answer.read())
    except (aiohttp.ClientError, asyncio.TimeoutError, orjson.JSONDecodeError) as error:
        raise RequestFailedError(
            f"{url} does not respond with a list of models: {error or type(error).__name__}"
        ) from None
    models = listed.get("data") if isinstance(listed, dict) else None
    for each in models if isinstance(models, list) else ():
        if isinstance(each, dict) and "id" in each and generates(each):
            return str(each["id"])
    raise RequestFailedError(f"{url} lists no model that generates text")


async def lines_of(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield the lines of a body as soon as they arrive.

    Raises:
        RequestFailedError: a line is too long.
    """
    rest = b""
    async for part in content.iter_any():
        *lines, rest = (rest + part).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            raise RequestFailedError("an event of more than 1 MiB")
        for line in lines:
            yield line


def _take(line: bytes, measured: TimedExchange, on_text: Callable[[], None]) -> bool:
    """Record a line of the stream; return whether it ends the stream."""
    if not line.startswith(b"data:"):
        return False
    data = line[5:].strip()
    if data == b"[DONE]":
        return True
    try:
        event = orjson.loads(data)
        if "error" in event:
            raise RequestFailedError(f"error event: {_code(event)}")
        if usage := event.get("usage"):
            measured.usage = {name: int(usage[name]) for name in _COUNTS if usage.get(name) is not None}
        for choice in event.get("choices") or ():
            delta = choice.get("delta") or {}
            if any(delta.get(key) for key in _TEXT_KEYS):
                measured.events.append(time.perf_counter())
                on_text()
    except orjson.JSONDecodeError:
        raise RequestFailedError("an event that is not JSON") from None
    except (AttributeError, TypeError, ValueError):
        raise RequestFailedError("an event that is not a chat completion chunk") from None
    return False


async def _refusal(answer: aiohttp.ClientResponse) -> str:
    """Status and error code of a response, without the parts that differ between requests."""
    try:
        said = orjson.loads(await answer.read())
    except orjson.JSONDecodeError:
        return f"{answer.status}"
    return f"{answer.status} {_code(said)}".strip()


def _code(said: Any) -> str:
    error = said.get("error") if isinstance(said, dict) else None
    if not isinstance(error, dict):
        return ""
    return str(error.get("code") or error.get("type") or "")[:64]
