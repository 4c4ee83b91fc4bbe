"""A client of a server of OpenAI's API."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping
from typing import Any

from gateway.serving.comparison.facts import generates
from gateway_ops.chat.streamed_answer import ChatError, ReplyDelta, ReplyReader, StreamedReply, words_of
from gateway_ops.conformance.bounded_http import CheckRequest, Http, HttpAnswer, OpenHttpAnswer, UnreachableError

_OK = 200
_NO_KEY = (401, 403)
_BAD_REQUEST = (400, 422)
_FAILED_FROM = 500
_USAGE = "stream_options"
_KEY_HINT = "Give a key of the server with --api-key or GATEWAY_API_KEY."


class ChatServer:
    """Sends requests to a server and reads its responses.

    Args:
        url: the base URL, with or without ``/v1``.
        api_key: a bearer key; None without one.
        timeout_s: seconds for a whole answer.

    Raises:
        ChatError: the URL or the key is invalid.
    """

    def __init__(self, url: str, api_key: str | None, timeout_s: float) -> None:
        try:
            self.http = Http(url, api_key, timeout_s)
        except UnreachableError as error:
            raise ChatError(_sentence(str(error))) from None
        self.tells_usage = True  # until the server rejects a request for usage

    def models(self) -> list[dict[str, Any]]:
        """List the server's models, each with an ``id``.

        Raises:
            ChatError: the server does not respond with a list.
        """
        said = self.get("/v1/models")
        data = said.get("data") if isinstance(said, dict) else None
        if not isinstance(data, list):
            raise ChatError(f"{self.http.base}/v1/models is not a list of models.")
        return [each for each in data if isinstance(each, dict) and isinstance(each.get("id"), str)]

    def names(self) -> list[str]:
        """List the ids of the models that generate text; see ``models``."""
        return [each["id"] for each in self.models() if generates(each)]

    def health(self) -> dict[str, dict[str, Any]]:
        """Read a gateway's health of each model, ready or not; empty for another server."""
        try:
            said = json.loads(self.http.send(CheckRequest("GET", "/health/ready")).body)
        except (UnreachableError, ValueError, RecursionError):
            return {}
        models = said.get("models") if isinstance(said, dict) else None
        found = models if isinstance(models, dict) else {}
        return {name: each for name, each in found.items() if isinstance(each, dict)}

    def get(self, path: str) -> Any:
        """Fetch a JSON value.

        Raises:
            ChatError: the server does not respond with JSON.
        """
        try:
            return json.loads(self.fetch(path).body)
        except (ValueError, RecursionError):
            raise ChatError(f"{self.http.base}{path} did not return JSON.") from None

    def fetch(self, path: str) -> HttpAnswer:
        """Fetch a whole response with status 200.

        Raises:
            ChatError: the server gives another response or none.
        """
        try:
            answer = self.http.send(CheckRequest("GET", path))
        except UnreachableError as error:
            raise ChatError(_sentence(str(error))) from None
        if answer.status != _OK:
            raise ChatError(_refusal(answer), answer.status)
        if answer.trouble:
            raise ChatError(f"{self.http.base}{path} returned an incomplete response: {answer.trouble}.")
        return answer

    def ask(self, body: Mapping[str, Any]) -> PendingReply:
        """Prepare a request for an answer; reading the answer sends it."""
        return PendingReply(self, body)


class PendingReply:
    """An answer that ``pieces`` requests and reads.

    Attributes:
        reader: reader of the answer so far.
    """

    def __init__(self, server: ChatServer, body: Mapping[str, Any]) -> None:
        self._server = server
        self._body = dict(body)
        self.reader = ReplyReader()

    @property
    def answer(self) -> StreamedReply:
        """The answer so far."""
        return self.reader.answer

    def pieces(self) -> Generator[ReplyDelta, None, None]:
        """Send the request and yield its answer until the end.

        Closing the generator early ends the connection.

        Raises:
            ChatError: the answer is missing or incomplete.
        """
        try:
            if self._server.tells_usage:
                yield from self._pieces(usage=True)
            if not self._server.tells_usage:  # or has just rejected the request for usage
                yield from self._pieces(usage=False)
        except UnreachableError as error:
            raise ChatError(_sentence(str(error))) from None

    def _pieces(self, *, usage: bool) -> Iterator[ReplyDelta]:
        asked = {_USAGE: {"include_usage": True}} if usage else {}
        request = CheckRequest("POST", "/v1/chat/completions", json.dumps({**self._body, "stream": True, **asked}))
        with self._server.http.opened(request) as opened:
            if opened.status != _OK:
                rejected = opened.read()
                if usage and rejected.status in _BAD_REQUEST and _USAGE in rejected.text:
                    self._server.tells_usage = False  # the request is repeated without it
                    return
                raise ChatError(_refusal(rejected), rejected.status)
            if opened.content_type != "text/event-stream":
                answer = opened.read()
                if answer.trouble:
                    raise ChatError(_broken_off(answer))
                yield from self.reader.whole(answer.body)
                return
            yield from self._events(opened)

    def _events(self, opened: OpenHttpAnswer) -> Iterator[ReplyDelta]:
        for part in opened.parts():
            yield from self.reader.feed(part)
            if self.reader.ended:
                return
        if self.answer.finish_reason is None:  # a complete answer may lack [DONE]
            raise ChatError(_broken_off(opened.answer()))


def _broken_off(answer: HttpAnswer) -> str:
    return f"The response was interrupted: {answer.trouble or 'the server closed the connection'}."


def _refusal(answer: HttpAnswer) -> str:
    """The sentence that reports a failed response to the user."""
    if not answer.status:
        return _sentence(answer.trouble)
    try:
        message, names = words_of(json.loads(answer.body))
    except (ValueError, RecursionError):
        message, names = answer.text.strip()[:200], ""
    verb = "failed" if answer.status >= _FAILED_FROM else "rejected the request"
    what = f"The server {verb} ({', '.join(filter(None, (str(answer.status), names)))})"
    said = _sentence(f"{what}: {message}" if message else what)
    wait = answer.headers.get("retry-after", "")
    if wait.isdigit():
        said += f" Retry after {wait} s."
    return f"{said} {_KEY_HINT}" if answer.status in _NO_KEY else said


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
