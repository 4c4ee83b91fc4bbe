"""Mistral: calls behind ``[TOOL_CALLS]``, in two generations, and Magistral's reasoning between ``[THINK]`` tags.

Up to version 7 of the instruct tokenizer, one array:

    [TOOL_CALLS][{"name": "f", "arguments": {"a": 1}, "id": "abcdefghi"}]

From version 11 on, one marker for each call, the id only in version 11:

    [TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{}

Sources: https://github.com/mistralai/mistral-common (tokens/tokenizers/instruct.py, InstructTokenizerV3 to V13); the
chat template of https://huggingface.co/mistralai/Mistral-Nemo-Instruct-2407. Some models leave ``[ARGS]`` out, as
noted in vLLM's parser for Mistral.
"""

from __future__ import annotations

from gateway.families.base import BaseFamily
from gateway.families.emitter import Call
from gateway.families.family import Parser, Turn
from gateway.families.json_calls import IDS, read_arguments
from gateway.families.markers import Markers
from gateway.families.natively import arguments_format, read_call_list, read_name
from gateway.families.parsing import FamilyParser
from gateway.families.source import Steps
from gateway.families.structural import Format, tag, triggered
from gateway.families.thinking import ThinkTags

CALLS = "[TOOL_CALLS]"
ID = "[CALL_ID]"
ARGUMENTS = "[ARGS]"
TAGS = ThinkTags("[THINK]", "[/THINK]", instead=(CALLS,))
MARKERS = Markers(CALLS, ID, ARGUMENTS, TAGS.open, TAGS.close)


class MistralParser(FamilyParser):
    """Parses both generations: what follows the marker tells which it is. Reasoning may begin anywhere."""

    def __init__(self, turn: Turn, *, eager: bool, prompt: str) -> None:
        """Parse one answer; arguments as of ``Family.parser``."""
        self._opened = TAGS.opened_by(prompt)
        super().__init__(turn, eager=eager, markers=MARKERS)

    def run(self) -> Steps[None]:
        """Read reasoning, content and calls."""
        marker = yield from self.think(TAGS, opened=self._opened)
        while True:
            marker = marker or (yield from self.content_until(CALLS, TAGS.open))
            if marker is None:
                return
            if marker == TAGS.open:
                marker = yield from self.think(TAGS, opened=True)
                continue
            yield from self._calls()
            marker = None

    def _calls(self) -> Steps[None]:
        call = self.begin_call()
        yield from self.source.space()
        if (yield from self.source.peek()) in {"[", "{"}:
            yield from read_call_list(self, call, ids=IDS)
        elif not (yield from self._call(call)):
            self.broken(call)

    def _call(self, call: Call) -> Steps[bool]:
        """One call of the newer generation."""
        source = self.source
        self.begin_header()
        name = yield from read_name(source)
        yield from source.space()
        call_id = None
        if (yield from source.literal(ID)):
            yield from source.space()
            call_id = yield from read_name(source)
        if not call.named(name, call_id or None):
            return False
        yield from source.literal(ARGUMENTS)
        yield from source.space()
        if (yield from source.peek()) in {"{", '"'}:
            self.end_header()
        return (yield from read_arguments(source, call)) and call.complete()


class MistralFamily(BaseFamily):
    """Models whose calls are one JSON array: Mistral 7B v0.3, Nemo, Large, Small up to 3.1."""

    name = "mistral"
    tags = TAGS
    markers = MARKERS
    signs: tuple[tuple[str, ...], ...] = ((CALLS,), ("[AVAILABLE_TOOLS]",))
    shared_types = frozenset(
        {"mistral", "mistral3", "mixtral", "MistralForCausalLM", "Mistral3ForConditionalGeneration"}
    )

    def native_parser(self, turn: Turn, prompt: str, *, eager: bool) -> Parser:
        """A parser of both generations."""
        return MistralParser(turn, eager=eager, prompt=prompt)


class NewerMistralFamily(MistralFamily):
    """Models that write a marker for each call: Small 3.2, Devstral, Magistral, Ministral 3."""

    name = "mistral_v11"
    signs = ((CALLS, ARGUMENTS),)

    def native_calls(self, turn: Turn, *, demanded: bool) -> Format | None:
        """A marker, the name and the arguments of each call, as version 13 writes them."""
        tags = [tag(f"{CALLS}{tool.name}{ARGUMENTS}", arguments_format(tool), "") for tool in turn.tools]
        return triggered(CALLS, tags, demanded=demanded, once=not turn.parallel)
