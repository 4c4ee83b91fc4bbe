"""GLM 4.5 and later: calls in tags, an argument at a time, and reasoning between ``<think>`` tags.

    <tool_call>f
    <arg_key>a</arg_key>
    <arg_value>1</arg_value>
    </tool_call>

GLM 4.7 leaves the line ends out. Strings stand bare, all other values are JSON. Sources: the chat templates of
https://huggingface.co/zai-org/GLM-4.5, https://huggingface.co/zai-org/GLM-4.6 and https://huggingface.co/zai-org/GLM-4.7.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.families.bare_arguments import BareArguments
from gateway.families.family_parser import FamilyParser
from gateway.families.grammar import Grammar
from gateway.families.json_calls import read_name
from gateway.families.markers import Markers
from gateway.families.parser_events import FormingCall
from gateway.families.text_source import Steps

OPEN = "<tool_call>"
_CLOSE = "</tool_call>"
KEY = "<arg_key>"
_KEY_END = "</arg_key>"
VALUE = "<arg_value>"
_VALUE_END = "</arg_value>"
_KEY_OR_END = Markers(KEY, _CLOSE)
_VALUE_ENDS = Markers(_VALUE_END, VALUE)  # the beginning of another value: this one was never closed


class GlmGrammar(Grammar):
    """Reads tagged calls; arguments become JSON by the types that the tool declares."""

    @property
    def markers(self) -> Sequence[str]:
        """All that only belong to the format."""
        return (OPEN, _CLOSE, KEY, _KEY_END, VALUE, _VALUE_END)

    @property
    def opening(self) -> Sequence[str]:
        """The one before a call."""
        return (OPEN,)

    def read_call(self, parser: FamilyParser, call: FormingCall) -> Steps[bool]:
        """Read a call behind its opening tag; see ``Grammar``."""
        source = parser.source
        yield from source.space()
        name = yield from read_name(source)
        yield from source.space()
        marker = yield from source.choice(_KEY_OR_END)
        if marker is None or not call.named(name):
            return False
        parser.end_header()
        arguments = BareArguments(call, parser.plan.parameters(name))
        while marker == KEY:
            if not (yield from self._argument(parser, arguments)):
                return False
            yield from source.space()
            marker = yield from source.choice(_KEY_OR_END)
        if marker is None:
            return False
        arguments.end()
        return call.complete()

    def _argument(self, parser: FamilyParser, arguments: BareArguments) -> Steps[bool]:
        """Read a key and its value."""
        pieces: list[str] = []
        marker = yield from parser.source.until(parser.markers, pieces.append)
        yield from parser.source.space()
        if marker != _KEY_END or not (yield from parser.source.literal(VALUE)):
            return False
        if not arguments.begin("".join(pieces).strip()):
            return False
        if (yield from parser.source.until(_VALUE_ENDS, arguments.more)) != _VALUE_END:
            return False
        parser.source.examined += arguments.close()
        return True
