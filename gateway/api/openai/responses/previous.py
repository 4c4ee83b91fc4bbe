"""The previous items of a request: those of the conversation that it continues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import jiter

from gateway.api.openai.conversations import contents
from gateway.api.openai.conversations.contents import ConversationContents
from gateway.api.openai.request_json import MOST_MESSAGES
from gateway.api.openai.responses.input_items import ITEMS, InputItem, InputTextPart, MessageItem, ReferenceItem
from gateway.api.openai.responses.protocol import ResponsesRequest
from gateway.api.openai.responses.stored import ResponseStore, StoredResponse, references, referred
from gateway.api.openai.state import CallerState
from gateway.text.bad_request import BadRequestError, printable

_FIELD = "previous_response_id"

MOST_TURNS: Final = 1024
"""Responses of a chain at most."""

MOST_BYTES: Final = 16 * 2**20
"""Bytes of a chain's items at most, which is what the body of a request may have."""

MOST_REPEATED: Final = 256 * 2**20
"""Bytes of a chain's documents beside its items: what each response repeats of its request, such as tools."""


@dataclass(frozen=True, slots=True)
class PreviousItems:
    """The conversation before a request.

    Attributes:
        turns: earlier responses with their input, the oldest first.
        path: the request's parameter that names the conversation, for errors.
        conversation: the conversation that the request continues; None without one.
        referred: items of other responses that the request refers to, by their ids.
    """

    turns: Sequence[StoredResponse] = ()
    path: str = _FIELD
    conversation: ConversationContents | None = None
    referred: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The size of the conversation in bytes."""
        kept = sum(turn.size for turn in self.turns)
        return kept + (self.conversation.size if self.conversation else 0)

    def items(self) -> Sequence[InputItem]:
        """Parse the items, as if the client had sent them; the time grows with their size.

        Raises:
            BadRequestError: there are too many.
        """
        found = [item for turn in self.turns for item in (*map(jiter.from_json, turn.input.values()), *turn.output())]
        if self.conversation is not None:
            found += map(jiter.from_json, self.conversation.items.values())
        if len(found) > MOST_MESSAGES:
            message = (
                f"The conversation before this request has {len(found)} items; at most {MOST_MESSAGES} are allowed."
            )
            raise BadRequestError(message, self.path, "array_above_max_length")
        return ITEMS.validate_python(found)

    def resolved(self, items: Sequence[InputItem], earlier: Sequence[InputItem]) -> list[InputItem]:
        """Replace references of a request by the items that they refer to.

        A reference to an item of the conversation stays a reference, and an item that is sent again becomes one,
        because the conversation has it already.

        Args:
            items: of the request.
            earlier: those before it.

        Raises:
            BadRequestError: an item has the id of a different item of the conversation.
        """
        known = {item.id: item for item in earlier if not isinstance(item, ReferenceItem)}
        there = {*known, *(item.id for item in items if not isinstance(item, ReferenceItem))}
        found: list[InputItem] = []
        for index, item in enumerate(items):
            if isinstance(item, ReferenceItem) and item.id not in there and item.id in self.referred:
                there.add(item.id)
                found += ITEMS.validate_python([self.referred[item.id]])
            elif item.id is not None and item.id in known and not isinstance(item, ReferenceItem):
                _check_same(known[item.id], item, f"input[{index}].id")
                found.append(ReferenceItem(id=item.id))
            else:
                found.append(item)
        return found


NOTHING: Final = PreviousItems()
"""A request without anything before it."""


async def before(kept: CallerState, request: ResponsesRequest) -> PreviousItems:
    """Read the conversation before a request.

    Args:
        kept: of the client.
        request: a request that may continue a conversation.

    Raises:
        BadRequestError: the earlier response does not exist, runs, has failed, is in a conversation, or is too long.
        OpenAIError: 404 where the conversation does not exist, 503 where the store cannot be used.
    """
    earlier = NOTHING
    if request.previous_response_id is not None:
        if kept.store is None:
            why = "This gateway does not store responses; send the whole conversation."
            raise _not_found(request.previous_response_id, why)
        earlier = PreviousItems(await _chain(ResponseStore(kept.store, kept.owner), request.previous_response_id))
    elif request.conversation is not None and kept.store is not None:
        found = await contents.load(kept.store, kept.owner, request.conversation.id, "conversation")
        earlier = PreviousItems(path="conversation", conversation=found)
    wanted = {} if isinstance(request.input, str) or kept.store is None else references(request.input)
    if wanted and kept.store is not None:
        earlier = replace(earlier, referred=await referred(ResponseStore(kept.store, kept.owner), wanted))
    return earlier


def needs_store(request: ResponsesRequest) -> bool:
    """Tell whether a request needs the store: it continues a conversation, or refers to items."""
    if request.previous_response_id is not None or request.conversation is not None:
        return True
    return not isinstance(request.input, str) and bool(references(request.input))


async def _chain(response_store: ResponseStore, last: str) -> list[StoredResponse]:
    """Read the responses up to the last one.

    Cycles cannot occur: each response names an older one.
    """
    turns: list[StoredResponse] = []
    size, read, wanted = 0, 0, last
    while True:
        found = await response_store.find(wanted)
        if found is None:
            why = "" if wanted == last else f"The response is part of the conversation before {last!r}."
            raise _not_found(wanted, why)
        turn, _ = found
        _check(wanted, turn)
        turns.append(replace(turn, sent=b"{}"))  # each request repeats the tools, which may be larger than all messages
        size += turn.size
        read += len(turn.sent)
        if turn.previous is None:
            return turns[::-1]
        if len(turns) == MOST_TURNS or size > MOST_BYTES or read > MOST_REPEATED:
            bound = f"{MOST_TURNS} responses" if len(turns) == MOST_TURNS else f"{MOST_BYTES} bytes"
            message = f"The conversation before {last!r} is longer than {bound}; send it in 'input', shortened."
            raise BadRequestError(message, _FIELD, "previous_responses_too_long")
        wanted = turn.previous


def _check(response_id: str, turn: StoredResponse) -> None:
    if turn.running:
        message = f"Previous response with id {response_id!r} is still {turn.status}; wait until it is complete."
        raise BadRequestError(message, _FIELD, "previous_response_not_ended")
    if turn.status == "failed":
        message = f"Previous response with id {response_id!r} has failed; continue from the response before it."
        raise BadRequestError(message, _FIELD, "previous_response_failed")
    if turn.conversation is not None:  # its history is in the conversation alone, and has changed since
        message = (
            f"Previous response with id {response_id!r} is in the conversation {turn.conversation!r}; send "
            "'conversation' to continue it."
        )
        raise BadRequestError(message, _FIELD, "previous_response_in_conversation")


def _check_same(there: InputItem, item: InputItem, path: str) -> None:
    """Reject another item under a taken id, without comparing what a client may drop or mark anew."""
    if _essence(there) != _essence(item):
        message = f"The conversation already has an item with the id of '{path}'; each item must have a different id."
        raise BadRequestError(message, path, "duplicate_item")


def _essence(item: InputItem) -> tuple[object, ...]:
    if isinstance(item, MessageItem):
        content = item.content if isinstance(item.content, list) else []
        texts = [part.text if isinstance(part, InputTextPart) else part.refusal for part in content]
        return item.branch, item.role, item.content if isinstance(item.content, str) else "".join(texts)
    return item.branch, getattr(item, "call_id", None)


def _not_found(response_id: str, why: str) -> BadRequestError:
    shown = printable(response_id)
    message = f"Previous response with id {shown!r} not found. {why}".rstrip()
    return BadRequestError(message, _FIELD, "previous_response_not_found")
