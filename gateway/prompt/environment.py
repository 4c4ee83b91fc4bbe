"""The Jinja environment that chat templates are written for: Hugging Face's conventions, in a sandbox.

Conventions: https://huggingface.co/docs/transformers/chat_templating_writing
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.ext import loopcontrols as LoopControls  # noqa: N812 - a class, in spite of its name
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gateway.prompt.errors import TemplateError
from gateway.prompt.escaping import is_marker


class _GenerationBlock(Extension):
    """``{% generation %}`` marks the assistant's words for training; here its content is just rendered."""

    tags = {"generation"}  # noqa: RUF012 - the name and form that Jinja prescribes

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        """Parse up to ``{% endgeneration %}``."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def make_environment() -> ImmutableSandboxedEnvironment:
    """Make an environment for chat templates.

    The sandbox refuses attributes that lead out of the data and ranges over 100,000 items; a template comes from the
    model's folder or the configuration, so its author is trusted not to burn time on purpose.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationBlock, LoopControls],
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _raise_exception(message: object) -> NoReturn:
    raise TemplateError(str(message), by_author=True)


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON for a prompt: without the HTML escapes of Jinja's own filter, non-ASCII kept unless asked otherwise."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
    return _NON_ASCII.sub(_escape, text) if ensure_ascii else text


_NON_ASCII = re.compile(r"[^\x00-\x7f]")


def _escape(match: re.Match[str]) -> str:
    """JSON's escape of a character; the markers of escaped control tokens must survive to be found again."""
    return match[0] if is_marker(match[0]) else json.dumps(match[0])[1:-1]
