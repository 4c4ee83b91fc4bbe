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

from gateway.families.family_parser import FamilyParser
from gateway.families.json_calls import read_arguments, read_call_list, read_name
from gateway.families.markers import ThinkTags
from gateway.families.parser_events import FormingCall
from gateway.families.structural_tags import CallFormat
from gateway.families.text_source import Steps

CALLS = "[TOOL_CALLS]"
_ID = "[CALL_ID]"
ARGUMENTS = "[ARGS]"
TAGS = ThinkTags("[THINK]", "[/THINK]", instead=(CALLS,))
MISTRAL_CALLS = CallFormat(CALLS, ARGUMENTS, "")  # as version 13 writes them


class MistralParser(FamilyParser):
    """Parses both generations: the text behind the marker tells which it is. Reasoning may begin anywhere."""

    call_markers = (CALLS, _ID, ARGUMENTS)

    def run(self) -> Steps[None]:
        """Read reasoning, content and calls."""
        marker = yield from self.think(opened=self.opened)
        while marker := marker or (yield from self.content_until(CALLS, TAGS.open)):
            if marker == TAGS.open:
                marker = yield from self.think(opened=True)
            else:
                yield from self.read_block()
                marker = None

    def read_block(self) -> Steps[bool]:
        """Read an array, or a call of the newer generation; returns whether there was a call."""
        call = self.begin_call()
        yield from self.source.space()
        if (yield from self.source.peek()) in {"[", "{"}:
            return (yield from read_call_list(self, call, ids=True))
        if (yield from self.read_call(call)):
            return True
        self.broken(call)
        return call.started

    def read_call(self, call: FormingCall) -> Steps[bool]:
        """Read a call of the newer generation; see ``FamilyParser``."""
        source = self.source
        self.begin_header()
        name = yield from read_name(source)
        yield from source.space()
        call_id = None
        if (yield from source.literal(_ID)):
            yield from source.space()
            call_id = yield from read_name(source)
        if not call.named(name, call_id or None):
            return False
        yield from source.literal(ARGUMENTS)
        yield from source.space()
        if (yield from source.peek()) in {"{", '"'}:
            self.end_header()
        return (yield from read_arguments(source, call)) and call.complete()
