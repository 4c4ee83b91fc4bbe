"""Compaction of a conversation to an encrypted summary and the messages that are not the model's."""

from __future__ import annotations

import time
from typing import Any, Final

import orjson
from pydantic import Field

from gateway.api.openai.encryption import OwnerCipher
from gateway.api.openai.endpoint import collect_body
from gateway.api.openai.errors import NO_RETRY, SERVER, OpenAIError
from gateway.api.openai.responses.answer import ResponsesAnswer
from gateway.api.openai.responses.input_items import ConfigurationUpdateItem, MessageItem, UpdatedText
from gateway.api.openai.responses.protocol import Input, ResponsesRequest
from gateway.api.openai.responses.translate import ResponsesTurn
from gateway.api.openai.stored_items import as_stored
from gateway.api.openai.validation import RequestPart, validated
from gateway.http.access_log import RequestRecord
from gateway.text.bad_request import BadRequestError
from gateway.text.client_json import write_client_json

PROMPT: Final = (
    "Summarize the conversation above, so that it can be continued from the summary alone. Keep what was asked for, "
    "what was decided and why, what was done and found (names, paths, numbers and results as they are), and what is "
    "still to be done. Write the summary only."
)
"""The last message of the user's, which asks for the summary."""


class CompactRequest(RequestPart):
    """A request to shorten a conversation. Null means absent; unknown fields are ignored by name."""

    model: str = Field(min_length=1)
    input: Input | None = Field(
        default=None, description="The conversation, or the items that follow the previous response."
    )
    instructions: str | None = Field(default=None, description="A system message before all other messages.")
    previous_response_id: str | None = Field(default=None, description="A stored response that ends the conversation.")
    prompt_cache_key: str | None = Field(default=None, description="Written to the access log.")
    prompt_cache_retention: Any = Field(default=None, description="Accepted without effect: the engine decides.")
    prompt_cache_options: Any = Field(default=None, description="Accepted without effect: the engine decides.")
    service_tier: str | None = Field(default=None, description="Accepted without effect: there is one tier.")


class _SummaryRequest(ResponsesRequest):
    others: tuple[str, ...]

    def unread(self) -> list[str]:
        return list(self.others)


def parse_compact_request(fields: dict[str, Any]) -> ResponsesRequest:
    """Parse a request body into the request for the summary.

    Raises:
        BadRequestError: naming the parameter at fault.
    """
    asked = validated(CompactRequest, {key: value for key, value in fields.items() if value is not None})
    if not asked.input and asked.previous_response_id is None:
        message = "Missing required parameter: 'input' or 'previous_response_id'."
        raise BadRequestError(message, "input", "missing_required_parameter")
    given = [] if asked.input is None else asked.input
    items = [MessageItem(role="user", content=given)] if isinstance(given, str) else given
    fields = asked.model_dump(include={"model", "instructions", "previous_response_id", "prompt_cache_key"})
    text = ConfigurationUpdateItem(type="configuration_update", text=UpdatedText(format={"type": "text"}))
    last = MessageItem(role="user", content=PROMPT)
    return _SummaryRequest(**fields, input=[*items, text, last], store=False, others=tuple(asked.model_extra or ()))


def needed(cipher: OwnerCipher | None) -> OwnerCipher:
    """Return the client's cipher.

    Raises:
        BadRequestError: the client has no cipher.
    """
    if cipher is None:
        message = (
            "This gateway cannot compact conversations because no key for encrypted summaries is set ('state.keys')."
        )
        raise BadRequestError(message, None, "compaction_not_supported")
    return cipher


async def compacted(answer: ResponsesAnswer, turn: ResponsesTurn, cipher: OwnerCipher, record: RequestRecord) -> bytes:
    """Generate the summary and make the ``response.compaction`` object.

    Args:
        answer: the answer with the summary; its generations do not run yet.
        turn: the request for the summary.
        cipher: the client's cipher.
        record: the access log's record.

    Raises:
        OpenAIError: the summary is missing or cut.
    """
    response = orjson.loads(await collect_body(answer, record))
    if response["status"] != "completed":
        message = "The prompt is too long: it leaves too few tokens of the model's context for a summary."
        raise OpenAIError(400, message, param="input", code="context_length_exceeded")
    summary = answer.items.text.strip()
    if not summary:
        message = "The model returned no summary."
        raise OpenAIError(500, message, type=SERVER, code="invalid_model_output", headers=NO_RETRY)
    *earlier, _, _ = turn.conversed
    stay = [
        item
        for item in earlier
        if isinstance(item, ConfigurationUpdateItem) or (isinstance(item, MessageItem) and item.role != "assistant")
    ]
    output = [as_stored(item.model_dump(exclude_unset=True)) for item in stay]
    output.append(as_stored({"type": "compaction", "encrypted_content": cipher.encrypt("compaction", summary)}))
    made = {"id": answer.id, "object": "response.compaction", "created_at": int(time.time())}
    return write_client_json({**made, "output": output, "usage": response["usage"]})
