"""The targets of a comparison: models on servers of OpenAI's API."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import aiohttp
import orjson

from gateway.serving.comparison.answer_forms import LONGEST_ANSWER, RequestFailedError
from gateway.serving.comparison.facts import generates
from gateway.text.bad_request import first_of
from gateway.text.harmless import one_line
from gateway_ops.bench.exchange import failures_by_kind


class TargetError(ValueError):
    """A target that cannot be compared; the message names the target and the reason."""


@dataclass(frozen=True, slots=True)
class TargetAddress:
    """The address of a target on the command line.

    Attributes:
        side: ``A`` or ``B``.
        base: base of its URLs, without ``/v1``.
        model: id of the model; None for the only listed one.
    """

    side: str
    base: str
    model: str | None

    @staticmethod
    def parse(side: str, text: str, default_url: str) -> TargetAddress:
        """Read ``URL#model``, ``URL``, or the name of a model on ``default_url``.

        Raises:
            TargetError: the text has none of these forms.
        """
        if "://" in text:
            url, _, model = text.partition("#")
        else:
            url, model = default_url, text
            if "#" in text:
                raise TargetError(f"{side}: {text!r} is not a URL: begin it with http:// or https://")
        try:
            parts = urllib.parse.urlsplit(url)
            valid = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0 and not parts.query
        except ValueError:
            valid = False
        if not valid or not text:
            raise TargetError(f"{side}: {text!r} is not URL#model, a URL or the name of a model")
        return TargetAddress(side, url.rstrip("/").removesuffix("/v1").rstrip("/"), model or None)

    @property
    def origin(self) -> tuple[str, str | None, int | None]:
        """The scheme, host and port."""
        parts = urllib.parse.urlsplit(self.base)
        return parts.scheme, parts.hostname, parts.port

    @property
    def shown(self) -> str:
        """The base URL without its credentials."""
        parts = urllib.parse.urlsplit(self.base)
        return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


@dataclass(frozen=True, slots=True)
class Target:
    """A model that gets requests.

    Attributes:
        address: its address.
        model: its id on the server.
        entry: the server's object of the model; empty without one.
        session: session with the key among its headers.
    """

    address: TargetAddress
    model: str
    entry: Mapping[str, Any]
    session: aiohttp.ClientSession = field(repr=False)

    @property
    def label(self) -> str:
        """The name of the target for people."""
        return f"{one_line(self.model)} at {self.address.shown}"

    @property
    def identity(self) -> tuple[Any, ...]:
        """The identity of the target, equal for two names of one model."""
        return (self.address.origin, served_name(self.entry) or self.model)


def served_name(entry: Mapping[str, Any]) -> str | None:
    """The name of the model behind an id, where the server is a gateway."""
    gateway = entry.get("gateway")
    name = gateway.get("model") if isinstance(gateway, dict) else None
    return name if isinstance(name, str) else None


async def find_target(address: TargetAddress, session: aiohttp.ClientSession, timeout_s: float) -> Target:
    """Find a target's model in its server's list; without a list the given name is used.

    Args:
        address: its address.
        session: session with the key among its headers.
        timeout_s: seconds for each response.

    Raises:
        TargetError: the server is unreachable or needs a key, lists several models and none is named, or lists others.
    """
    listed = await _listed(address, session, timeout_s)
    if listed is None and address.model is None:
        raise TargetError(f"{address.side}: {address.shown} lists no models: name a model as {address.shown}#model")
    model = address.model or _only(address, listed or {})
    if listed and model not in listed:
        raise TargetError(f"{address.side}: {address.shown} has no model {model!r}; it lists {_names(listed)}")
    path = f"{address.base}/v1/models/{urllib.parse.quote(model, safe='')}"
    described = await get_json(session, path, timeout_s) if listed else None
    entry = described if isinstance(described, dict) and described.get("id") == model else (listed or {}).get(model, {})
    return Target(address, model, entry, session)


async def _listed(address: TargetAddress, session: aiohttp.ClientSession, timeout_s: float) -> dict[str, Any] | None:
    """The entries of the list of models by id, or None without such a list."""
    try:
        with failures_by_kind():
            url = f"{address.base}/v1/models"
            async with session.get(url, timeout=aiohttp.ClientTimeout(total=timeout_s)) as answer:
                status, body = answer.status, await read_body(answer.content)
    except RequestFailedError as error:
        raise TargetError(f"{address.side}: {address.shown} does not respond: {error}") from None
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        option = "--api-key" if address.side == "A" else "--api-key-b"
        raise TargetError(f"{address.side}: {address.shown} responds with status {status}: give its key with {option}")
    entries = _object(body).get("data") if status == HTTPStatus.OK else None
    if not isinstance(entries, list):
        return None
    return {each["id"]: each for each in entries if isinstance(each, dict) and isinstance(each.get("id"), str)}


def _only(address: TargetAddress, listed: Mapping[str, Any]) -> str:
    # The gateway lists a model under its aliases, too.
    generating = {name: entry for name, entry in listed.items() if generates(entry)}
    names = {served_name(entry) or name for name, entry in (generating or listed).items()}
    if len(names) != 1:
        what = f"lists {_names(names)}" if names else "lists no model"
        raise TargetError(f"{address.side}: {address.shown} {what}: name a model as {address.shown}#model")
    return names.pop()


def _names(names: Any) -> str:
    first, more = first_of(sorted(names))
    return f"{', '.join(map(repr, first))} {more}".rstrip()


async def get_json(
    session: aiohttp.ClientSession, url: str, timeout_s: float, body: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:
    """Request an object by GET, or by POST with a body; None for any other response."""
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    try:
        with failures_by_kind():
            data = None if body is None else orjson.dumps(body)
            async with session.request("GET" if body is None else "POST", url, data=data, timeout=timeout) as answer:
                said = await read_body(answer.content) if answer.status == HTTPStatus.OK else b""
    except RequestFailedError:
        return None
    return _object(said) or None


async def read_body(content: aiohttp.StreamReader) -> bytes:
    """Read a whole body.

    Raises:
        RequestFailedError: the body is longer than a response may be.
    """
    parts, size = [], 0
    async for part in content.iter_any():
        parts.append(part)
        size += len(part)
        if size > LONGEST_ANSWER:
            raise RequestFailedError("a response of more than 16 MiB")
    return b"".join(parts)


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
