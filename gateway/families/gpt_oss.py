"""The family of gpt-oss: what ``harmony`` parses, and how guides fit into its messages."""

from __future__ import annotations

from dataclasses import replace

from gateway.families.base import BaseFamily
from gateway.families.family import Parser, Preparation, Turn
from gateway.families.harmony import (
    CALL,
    CHANNEL,
    CONSTRAIN,
    END,
    FUNCTIONS,
    MARKERS,
    MESSAGE,
    RETURN,
    START,
    HarmonyParser,
    Place,
)
from gateway.families.natively import arguments_format
from gateway.families.structural import (
    Format,
    constant,
    either,
    free_text,
    guide_format,
    sequence,
    tag,
    tag_guide,
    triggered,
)
from gateway.generation.sampling_params import Guide

_TO_FUNCTION = f"{CHANNEL}commentary to={FUNCTIONS}"


class HarmonyFamily(BaseFamily):
    """gpt-oss. All of its answers are messages, so its markers are always wanted.

    Where the engine has structural tags, guides begin after the analysis and calls keep the native format, one to an
    answer. Elsewhere a guide begins with the first token, in place of any message.
    """

    name = "harmony"
    markers = MARKERS
    stop = (CALL, RETURN)
    signs = ((CHANNEL, MESSAGE),)
    model_types = frozenset({"gpt_oss", "GptOssForCausalLM"})

    @property
    def reasons(self) -> bool:
        """It does, in the analysis channel."""
        return True

    def prepare(self, turn: Turn, prompt: str = "") -> Preparation:
        """Say what generation must know; see ``Family.prepare``."""
        return replace(super().prepare(turn, prompt), special=frozenset(MARKERS.texts))

    def parser(self, turn: Turn, preparation: Preparation, prompt: str, *, eager: bool = False) -> Parser:
        """A parser of messages, unless a guide leaves no room for them."""
        if preparation.guide is not None and preparation.guide.kind != "structural_tag":
            return super().parser(turn, preparation, prompt, eager=eager)
        return self.native_parser(turn, prompt, eager=eager or preparation.guided)

    def native_parser(self, turn: Turn, prompt: str, *, eager: bool) -> Parser:
        """A parser of messages."""
        return HarmonyParser(turn, eager=eager, prompt=prompt)

    def native_calls(self, turn: Turn, *, demanded: bool) -> Format | None:
        """Messages to functions among free messages."""
        return triggered(_TO_FUNCTION, _calls(turn), demanded=demanded, once=True)

    def _guide(self, turn: Turn, prompt: str) -> tuple[Guide | None, bool]:
        own = turn.response is not None and turn.response.kind == "structural_tag"
        if "structural_tag" not in turn.guide_types or not Place.of(prompt).fresh or own:
            return super()._guide(turn, prompt)
        if turn.calls and turn.choice == "auto" and turn.response is None:
            return super()._guide(turn, prompt)
        answers = _calls(turn) if turn.calls else []
        if turn.response is not None and turn.choice != "required":
            answers.append(sequence(constant(f"{CHANNEL}final{MESSAGE}"), guide_format(turn.response)))
        if not answers:
            return None, False
        answer = either(*answers)
        analysis = tag(f"{CHANNEL}analysis{MESSAGE}", free_text(), END)
        reasoned = sequence(analysis, constant(f"{START}assistant"), answer)
        return tag_guide(either(reasoned, answer)), turn.calls


def _calls(turn: Turn) -> list[Format]:
    """A message to each function."""
    return [
        tag(f"{_TO_FUNCTION}{tool.name} {CONSTRAIN}json{MESSAGE}", arguments_format(tool), CALL) for tool in turn.tools
    ]
