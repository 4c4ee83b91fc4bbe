"""Input items of a Responses request: messages, calls, outputs of calls, reasoning, and items of other types."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, TypeAdapter

from gateway.api.openai.encryption import OwnerCipher
from gateway.api.openai.stored_items import text_of
from gateway.api.openai.validation import BRANCH, RequestPart, text_or_list

_TEXTS = frozenset({"input_text", "output_text", "text"})
_KINDS = {
    "message": "message",
    "function_call": "call",
    "function_call_output": "output",
    "custom_tool_call": "custom",
    "custom_tool_call_output": "output",
    "reasoning": "reasoning",
    "compaction": "compaction",
    "item_reference": "reference",
    "additional_tools": "tools",
    "configuration_update": "configuration",
}
"""Types of items that are read, and their branches; another type is of the branch ``other``."""


class InputTextPart(RequestPart):
    """A content part of text, of the user or of the model."""

    type: Literal["input_text", "output_text", "text"]
    text: str


class InputRefusalPart(RequestPart):
    """The content part of a refusal."""

    type: Literal["refusal"]
    refusal: str


def _part(value: Any) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return BRANCH + ("text" if kind in _TEXTS else kind) if isinstance(kind, str) else None


_Parts = Annotated[
    list[
        Annotated[
            Annotated[InputTextPart, Tag(BRANCH + "text")] | Annotated[InputRefusalPart, Tag(BRANCH + "refusal")],
            Discriminator(
                _part,
                custom_error_type="content_part",
                custom_error_message="This type of content part is not supported",
            ),
        ]
    ],
    Tag(BRANCH + "parts"),
    Field(fail_fast=True),
]
Content = Annotated[
    Annotated[str, Tag(BRANCH + "text")] | _Parts,
    Discriminator(
        text_or_list,
        custom_error_type="content",
        custom_error_message="must be a string or an array of content parts",
    ),
]
_Output = Annotated[
    Annotated[str, Tag(BRANCH + "text")] | Annotated[list[dict[str, Any]], Tag(BRANCH + "parts")],
    Discriminator(
        text_or_list,
        custom_error_type="content",
        custom_error_message="must be a string or an array of content parts",
    ),
]
_CallId = Annotated[str, Field(min_length=1)]


LenientId = Annotated[
    str | None,
    BeforeValidator(lambda value: value if isinstance(value, str) else None, json_schema_input_type=Any),
]
"""The id of an item, read as absent where it is not a string."""


class _Item(RequestPart):
    branch: ClassVar[str]

    id: str | None = None


class MessageItem(_Item):
    """A message; its type may be left out."""

    branch = "message"

    type: Literal["message"] | None = None
    role: Literal["user", "assistant", "system", "developer"]
    content: Content | None = None


class FunctionCallItem(_Item):
    """A call of a function that the model made earlier."""

    branch = "call"

    type: Literal["function_call"]
    call_id: _CallId
    name: str
    namespace: str | None = None
    arguments: str


class CustomCallItem(_Item):
    """A call of a custom tool that the model made earlier."""

    branch = "custom"

    type: Literal["custom_tool_call"]
    call_id: _CallId
    name: str
    namespace: str | None = None
    input: str


class OutputItem(_Item):
    """The result of a function or custom tool."""

    branch = "output"

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: _CallId | None = None
    name: str | None = None
    namespace: str | None = None
    output: _Output | None = None


class ReasoningItem(_Item):
    """Reasoning of an earlier turn of any model; all of it is accepted."""

    branch = "reasoning"

    type: Literal["reasoning"]
    id: LenientId = None
    summary: Any = None
    content: Any = None
    encrypted_content: Any = None

    def text(self, cipher: OwnerCipher | None) -> tuple[str, bool]:
        """Return the reasoning: the plain text, else the decrypted text, else the summary.

        Args:
            cipher: the client's cipher; None where nothing can be decrypted.

        Returns:
            The text, and whether encrypted content is needed and cannot be decrypted.
        """
        if own := text_of(self.content):
            return own, False
        encrypted = self.encrypted_content
        if encrypted is not None:
            opened = (
                cipher.decrypt("reasoning", encrypted) if cipher is not None and isinstance(encrypted, str) else None
            )
            if opened is not None:
                return opened, False
        return text_of(self.summary), encrypted is not None


class CompactionItem(_Item):
    """The encrypted summary of the conversation before it; one that cannot be decrypted adds nothing."""

    branch = "compaction"

    type: Literal["compaction"]
    id: LenientId = None
    encrypted_content: Any = None

    def text(self, cipher: OwnerCipher | None) -> str | None:
        """Decrypt the summary; None where it cannot be decrypted."""
        encrypted = self.encrypted_content
        return cipher.decrypt("compaction", encrypted) if cipher is not None and isinstance(encrypted, str) else None


class ReferenceItem(_Item):
    """A reference to an item of an earlier response; its type may be left out."""

    branch = "reference"

    type: Literal["item_reference"] | None = None
    id: str


class ToolsItem(_Item):
    """Tools that are added in the middle of the conversation."""

    branch = "tools"

    type: Literal["additional_tools"]
    tools: list[Any] = Field(default_factory=list)


class UpdatedReasoning(RequestPart):
    """Reasoning options for later answers."""

    effort: str | None = None


class UpdatedText(RequestPart):
    """The format of later answers' text."""

    format: dict[str, Any]


class ConfigurationUpdateItem(_Item):
    """Settings that replace the request's until a later update."""

    branch = "configuration"

    type: Literal["configuration_update"]
    reasoning: UpdatedReasoning | None = None
    text: UpdatedText | None = None


class OtherItem(_Item):
    """An item of a type that is not read."""

    branch = "other"

    type: Annotated[str, Field(json_schema_extra={"not": {"enum": [*_KINDS]}})]
    id: LenientId = None
    call_id: Any = None
    output: Any = None


def _branch(value: Any) -> str | None:
    if isinstance(value, _Item):
        return BRANCH + value.branch
    if not isinstance(value, dict):
        return None
    kind = value.get("type")
    if kind is None:
        return BRANCH + ("message" if "role" in value else "reference") if {"role", "id"} & value.keys() else None
    return BRANCH + _KINDS.get(kind, "other") if isinstance(kind, str) else None


InputItem = Annotated[
    Annotated[MessageItem, Tag(BRANCH + "message")]
    | Annotated[FunctionCallItem, Tag(BRANCH + "call")]
    | Annotated[CustomCallItem, Tag(BRANCH + "custom")]
    | Annotated[OutputItem, Tag(BRANCH + "output")]
    | Annotated[ReasoningItem, Tag(BRANCH + "reasoning")]
    | Annotated[CompactionItem, Tag(BRANCH + "compaction")]
    | Annotated[ReferenceItem, Tag(BRANCH + "reference")]
    | Annotated[ToolsItem, Tag(BRANCH + "tools")]
    | Annotated[ConfigurationUpdateItem, Tag(BRANCH + "configuration")]
    | Annotated[OtherItem, Tag(BRANCH + "other")],
    Discriminator(
        _branch,
        custom_error_type="item",
        custom_error_message="must be an item, an object with a type or a role",
    ),
]

ITEMS: TypeAdapter[list[InputItem]] = TypeAdapter(list[InputItem])
