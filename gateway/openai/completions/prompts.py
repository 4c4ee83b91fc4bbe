"""The four forms of ``prompt``: a string, strings, token ids, lists of token ids."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from gateway.openai.branches import BRANCH
from gateway.openai.json_text import MOST_PROMPTS
from gateway.serving.prompt_source import IdsPrompt, PromptSource, TextPrompt

_LARGEST_ID = 2**31 - 1  # the engine's int32


def _form(value: Any) -> str | None:
    if isinstance(value, str):
        return BRANCH + "text"
    if not isinstance(value, list):
        return None
    first = value[0] if value else ""
    if isinstance(first, bool):
        return None
    for kind, form in ((str, "texts"), (int, "ids"), (list, "lists")):
        if isinstance(first, kind):
            return BRANCH + form
    return None


_Ids = Annotated[list[Annotated[int, Field(ge=0, le=_LARGEST_ID)]], Field(min_length=1, fail_fast=True)]
PromptField = Annotated[
    Annotated[str, Tag(BRANCH + "text")]
    | Annotated[list[str], Field(min_length=1, max_length=MOST_PROMPTS, fail_fast=True), Tag(BRANCH + "texts")]
    | Annotated[_Ids, Tag(BRANCH + "ids")]
    | Annotated[list[_Ids], Field(min_length=1, max_length=MOST_PROMPTS, fail_fast=True), Tag(BRANCH + "lists")],
    Discriminator(
        _form,
        custom_error_type="prompt_type",
        custom_error_message="A string, an array of strings, of token ids, or of arrays of token ids is expected",
    ),
]


def sources(prompt: str | list[str] | list[int] | list[list[int]], *, add_special_tokens: bool) -> list[PromptSource]:
    """Each prompt of the request by itself."""
    if isinstance(prompt, str):
        return [TextPrompt(prompt, add_special_tokens)]
    if isinstance(prompt[0], int):
        return [IdsPrompt(prompt)]
    return [TextPrompt(one, add_special_tokens) if isinstance(one, str) else IdsPrompt(one) for one in prompt]
