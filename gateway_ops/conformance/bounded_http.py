"""HTTP requests with bounds of time and size, whatever the server does."""

from __future__ import annotations

import contextlib
import http.client
import json
import shlex
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gateway.text.harmless import harmless_json

KEY_VARIABLE = "GATEWAY_API_KEY"
_NUMBERS = "{numbers}"  # stands in a body for "1 2 3 ...", which is too long for a terminal
_MOST_BYTES = 4 * 2**20
_MOST_EVENTS = 5000  # the requests of the checks ask for a few dozen tokens
_CONNECT_S = 10.0
Auth = Literal["own", "wrong"]


class UnreachableError(Exception):
    """A server that cannot be reached; the message says why."""


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """A request of a check, which can be sent again.

    Attributes:
        method: of HTTP.
        path: below the base URL, such as ``/v1/models``.
        body: JSON, or text that is intentionally invalid; empty without a body.
        numbers: where above 0, ``{numbers}`` in the body stands for ``1 2 3`` to this number.
        auth: the caller's own key, where there is one, or a wrong one.
    """

    method: str
    path: str
    body: str = ""
    numbers: int = 0
    auth: Auth = "own"

    def content(self) -> bytes:
        """The body as it is sent."""
        if not self.numbers:
            return self.body.encode()
        return self.body.replace(_NUMBERS, " ".join(map(str, range(1, self.numbers + 1)))).encode()

    def changed(self, **fields: Any) -> CheckRequest:
        """Copy the request with other fields in its JSON body, where None removes a field."""
        body = {**json.loads(self.body), **fields}
        return json_request(self.path, {name: value for name, value in body.items() if value is not None}, self.numbers)


def json_request(path: str, body: Mapping[str, Any], numbers: int = 0) -> CheckRequest:
    """Make a POST of a JSON object, with escaped control characters."""
    return CheckRequest("POST", path, harmless_json(json.dumps(body, ensure_ascii=False)), numbers)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A response, or the reason why there is none.

    Attributes:
        request: the request.
        status: HTTP status.
        headers: headers, with names in lower case.
        body: the body as far as it came.
        trouble: why the response is incomplete, as a clause; empty for a complete one.
        late: whether time ran out.
    """

    request: CheckRequest
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    trouble: str = ""
    late: bool = False

    @property
    def text(self) -> str:
        """The body as text, with replacements for bytes that are not UTF-8."""
        return self.body.decode(errors="replace")


class Http:
    """A client of one server with a connection for each request.

    Args:
        url: the base URL, with or without ``/v1``.
        api_key: a bearer key; None without one.
        timeout_s: seconds for a whole response.

    Raises:
        UnreachableError: the URL or the key is invalid.
    """

    def __init__(self, url: str, api_key: str | None, timeout_s: float) -> None:
        try:
            parts = urllib.parse.urlsplit(url)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError as error:
            raise UnreachableError(f"{url!r} is not a URL: {error}") from None
        if parts.scheme not in {"http", "https"} or not self._host:
            raise UnreachableError(f"{url!r} is not the URL of a server: it must begin with http:// or https://")
        if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
            raise UnreachableError("the key has characters that a header cannot contain")
        self._tls = parts.scheme == "https"
        self._prefix = urllib.parse.quote(parts.path.rstrip("/").removesuffix("/v1"), safe="/%")
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.base = f"{parts.scheme}://{host}{f':{self._port}' if self._port else ''}{self._prefix}"
        self.has_key = bool(api_key)
        self._key = api_key
        self.timeout_s = timeout_s

    def send(self, request: CheckRequest) -> HttpAnswer:
        """Send a request and read its response to the end, or to the bounds.

        Raises:
            UnreachableError: the connection fails.
        """
        with self.opened(request) as open_answer:
            return open_answer.read()

    @contextlib.contextmanager
    def opened(self, request: CheckRequest) -> Iterator[OpenHttpAnswer]:
        """Send a request and yield the unread response, whose connection ends with the context.

        Raises:
            UnreachableError: the connection fails.
        """
        kind = http.client.HTTPSConnection if self._tls else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=min(_CONNECT_S, self.timeout_s))
        with contextlib.closing(connection):
            try:
                connection.connect()
            except (OSError, ssl.SSLError, UnicodeError) as error:
                why = f"{self.base} is unreachable ({error}): give the URL of a running server"
                raise UnreachableError(why) from None
            with _Deadline(connection.sock, self.timeout_s) as deadline:
                yield self._exchange(connection, request, deadline)

    def _exchange(
        self, connection: http.client.HTTPConnection, request: CheckRequest, deadline: _Deadline
    ) -> OpenHttpAnswer:
        try:
            body = request.content() if request.method == "POST" else None
            connection.request(request.method, f"{self._prefix}{request.path}", body, self._head(request))
            return OpenHttpAnswer(request, connection.getresponse(), deadline)
        except (OSError, http.client.HTTPException) as error:
            said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            return OpenHttpAnswer(request, None, deadline, f"the server sent no HTTP response ({said[:200]})")

    def _head(self, request: CheckRequest) -> dict[str, str]:
        head = {"Content-Type": "application/json"} if request.method == "POST" else {}
        if request.auth == "wrong":
            return head | {"Authorization": "Bearer wrong"}
        return head | ({"Authorization": f"Bearer {self._key}"} if self._key else {})

    def curl(self, request: CheckRequest) -> str:
        """Write a shell line that sends a request and shows the response; the key stays in the environment."""
        line = ["curl", "-sS", "-i", "-N", shlex.quote(f"{self.base}{request.path}")]
        if request.auth == "wrong":
            line.append("-H 'Authorization: Bearer wrong'")
        elif self.has_key:
            line.append(f'-H "Authorization: Bearer ${KEY_VARIABLE}"')
        if request.method != "POST":
            return " ".join(line)
        line.append("-H 'Content-Type: application/json'")
        if not request.numbers:
            return " ".join([*line, "--data-binary", shlex.quote(request.body)])
        before, _, after = request.body.partition(_NUMBERS)
        numbers = f"seq -s ' ' {request.numbers} | tr -d '\\n'"
        made = f"{{ printf %s {shlex.quote(before)}; {numbers}; printf %s {shlex.quote(after)}; }}"
        return f"{made} | {' '.join([*line, '--data-binary', '@-'])}"


class _Deadline:
    """Shuts a socket down when time has run out: a server that sends a byte now and then is bounded too."""

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        self.passed = False
        self.seconds = seconds
        self._sock = sock
        self._ends = time.monotonic() + seconds
        self._timer = threading.Timer(seconds, self._pass)
        self._timer.daemon = True

    def __enter__(self) -> _Deadline:
        self._sock.settimeout(None)
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()

    def _pass(self) -> None:
        self.passed = True
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)


class OpenHttpAnswer:
    """A response that is being read."""

    def __init__(
        self, request: CheckRequest, response: http.client.HTTPResponse | None, deadline: _Deadline, trouble: str = ""
    ) -> None:
        self._request = request
        self._response = response
        self._deadline = deadline
        self._trouble = trouble
        self._body = bytearray()
        self._ended = False

    def read(self) -> HttpAnswer:
        """Read to the end, or to the bounds."""
        for _ in self.events(limit=_MOST_EVENTS):
            pass
        return self.answer()

    @property
    def status(self) -> int:
        """The HTTP status, or 0 without a response."""
        return self._response.status if self._response is not None else 0

    @property
    def content_type(self) -> str:
        """The content type in lower case without parameters; empty without one."""
        named = self._response.getheader("Content-Type") if self._response is not None else None
        return (named or "").partition(";")[0].strip().lower()

    def parts(self) -> Iterator[bytes]:
        """Yield parts of the body as they come, without keeping them; only time is bounded."""
        while self._response is not None:
            try:
                part = self._response.read1(65536)
            except (OSError, http.client.HTTPException):
                self._trouble = "the connection closed before the response ended"
                return
            if not part:
                self._ended = True
                return
            yield part

    def events(self, limit: int) -> Iterator[int]:
        """Read on, and yield the number of events so far after each part; ends after ``limit`` events."""
        count = 0
        for part in self.parts():
            before = len(self._body)
            self._body += part
            # A mark that two parts share is seen with the later one.
            count += self._body.count(b"data:", max(0, before - 4))
            yield count
            if count > limit or len(self._body) > _MOST_BYTES:
                return

    def answer(self) -> HttpAnswer:
        """Make the response from the read parts."""
        trouble = self._trouble
        if self._deadline.passed:
            trouble = f"the response had not ended after {self._deadline.seconds:g} s"
        elif not trouble and not self._ended:
            trouble = f"the response has more than {_MOST_BYTES >> 20} MiB or {_MOST_EVENTS} events"
        status, headers = 0, {}
        if self._response is not None:
            status = self._response.status
            headers = {name.lower(): value for name, value in self._response.getheaders()}
        return HttpAnswer(self._request, status, headers, bytes(self._body), trouble, self._deadline.passed)
