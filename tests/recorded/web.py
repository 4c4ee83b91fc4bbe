"""What HTTP itself may say: bodies, paths, methods, keys, hosts, pages of other origins, health."""

from __future__ import annotations

from typing import Any

from tests.recorded.exchange import CHAT, COMPLETIONS, Case, user
from tests.recorded.gateways import KEY, ORIGIN

JSON = {"content-type": "application/json"}


def raw(name: str, body: bytes | None, headers: dict[str, str] | None = None, path: str = CHAT) -> Case:
    return Case(name, path, body, headers=JSON if headers is None else headers)


def guarded(name: str, path: str, method: str = "GET", body: Any = None, **headers: str) -> Case:
    given = {key.replace("_", "-"): value for key, value in headers.items()}
    return Case(name, path, body, method, {**({} if body is None else JSON), **given}, guarded=True)


HELLO = {"model": "only", "messages": user("Hi")}
OF_THE_KEY = f"Bearer {KEY}"

HTTP: list[Case] = [
    raw("broken JSON", b'{"model": "chat", '),
    raw("JSON with something behind it", b'{"model": "chat"} x'),
    raw("JSON that is no object", b"[1, 2]"),
    raw("JSON with a number that is none", b'{"model": "chat", "temperature": NaN}'),
    raw("JSON with a key twice", b'{"model": "chat", "model": "chat", "messages": []}'),
    raw("JSON with half a character", b'{"model": "\\ud800", "messages": []}'),
    raw("JSON that nests too deep", b'{"a": ' + b"[" * 2000 + b"]" * 2000 + b"}"),
    raw("bytes that are no UTF-8", b'{"model": "\xff"}'),
    raw("an empty body", b""),
    raw("no body", None),
    raw("an empty object", b"{}"),
    raw("an empty object of completions", b"{}", path=COMPLETIONS),
    raw("a byte order mark", b'\xef\xbb\xbf{"model": "nothing", "messages": []}'),
    raw("text", b"Hello", {"content-type": "text/plain"}),
    raw("a form of the web", b"model=chat", {"content-type": "application/x-www-form-urlencoded"}),
    raw("JSON by a name of its own", b"{}", {"content-type": "application/vnd.api+json; charset=utf-8"}),
    raw("JSON without a content type", b"{}", {}),
    raw("a compressed body", b"{}", {**JSON, "content-encoding": "gzip"}),
    raw("a body of a web page without a type", b"{}", {"origin": "https://elsewhere.example"}),
    Case("a request id of the client", CHAT, {"model": "chat", "messages": user("Hi")},
         headers={**JSON, "x-request-id": "mine-1"}),
    Case("a request id that is not safe", CHAT, {"model": "chat", "messages": user("Hi")},
         headers={**JSON, "x-request-id": "mine 1"}),
    Case("a foreign host", "/v1/models", method="GET", headers={"host": "evil.example"}),
    Case("an unknown path", "/v1/nothing", method="GET"),
    Case("a path without its version", "/chat/completions", {"model": "chat", "messages": user("Hi")}, headers=JSON),
    Case("a path with its version twice", "/v1/v1/chat/completions", {}, headers=JSON),
    Case("a path with a slash behind it", "/v1/chat/completions/", {"model": "chat", "messages": user("Hi")},
         headers=JSON),
    Case("a path with two slashes", "/v1//models", method="GET"),
    Case("embeddings", "/v1/embeddings", {"model": "chat", "input": "Hi"}, headers=JSON),
    Case("a response that was never kept", "/v1/responses/resp_1", method="GET"),
    Case("the root", "/", method="GET"),
    Case("GET of chats", CHAT, method="GET"),
    Case("DELETE of a model", "/v1/models/chat", method="DELETE"),
    Case("POST of models", "/v1/models", b"{}", headers=JSON),
    Case("PUT of health", "/health", b"", method="PUT"),
    Case("an unknown method", "/v1/models", method="BREW"),
    Case("HEAD of models", "/v1/models", method="HEAD"),
    Case("HEAD of a model", "/v1/models/nothing", method="HEAD"),
    Case("HEAD of health", "/health", method="HEAD"),
    Case("HEAD of chats", CHAT, method="HEAD"),
    Case("OPTIONS without CORS", CHAT, method="OPTIONS",
         headers={"origin": ORIGIN, "access-control-request-method": "POST"}),
    Case("health", "/health", method="GET"),
    Case("health/live", "/health/live", method="GET"),
    Case("health/ready", "/health/ready", method="GET"),
    Case("version", "/version", method="GET"),
    guarded("no key", "/v1/models"),
    guarded("a wrong key", "/v1/models", authorization="Bearer wrong"),
    guarded("a key of another scheme", "/v1/models", authorization="Basic c2s6c2s="),
    guarded("the key", "/v1/models", authorization=OF_THE_KEY),
    guarded("a chat without a key", CHAT, "POST", HELLO),
    guarded("a chat with the key", CHAT, "POST", HELLO, authorization=OF_THE_KEY),
    guarded("an unknown path without a key", "/v1/nothing"),
    guarded("health without a key", "/health"),
    guarded("version without a key", "/version"),
    guarded("preflight", CHAT, "OPTIONS", origin=ORIGIN, access_control_request_method="POST",
            access_control_request_headers="authorization,content-type"),
    guarded("preflight of a private network", CHAT, "OPTIONS", origin=ORIGIN, access_control_request_method="POST",
            access_control_request_private_network="true"),
    guarded("preflight of another page", CHAT, "OPTIONS", origin="https://evil.example",
            access_control_request_method="POST"),
    guarded("preflight of another method", CHAT, "OPTIONS", origin=ORIGIN, access_control_request_method="DELETE"),
    guarded("OPTIONS that is no preflight", CHAT, "OPTIONS", authorization=OF_THE_KEY),
    guarded("a page asks", CHAT, "POST", HELLO, origin=ORIGIN, authorization=OF_THE_KEY),
    guarded("a page asks for a stream", CHAT, "POST", {**HELLO, "stream": True, "colour": "red"}, origin=ORIGIN,
            authorization=OF_THE_KEY),
    guarded("a page asks without a key", CHAT, "POST", HELLO, origin=ORIGIN),
    guarded("another page asks", CHAT, "POST", HELLO, origin="https://evil.example", authorization=OF_THE_KEY),
    guarded("a body too large", CHAT, "POST", {**HELLO, "user": "x" * 1024}, authorization=OF_THE_KEY),
    guarded("HEAD without a key", "/v1/models", "HEAD"),
]  # fmt: skip
