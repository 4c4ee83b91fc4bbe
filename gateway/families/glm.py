"""GLM 4.5 and later: calls in tags, an argument at a time, and reasoning between ``<think>`` tags.

    <tool_call>f
    <arg_key>a</arg_key>
    <arg_value>1</arg_value>
    </tool_call>

GLM 4.7 leaves the line ends out. Strings stand bare, all other values are JSON. Sources: the chat templates of
https://huggingface.co/zai-org/GLM-4.5, https://huggingface.co/zai-org/GLM-4.6 and https://huggingface.co/zai-org/GLM-4.7.
"""

from __future__ import annotations

from gateway.families.base import BaseFamily
from gateway.families.emitter import Call
from gateway.families.family import Parser, Turn
from gateway.families.markers import Markers
from gateway.families.natively import read_name
from gateway.families.parsing import FamilyParser
from gateway.families.source import Steps
from gateway.families.thinking import ThinkTags
from gateway.families.typed_values import BareArguments

OPEN = "<tool_call>"
CLOSE = "</tool_call>"
KEY = "<arg_key>"
KEY_END = "</arg_key>"
VALUE = "<arg_value>"
VALUE_END = "</arg_value>"
TAGS = ThinkTags(instead=(OPEN,))
MARKERS = Markers(OPEN, CLOSE, KEY, KEY_END, VALUE, VALUE_END, TAGS.open, TAGS.close)
_KEY_OR_END = Markers(KEY, CLOSE)
_VALUE_ENDS = Markers(VALUE_END, VALUE)  # the beginning of another value: this one was never closed


class GlmParser(FamilyParser):
    """Parses tagged calls; arguments become JSON by the types that the tool declares."""

    def __init__(self, turn: Turn, *, eager: bool, prompt: str) -> None:
        """Parse one answer; arguments as of ``Family.parser``."""
        self._opened = TAGS.opened_by(prompt)
        self._parameters = {tool.name: tool.parameters for tool in turn.tools}
        super().__init__(turn, eager=eager, markers=MARKERS)

    def run(self) -> Steps[None]:
        """Read reasoning, then content and calls."""
        yield from self.think(TAGS, opened=self._opened, block=self._block)
        while (yield from self.content_until(OPEN)):
            yield from self._block()

    def _block(self) -> Steps[bool]:
        """Read what follows the opening tag; returns whether it was a call."""
        call = self.begin_call()
        if (yield from self._call(call)) and call.complete():
            return True
        self.broken(call)
        return call.started

    def _call(self, call: Call) -> Steps[bool]:
        self.begin_header()
        yield from self.source.space()
        name = yield from read_name(self.source)
        yield from self.source.space()
        marker = yield from self.source.choice(_KEY_OR_END)
        if marker is None or not call.named(name):
            return False
        self.end_header()
        arguments = BareArguments(call, self._parameters[name])
        while marker == KEY:
            if not (yield from self._argument(arguments)):
                return False
            yield from self.source.space()
            marker = yield from self.source.choice(_KEY_OR_END)
        if marker == CLOSE:
            arguments.end()
        return marker == CLOSE

    def _argument(self, arguments: BareArguments) -> Steps[bool]:
        """Read a key and its value."""
        pieces: list[str] = []
        marker = yield from self.source.until(MARKERS, pieces.append)
        yield from self.source.space()
        if marker != KEY_END or not (yield from self.source.literal(VALUE)):
            return False
        if not arguments.begin("".join(pieces).strip()):
            return False
        if (yield from self.source.until(_VALUE_ENDS, arguments.more)) != VALUE_END:
            return False
        self.source.examined += arguments.close()
        return True


class GlmFamily(BaseFamily):
    """GLM 4.5, 4.6, 4.7 and 5."""

    name = "glm"
    tags = TAGS
    markers = MARKERS
    stop = ("<|observation|>", "<|user|>")
    signs: tuple[tuple[str, ...], ...] = ((KEY, VALUE),)
    model_types = frozenset({"glm4_moe", "glm4_moe_lite", "glm_moe_dsa", "Glm4MoeForCausalLM", "GlmMoeDsaForCausalLM"})

    def native_parser(self, turn: Turn, prompt: str, *, eager: bool) -> Parser:
        """A parser of tagged calls."""
        return GlmParser(turn, eager=eager, prompt=prompt)
