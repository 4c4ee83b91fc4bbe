"""Chat templates: where they come from, the Jinja environment that they are written for, and messages to text.

The environment has Hugging Face's conventions (https://huggingface.co/docs/transformers/chat_templating_writing), in a
sandbox.
"""

from __future__ import annotations

import itertools
import json
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from os.path import commonprefix
from pathlib import Path
from typing import Any, NoReturn, Protocol

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension
from jinja2.ext import loopcontrols as LoopControls  # noqa: N812 - a class, in spite of its name
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gateway.json_levels import inside, texts
from gateway.prompt.history import TemplateAbilities, TemplateError, history
from gateway.prompt.probing import PROBE_TOOLS, REFERRING_TOOLS, Messages, Render, probe, shows_tools
from gateway.tokens import Tokenizer
from gateway.tokens.any_of import any_of

_NONCHARACTERS = tuple(map(chr, range(0xFDD0, 0xFDF0)))
# Only data that holds every noncharacter gets this far.
_PRIVATE = range(0xF0000, 0xFFFFE)
_PIECE = 65536  # characters
_PLAIN = {2}  # lengths of messages that have a role and a content
_CONTENT = operator.methodcaller("get", "content")


def is_marker(character: str) -> bool:
    """Whether the character may be a marker: a noncharacter, or of the private plane that stands in for them."""
    return "\ufdd0" <= character <= "\ufdef" or "\U000f0000" <= character <= "\U000ffffd"


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a rendered prompt.

    Attributes:
        text: without markers.
        literal: whether control-token text in it must be tokenized as plain text.
    """

    text: str
    literal: bool


class ControlEscaper:
    """Finds the control tokens' texts of one tokenizer: those from a user must stay text.

    Before rendering, a marker (a Unicode noncharacter that occurs nowhere in the data) goes into each occurrence of a
    control token's text, behind its first character. After rendering, an occurrence without a marker is the template's
    own; the stretches between those that hold a marker came from a user and are tokenized as plain text.

    Not covered: a template that puts a control token's text together from pieces of data, such as a role between ``<|``
    and ``|>``. Roles are checked before they get here; shipped templates do this with nothing else.
    """

    def __init__(self, control_tokens: Sequence[str]) -> None:
        """Prepare for ``control_tokens``; an empty sequence means that nothing is ever escaped."""
        longest_first = sorted(set(control_tokens), key=len, reverse=True)
        self._pattern = any_of(longest_first)
        self._tokens = longest_first
        self._longest = len(longest_first[0]) if longest_first else 0
        self._prefix = commonprefix(longest_first)  # noqa: RUF071 - of characters; found ten times as fast as a pattern
        self._usual = self._own(_NONCHARACTERS[0])

    def occurs_in(self, messages: Sequence[Mapping[str, Any]], *data: Any) -> bool:
        """Whether any string holds a control token's text.

        Args:
            messages: of a conversation; their keys and roles are none of the user's.
            data: further ones, nested lists and mappings.
        """
        pattern, prefix = self._pattern, self._prefix
        if pattern is None:
            return False
        contents = [*map(_CONTENT, messages)]
        plain = not any(data) and set(map(len, messages)) == _PLAIN and set(map(type, contents)) == {str}
        for text in contents if plain else _strings((messages, *data)):
            if prefix not in text:
                continue
            if pattern.search(text) if len(text) <= _PIECE else self._search(pattern, text, 0):
                return True
        return False

    def mark(self, data: Any, marker: str) -> Any:
        """Copy nested data with ``marker`` behind the first character of each occurrence, overlapping ones too."""
        if isinstance(data, str):
            return self._mark_text(data, marker) if self._prefix in data else data
        if isinstance(data, Mapping):
            return {self.mark(key, marker): self.mark(value, marker) for key, value in data.items()}
        if isinstance(data, list | tuple):
            return [self.mark(item, marker) for item in data]
        return data

    def split(self, rendered: str, marker: str) -> list[Stretch]:
        """Cut a rendered text into stretches, alternately as the template wrote it and as plain text.

        Their texts together are the rendered text without markers. A plain stretch reaches from one control token of
        the template to the next, because tokenizers cut there anyway: escaping moves no other token boundary.
        """
        own = self._usual if marker == _NONCHARACTERS[0] else self._own(marker)
        stretches: list[Stretch] = []
        begun = position = 0  # of the template's text so far, and of what follows its last control token
        next_marked = rendered.find(marker)
        for start, end in itertools.chain(self._found(own, rendered), [(len(rendered),) * 2]):
            if 0 <= next_marked < position:  # inside a control token whose text holds such a character
                next_marked = rendered.find(marker, position)
            if position <= next_marked < start:
                if begun < position:
                    stretches.append(Stretch(rendered[begun:position], False))
                stretches.append(Stretch(rendered[position:start].replace(marker, ""), True))
                begun = start
                next_marked = rendered.find(marker, start)
            position = end
        return [*stretches, Stretch(rendered[begun:], False)] if begun < len(rendered) else stretches

    def _own(self, marker: str) -> re.Pattern[str]:
        """A pattern for the template's own control tokens.

        One of one character has no inside for a marker: that stands behind it.
        """
        return re.compile("|".join(re.escape(t) + (f"(?!{marker})" if len(t) == 1 else "") for t in self._tokens))

    def _mark_text(self, text: str, marker: str) -> str:
        if self._pattern is None:
            return text
        parts, position = [], 0
        match = self._search(self._pattern, text, 0)
        while match is not None:
            parts += [text[position : match.start() + 1], marker]
            position = match.start() + 1
            match = self._search(self._pattern, text, position)
        return "".join([*parts, text[position:]])

    def _found(self, pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
        """Where matches begin and end, one behind another."""
        match = self._search(pattern, text, 0)
        while match is not None:
            yield match.span()
            match = self._search(pattern, text, match.end())

    def _search(self, pattern: re.Pattern[str], text: str, position: int) -> re.Match[str] | None:
        """The next match, looked for in pieces: no other thread runs while a pattern is."""
        while position < len(text):
            edge = position + _PIECE
            match = pattern.search(text, position, edge + self._longest)
            if match is not None and match.start() < edge:
                return match
            position = edge
        return None


def unused_marker(*data: Any) -> str:
    """A character that no string of the data holds."""
    found = _strings(data)
    if not any(_NONCHARACTERS[0] in text for text in found):  # nearly always
        return _NONCHARACTERS[0]
    used: set[str] = set()
    for text in found:
        for start in range(0, 0 if text.isascii() else len(text), _PIECE):
            used.update(text[start : start + _PIECE])
    candidates = itertools.chain(_NONCHARACTERS, map(chr, _PRIVATE))
    return next(character for character in candidates if character not in used)


def _strings(data: Any) -> list[str]:
    """Every string in nested lists and mappings, keys included."""
    found: list[str] = []
    level = [data]
    while level:
        found += texts(level)
        level = inside(level)
    return found


_ASKED = ({"role": "user", "content": "Hello"},)
_ARGUMENTS = ("messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "chat_template")


class SpecialTokens(Protocol):
    """The tokens of a tokenizer that a template may write."""

    bos_token: str | None
    eos_token: str | None

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """Texts of the named special tokens, for example ``{"bos_token": "<s>"}``."""
        ...


class ChatTemplate:
    """A compiled chat template with the special tokens of its tokenizer. Safe to share between threads.

    Attributes:
        source: the template's text.
        variables: names that the template reads from outside.
        reserved: names that no request may set: the arguments of ``render``, special tokens and the environment's own.
        special_tokens: names and texts of the tokenizer's.
    """

    def __init__(self, source: str, tokenizer: SpecialTokens) -> None:
        """Compile ``source``.

        Raises:
            TemplateError: when it is not a Jinja template.
        """
        self.source = source
        environment = make_environment()
        try:
            self._template = environment.from_string(source)
            # Jinja chains dictionaries here, and walks over the chain at each rendering.
            self._template.globals = dict(self._template.globals)
            self.variables = frozenset(meta.find_undeclared_variables(environment.parse(source)))
        except (jinja2.TemplateError, RecursionError, SyntaxError) as error:  # the last two: nested too deeply
            raise TemplateError(f"The chat template does not compile: {str(error).rstrip('.')}.") from error
        self.special_tokens = dict(tokenizer.special_tokens)
        for key, token in (("bos_token", tokenizer.bos_token), ("eos_token", tokenizer.eos_token)):
            if token is not None:
                self.special_tokens.setdefault(key, token)
        self.reserved = frozenset({*_ARGUMENTS, *self.special_tokens, *environment.globals})

    @cached_property
    def shows_tools(self) -> bool:
        """Whether it shows definitions of tools."""
        return shows_tools(self._probed(PROBE_TOOLS))

    @cached_property
    def fault(self) -> str | None:
        """The reason why not even a single message of a user can be rendered; None where it can, or must not be."""
        try:
            self.render(history(_ASKED, self._abilities))
        except TemplateError as error:
            return None if error.by_author else error.detail
        return None

    def abilities(self, *, tools: bool) -> TemplateAbilities:
        """The way it takes a conversation.

        Args:
            tools: whether it is given definitions of tools; there are templates that show calls only then.
        """
        return self._abilities_with_tools if tools and self.shows_tools else self._abilities

    @cached_property
    def _abilities(self) -> TemplateAbilities:
        return probe(self._probed(None))

    @cached_property
    def _abilities_with_tools(self) -> TemplateAbilities:
        shown = shows_tools(self._probed(REFERRING_TOOLS), "markdefined")
        return replace(probe(self._probed(PROBE_TOOLS)), definitions=shown)

    def _probed(self, tools: Sequence[Mapping[str, Any]] | None) -> Render:
        def render(messages: Messages, opened: bool) -> str:
            return self.render(messages, tools=tools, add_generation_prompt=opened)

        return render

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Render a conversation.

        Args:
            messages: dicts with ``role`` and ``content``, in the template's own terms.
            tools: tool definitions as the template expects them.
            documents: documents for templates that cite them.
            add_generation_prompt: whether the text ends with the opening of the assistant's turn.
            variables: more names for the template; they may not replace the arguments above.

        Raises:
            TemplateError: when the template refuses the conversation, or fails on it.
        """
        names = {
            **self.special_tokens,
            **(variables or {}),
            "messages": messages,
            "tools": tools,
            "documents": documents,
            "add_generation_prompt": add_generation_prompt,
        }
        context = self._template.new_context(names)
        try:
            text = "".join(self._template.root_render_func(context))
            text.encode()  # an expression may have made half a surrogate pair: UnicodeEncodeError is a ValueError
            return text  # noqa: TRY300 - the two lines above may fail
        except jinja2.TemplateError as error:
            detail = f"{type(error).__name__}: {error}"
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            detail = f"{type(error).__name__}: {error}"  # raised by an expression of the template
        finally:
            _take_apart(context)
        raise TemplateError("The model's chat template cannot render these messages.", detail=detail)


def _take_apart(context: Context) -> None:
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
        tokenizer: whose folder may hold templates.
        path: the file that the configuration key ``template`` names; None when it names none.
        name: which of the folder's named templates, when it has several.

    Raises:
        TemplateError: when there is none, or it does not compile; the message names the configuration key.
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
