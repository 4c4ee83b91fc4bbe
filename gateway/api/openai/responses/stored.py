"""Stored responses: a document each, whose parts are read without parsing the others.

Items are found by their ids alone: an id names the response of its item.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import orjson

from gateway.api.openai.errors import from_store
from gateway.api.openai.responses.input_items import InputItem, ReferenceItem
from gateway.api.openai.stored_items import StoredItems
from gateway.serving.store import ConflictError, DocumentWrite, Store, StoreError, check_writable
from gateway.text.bad_request import BadRequestError

_ID = re.compile(r"resp_[0-9a-f]{32}")
_RUNNING = frozenset({"queued", "in_progress"})
_LOST = "The gateway process that generated this response stopped before the end, or could not store the response."
Result = TypeVar("Result")
_writing: set[asyncio.Task[Any]] = set()  # writes that continue when the client disconnects

LEASE_S: Final = 10.0
"""Seconds after which a background response whose lease was not renewed has failed."""

MOST_REFERRED: Final = 1024
"""Responses that the references of one request may be to."""

MOST_REFERRED_BYTES: Final = 64 * 2**20
"""Bytes of these responses with their input that are read for one request."""

_OF_A_RESPONSE = re.compile(r"[a-z]{2,4}_([0-9a-f]{32})[0-9a-f]{4}")


def new_response_id() -> str:
    """Make an id that cannot be guessed, which alone protects a response where clients have no keys."""
    return f"resp_{secrets.token_hex(16)}"


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response with its input.

    Attributes:
        status: of the response.
        background: whether it is a background response.
        streamed: whether its events are stored, in the log of its document.
        previous: id of the response before it; None without one.
        conversation: id of the conversation that it continues; None without one.
        own: the fields of the ``response`` object that its answer makes, as a JSON object.
        sent: its other fields, which repeat the request, as a JSON object.
        input: the items of its input, without earlier ones.
    """

    status: str
    background: bool
    streamed: bool
    previous: str | None
    conversation: str | None
    own: bytes
    sent: bytes
    input: StoredItems

    @property
    def response(self) -> bytes:
        """The ``response`` object as JSON."""
        return merge_json_objects(self.own, self.sent)

    @property
    def size(self) -> int:
        """The size in bytes of the input and of the fields that do not repeat the request."""
        return len(self.own) + sum(map(len, self.input.values()))

    @property
    def running(self) -> bool:
        """Whether the response has not ended."""
        return self.status in _RUNNING

    def encoded(self) -> bytes:
        """Write the document: a line of short fields, two of the response, and one for each item of the input."""
        names = ("status", "background", "streamed", "previous", "conversation")
        facts = {name: getattr(self, name) for name in names} | {"ids": list(self.input)}
        return b"\n".join((orjson.dumps(facts), self.own, self.sent, *self.input.values()))

    @staticmethod
    def decoded(data: bytes) -> StoredResponse:
        """Parse a document that ``encoded`` wrote."""
        facts, own, sent, *lines = data.split(b"\n")
        fields = orjson.loads(facts)
        return StoredResponse(input=dict(zip(fields.pop("ids"), lines, strict=True)), **fields, own=own, sent=sent)

    def ended(self, status: str, **fields: Any) -> StoredResponse:
        """Return the response as ended from outside its run.

        Args:
            status: ``failed`` or ``cancelled``.
            fields: of the response that change with it.
        """
        own = orjson.loads(self.own) | {"status": status} | fields
        return replace(self, status=status, own=orjson.dumps(own))

    def output(self) -> list[dict[str, Any]]:
        """The items of the output."""
        found: list[dict[str, Any]] = orjson.loads(self.own)["output"]
        return found


def merge_json_objects(own: bytes, sent: bytes) -> bytes:
    """Merge two JSON objects, neither of which is empty, as bytes."""
    return own[:-1] + b"," + sent[1:]


class ResponseLostError(Exception):
    """The response was ended or deleted elsewhere during its generation."""


@dataclass(frozen=True, slots=True)
class ResponseStore:
    """The stored responses of one owner.

    All methods raise ``OpenAIError``, 503, where the store cannot be used.

    Attributes:
        store: the store of all owners.
        owner: the responses' owner.
    """

    store: Store
    owner: str

    async def find(self, response_id: str) -> tuple[StoredResponse, int] | None:
        """Find a response and the version of its document.

        A running response without a lease is written as failed.
        """
        if not _ID.fullmatch(response_id):
            return None
        while True:
            document = await store_errors_as_503(self.store.get(self.owner, response_id))
            if document is None:
                return None
            found = StoredResponse.decoded(document.data)
            if not found.running or await self.leased(response_id):
                return found, document.version
            try:
                await self._fail(response_id, found, document.version)
            except ResponseLostError:
                continue  # the response has ended meanwhile

    async def _fail(self, response_id: str, found: StoredResponse, version: int) -> None:
        failed = found.ended("failed", error={"code": "server_error", "message": _LOST})
        await self.put(response_id, failed, version)
        await self.release(response_id)

    async def put(self, response_id: str, stored: StoredResponse, expected: int) -> int:
        """Write a response; returns the version of its document.

        Args:
            response_id: id of the response.
            stored: the whole response.
            expected: the document's version so far, 0 for a new document.

        Raises:
            ResponseLostError: the document has another version.
        """
        return await store_errors_as_503(self.store.put(self.owner, response_id, stored.encoded(), expected=expected))

    async def holds(self, response_id: str, stored: StoredResponse, version: int) -> bool:
        """Tell whether a response is stored in this form, in this version of its document."""
        document = await store_errors_as_503(self.store.get(self.owner, response_id))
        return document is not None and (document.version, document.data) == (version, stored.encoded())

    async def delete(self, response_id: str) -> bool:
        """Delete a response and stop its generation; returns whether it was stored."""
        if not _ID.fullmatch(response_id):
            return False
        deleted = await store_errors_as_503(self.store.delete(self.owner, response_id))
        await self.release(response_id)
        return deleted

    async def leased(self, response_id: str) -> bool:
        """Tell whether the lease of a response is valid."""
        lease = await store_errors_as_503(self.store.get(self.owner, _lease(response_id)))
        return lease is not None and float(lease.data) > time.time()

    async def renew(self, response_id: str) -> None:
        """Renew the lease of a running response.

        Raises:
            ResponseLostError: the response was ended elsewhere.
        """
        found = await store_errors_as_503(self.store.get(self.owner, _lease(response_id)))
        if found is None:
            raise ResponseLostError
        await store_errors_as_503(self.store.put_all(self.owner, [_leased(response_id, found.version)]))

    async def check(self) -> None:
        """Reject a request before its response is generated, where the response could not be stored."""
        await store_errors_as_503(check_writable(self.store))

    async def begin(self, response_id: str, stored: StoredResponse) -> None:
        """Write a new response with a lease of ``LEASE_S`` seconds, which tells that it is generated."""
        await store_errors_as_503(
            self.store.put_all(self.owner, [_leased(response_id, 0), DocumentWrite(response_id, stored.encoded(), 0)])
        )

    async def release(self, response_id: str) -> None:
        """End the lease, which stops the generation."""
        await store_errors_as_503(self.store.delete(self.owner, _lease(response_id)))

    async def append(self, response_id: str, events: list[bytes]) -> None:
        """Add events to the log of a response.

        Raises:
            ResponseLostError: it was deleted.
        """
        await store_errors_as_503(self.store.append(self.owner, response_id, events))

    async def events(self, response_id: str, place: int, limit: int) -> list[bytes]:
        """Read events of a response from a sequence number on."""
        return await store_errors_as_503(self.store.entries(self.owner, response_id, place, limit))


def _leased(response_id: str, expected: int) -> DocumentWrite:
    return DocumentWrite(_lease(response_id), b"%f" % (time.time() + LEASE_S), expected)


def _lease(response_id: str) -> str:
    return f"run_{response_id}"


def begun(write: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Begin a write that continues to its end although its caller is cancelled."""
    task = asyncio.create_task(write)
    _writing.add(task)
    task.add_done_callback(_forget)
    return task


def _forget(task: asyncio.Task[Any]) -> None:
    _writing.discard(task)
    if not task.cancelled():
        task.exception()  # already raised to a waiting caller, and logged by the store


async def store_errors_as_503(call: Coroutine[Any, Any, Result]) -> Result:
    """Wait for a call of the store.

    Raises:
        ResponseLostError: a document has another version than expected, or is gone.
        OpenAIError: 503 where the store cannot be used.
    """
    try:
        return await call
    except ConflictError:
        raise ResponseLostError from None
    except StoreError as error:
        raise from_store(error) from None


def item_id(prefix: str, response_id: str, place: int) -> str:
    """Make the id of an output item.

    Args:
        prefix: tells its type.
        response_id: of the response.
        place: of the item in the output.
    """
    return f"{prefix}_{response_id.removeprefix('resp_')}{place:04x}"


def references(items: Sequence[InputItem]) -> dict[str, set[str]]:
    """The ids of items that a request refers to and does not bring, by the ids of their responses."""
    brought = {item.id for item in items if not isinstance(item, ReferenceItem)}
    found: dict[str, set[str]] = {}
    for item in items:
        if isinstance(item, ReferenceItem) and item.id not in brought and (named := _OF_A_RESPONSE.fullmatch(item.id)):
            found.setdefault(f"resp_{named[1]}", set()).add(item.id)
    return found


async def referred(response_store: ResponseStore, item_ids: dict[str, set[str]]) -> dict[str, dict[str, Any]]:
    """Find items of stored responses; missing items are left out.

    Args:
        response_store: of the client.
        item_ids: as ``references`` finds them.

    Raises:
        BadRequestError: they are of too many responses, or of too large ones.
        OpenAIError: 503 where the store cannot be used.
    """
    most = f"{MOST_REFERRED} responses with {MOST_REFERRED_BYTES} bytes"
    message = f"The item references of a request may refer to at most {most} in total."
    too_many = BadRequestError(message, "input", "item_references_too_many")
    if len(item_ids) > MOST_REFERRED:
        raise too_many
    found: dict[str, dict[str, Any]] = {}
    size = 0
    for response_id, ids in item_ids.items():
        if (stored := await response_store.find(response_id)) is None:
            continue
        size += stored[0].size + len(stored[0].sent)
        if size > MOST_REFERRED_BYTES:
            raise too_many
        found |= {item["id"]: item for item in stored[0].output() if item["id"] in ids}
    return found
