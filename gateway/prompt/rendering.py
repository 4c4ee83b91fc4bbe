"""The child process of ``request_template``: it compiles templates, probes them, and renders them."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Any

import jinja2.debug  # noqa: F401 - jinja2 imports it with the first error, when memory may have run out

from gateway.prompt.errors import TemplateError
from gateway.prompt.template import ChatTemplate

time.tzset()  # reads the time zone while files can be read


@dataclasses.dataclass
class _Tokens:
    special_tokens: dict[str, str]
    bos_token: str | None = None  # both are among them where there are any
    eos_token: str | None = None


def answer(question: bytes | bytearray) -> bytes:
    """Answer a question in JSON.

    Its keys are ``source`` and ``special_tokens`` of a template, and either a ``conversation`` to render into ``most``
    characters, or ``tools``: with or without which it is asked what the template shows.

    Returns:
        JSON with what was ``found``, with the fields of a TemplateError, or with the ``bound`` that was passed.
    """
    try:
        return _json(_found(json.loads(question)))
    except TemplateError as error:
        # Both may be the template's own words, of any length and with half surrogate pairs.
        message, detail = (text[:500].encode(errors="replace").decode() for text in (error.message, error.detail))
        return _json({"message": message, "by_author": error.by_author, "detail": detail})
    except MemoryError:
        return _json({"bound": "memory"})


def _found(asked: dict[str, Any]) -> dict[str, Any]:
    # Not kept: constants of a template may be of any size.
    template = ChatTemplate(asked["source"], _Tokens(asked["special_tokens"]))
    if "tools" in asked:
        tools = asked["tools"]
        shown = tools and template.shows_tools
        return {"found": (shown, dataclasses.asdict(template.abilities(tools=tools)))}
    conversation = asked["conversation"]
    text = template.render(conversation.pop("messages"), **conversation)
    return {"found": text} if len(text) <= asked["most"] else {"bound": "size"}


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, default=list).encode()
