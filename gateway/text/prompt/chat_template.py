"""Chat templates: their sources, their Jinja environment, and the rendering of messages.

The environment has Hugging Face's conventions (https://huggingface.co/docs/transformers/chat_templating_writing), in a
sandbox.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, Protocol

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension
from jinja2.ext import loopcontrols as LoopControls  # noqa: N812 - a class, in spite of its name
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gateway.text.bounded_dict import BoundedDict
from gateway.text.prompt.control_tokens import (
    STAND_IN_OR_NON_ASCII,
    ControlTokens,
    holds_marks,
    with_stand_ins,
    without_marks,
)
from gateway.text.prompt.history import TemplateAbilities, TemplateError, history
from gateway.text.prompt.probing import PROBE_TOOLS, REFERRING_TOOLS, Messages, Render, probe, shows_tools
from gateway.text.tokens import Tokenizer

_SMALL = range(17)
_MOST_FOUND = 32  # sets of variables whose abilities are kept
_ASKED = ({"role": "user", "content": "Hello"},)
_ARGUMENTS = ("messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "chat_template")


def _stand_in(value: Any, words: Collection[str]) -> Any:
    """A value for probes in place of a request's, of which there are few: its kind and whether it is true stay."""
    if isinstance(value, str):
        return value if value in words else "value" if value else ""
    if isinstance(value, (dict, list)):
        return type(value)()  # without what the client put into it
    return value if value is None or value in _SMALL else 1


class SpecialTokens(Protocol):
    """The special tokens that a template may write."""

    bos_token: str | None
    eos_token: str | None

    @property
    def control_tokens(self) -> Sequence[str]:
        """The texts of tokens that only a template may write."""
        ...

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """The texts of the named special tokens, for example ``{"bos_token": "<s>"}``."""
        ...


class ChatTemplate:
    """A compiled chat template with the special tokens of its tokenizer.

    Safe to share between threads.

    Attributes:
        source: the template's text.
        variables: names that the template reads from outside.
        reserved: names that no request may set: the arguments of ``render``, special tokens and the environment's own.
        special_tokens: names and texts of the tokenizer's special tokens.
        control_tokens: the tokenizer's control tokens, and their stand-ins in the result of ``render_marked``.
    """

    def __init__(self, source: str, tokenizer: SpecialTokens, control_tokens: ControlTokens | None = None) -> None:
        """Compile ``source``.

        Args:
            source: of the template.
            tokenizer: whose tokens it may write.
            control_tokens: of the tokenizer; None makes them.

        Raises:
            TemplateError: when it is not a Jinja template.
        """
        self.source = source
        self._found = BoundedDict[tuple[Any, ...], TemplateAbilities](_MOST_FOUND)
        self.control_tokens = control_tokens or ControlTokens(tokenizer.control_tokens)
        environment = make_environment()
        try:
            self.variables = frozenset(meta.find_undeclared_variables(environment.parse(source)))
            tree = environment.parse(source)
            self._words = frozenset(node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str))
            self._assembled = with_stand_ins(tree, self.control_tokens, environment.filters)
            code = environment.compile(tree)
        except (jinja2.TemplateError, RecursionError, SyntaxError) as error:  # the last two: nested too deeply
            raise TemplateError(f"The chat template does not compile: {str(error).rstrip('.')}.") from error
        # Jinja would chain dictionaries here, and walk over the chain at each rendering.
        self._template = jinja2.Template.from_code(environment, code, dict(environment.globals))
        self.special_tokens = dict(tokenizer.special_tokens)
        for key, token in (("bos_token", tokenizer.bos_token), ("eos_token", tokenizer.eos_token)):
            if token is not None:
                self.special_tokens.setdefault(key, token)
        self._given_tokens = {name: self.control_tokens.stand_ins(text) for name, text in self.special_tokens.items()}
        self.reserved = frozenset({*_ARGUMENTS, *self.special_tokens, *environment.globals})

    @cached_property
    def shows_tools(self) -> bool:
        """Whether the template shows definitions of tools."""
        return shows_tools(self._probed(PROBE_TOOLS))

    @cached_property
    def fault(self) -> str | None:
        """Render one user message; returns the fault, None where it is rendered or the template itself rejects it."""
        try:
            rendered = self.render_marked(history(_ASKED, self.abilities(tools=False)))
        except TemplateError as error:
            return None if error.by_author else error.detail
        if self.control_tokens.spans(self.control_tokens.parts(rendered)) is None:
            return None
        return "it builds control tokens from parts, which cannot be distinguished from text of a request"

    def abilities(self, *, tools: bool, variables: Mapping[str, Any] = MappingProxyType({})) -> TemplateAbilities:
        """Find out how the template takes a conversation.

        Args:
            tools: whether it gets definitions of tools; some templates show calls only then.
            variables: variables of the request; a template may show reasoning only with one of them.
        """
        tools = tools and self.shows_tools
        read = {name: _stand_in(value, self._words) for name, value in variables.items() if name in self.variables}
        key = (tools, *sorted((name, repr(value)) for name, value in read.items()))
        found = self._found.get(key)
        if found is None:
            shown = not tools or shows_tools(self._probed(REFERRING_TOOLS, read), "markdefined")
            probed = probe(self._probed(PROBE_TOOLS if tools else None, read))
            found = self._found[key] = replace(probed, definitions=shown)
        return found

    def _probed(self, tools: Sequence[Mapping[str, Any]] | None, variables: Mapping[str, Any] | None = None) -> Render:
        def render(messages: Messages, opened: bool) -> str:
            return self.render(messages, tools=tools, add_generation_prompt=opened, variables=variables)

        return render

    def render(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        """Render a conversation as text; options and errors as of ``render_marked``."""
        return self.control_tokens.expanded(self.render_marked(messages, **options))

    def render_marked(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Render a conversation, with stand-ins for the control tokens that the template writes.

        Args:
            messages: dicts with ``role`` and ``content``, in the template's own terms.
            tools: tool definitions as the template expects them.
            documents: documents for templates that cite them.
            add_generation_prompt: whether the text ends with the opening of the assistant's turn.
            variables: more names for the template; they may not replace the arguments above.

        Raises:
            TemplateError: when the template rejects the conversation, or fails on it.
        """
        data = {**(variables or {}), "messages": messages, "tools": tools, "documents": documents}
        if holds_marks(messages, tools, documents, variables):
            data = without_marks(data, self.control_tokens)
        rendered = self._rendered({**self._given_tokens, **data, "add_generation_prompt": add_generation_prompt})
        return self._assembled.joined(rendered) if self._assembled else rendered

    def _rendered(self, names: dict[str, Any]) -> str:
        context = self._template.new_context(names)
        try:
            text = "".join(self._template.root_render_func(context))
            text.encode()  # fails where an expression has made half a surrogate pair
            return text  # noqa: TRY300 - the two lines above may fail
        except TemplateError as error:
            raise TemplateError(self._plain(error.message), by_author=error.by_author) from None
        except jinja2.TemplateError as error:
            detail = f"{type(error).__name__}: {error}"
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            detail = f"{type(error).__name__}: {error}"  # raised by an expression of the template
        finally:
            _release(context)
        raise TemplateError("The model's chat template cannot render these messages.", detail=self._plain(detail))

    def _plain(self, message: str) -> str:
        """A message in the template's words."""
        return self.control_tokens.expanded(self._assembled.joined(message) if self._assembled else message)


def _release(context: Context) -> None:
    """Free what was rendered with: a macro holds the context that has it, and itself where it is recursive.

    Fifty objects of each request would wait for the garbage collector otherwise, and tens of thousands of them make it
    hold up all streams for 100 ms (benchmarks/notes.md).
    """
    for value in context.vars.values():
        if isinstance(value, Macro):
            del value._func  # noqa: SLF001 - it has no other way to let go
    context.vars.clear()


def load_template(
    tokenizer: Tokenizer,
    path: Path | None = None,
    *,
    name: str = "default",
) -> ChatTemplate:
    """Find and compile a served model's chat template: the configured file, else the tokenizer folder's.

    Args:
        tokenizer: tokenizer whose folder may have templates.
        path: the file of the configuration key ``template``; None without one.
        name: name of the template, when the folder has several.

    Raises:
        TemplateError: there is no template, or it does not compile; the message names the configuration key.
    """
    if path is not None:
        try:
            source = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise TemplateError(f"`template`: {path} cannot be read: {error}") from error
    else:
        found = tokenizer.chat_template if name == "default" else tokenizer.named_templates.get(name)
        if found is None:
            raise TemplateError(
                f"The tokenizer folder has no chat template named {name!r}: "
                "set the configuration key `template` to a Jinja file, for example one of chat_templates/."
            )
        source = found
    return ChatTemplate(source, tokenizer)


class _GenerationBlock(Extension):
    """``{% generation %}`` marks the assistant's words for training; here its content is just rendered."""

    tags = {"generation"}  # noqa: RUF012 - the name and form that Jinja prescribes

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        """Parse up to ``{% endgeneration %}``."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def make_environment() -> ImmutableSandboxedEnvironment:
    """Make the Jinja environment of chat templates.

    The sandbox rejects attributes that lead out of the data and ranges over 100,000 items; a template comes from the
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
    return STAND_IN_OR_NON_ASCII.sub(_escape, text) if ensure_ascii else text


def _escape(match: re.Match[str]) -> str:
    """JSON's escape of a character; stand-ins for control tokens stay as they are."""
    return match[0] if len(match[0]) > 1 else json.dumps(match[0])[1:-1]
