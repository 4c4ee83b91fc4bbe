"""Probes a chat template: renders small conversations of marked texts, and searches the marks.

Authors write the same condition in many ways, so that a search of the template's source would miss some; the rendering
shows the result. Each probe uses the facts that earlier probes have found, through ``history`` as requests do.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gateway.text.prompt.history import REASONING_KEYS, REASONING_PART, TemplateAbilities, TemplateError, history

Messages = Sequence[Mapping[str, Any]]
Render = Callable[[Messages, bool], str]
"""Renders messages in the template's terms, with or without the opening of the next answer; may raise TemplateError."""

ROLES = ("system", "user", "assistant")
PROBE_TOOLS: Sequence[Mapping[str, Any]] = (
    {
        "type": "function",
        "function": {
            "name": "marktool",
            "description": "Looks.",
            "parameters": {"type": "object", "properties": {"place": {"type": "string", "description": "Where."}}},
        },
    },
)
REFERRING_TOOLS: Sequence[Mapping[str, Any]] = (
    {
        "type": "function",
        "function": {
            "name": "marktool",
            "description": "Looks.",
            "parameters": {
                "type": "object",
                "properties": {"place": {"$ref": "#/$defs/Place"}},
                "$defs": {"Place": {"type": "object", "properties": {"markdefined": {"type": "string"}}}},
            },
        },
    },
)
_MARK = re.compile("mark[a-z]+")
# Arguments in a string in a string, or as Python writes them.
_WRONG_FORM = re.compile(r"""\\"markkey|'markkey':""")
_PARTS_AS_DATA = re.compile("""['"]type['"]""")
_THINKING_AS_DATA = re.compile("""['"]thinking['"]""")
_UNKNOWN_ROLE = "bystander"


def _text(role: str, word: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": f"mark{role}{word}", **more}


def _calls(*words: str, text: str = "", arguments: str | None = None, **more: Any) -> dict[str, Any]:
    """A message with one call for each word; ids are of the kind that OpenAI gives."""
    calls = []
    for word in words:
        given = json.dumps({"markkey": f"markvalue{word}"}) if arguments is None else arguments
        function = {"name": f"markname{word}", "arguments": given}
        calls.append({"id": f"call_{word}", "type": "function", "function": function})
    return {"role": "assistant", "content": text, "tool_calls": calls, **more}


def _result(word: str, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call_{word}", "content": f"markresult{word}", **more}


_SYSTEM = _text("system", "a")
_ASK, _ANSWER, _AGAIN = _text("user", "a"), _text("assistant", "a"), _text("user", "b")


def shows_tools(render: Render, mark: str = "marktool") -> bool:
    """Tell whether a template shows definitions of tools, by a mark in its rendering.

    Args:
        render: renders a conversation with ``PROBE_TOOLS``, or with ``REFERRING_TOOLS``.
        mark: a text of the tools; ``markdefined`` stands in a definition to which the schemas of ``REFERRING_TOOLS``
            refer.
    """
    conversations: list[Messages] = [[_SYSTEM, _ASK], [_ASK]]
    return any(mark in _text_of(render, messages) for messages in conversations)


def probe(render: Render) -> TemplateAbilities:
    """Find the abilities of a template.

    Args:
        render: renders a conversation with the template, with definitions of tools or without.
    """
    return _Probing(render).abilities


class _Probing:
    """The facts that are known so far."""

    def __init__(self, render: Render) -> None:
        self._render = render
        self.abilities = TemplateAbilities()
        self._lead: Messages = [_SYSTEM]
        self._find_texts()
        self._find_turns()
        self._find_systems()
        self._find_call()
        self._find_plain_results()
        self._find_questions_behind_results()
        self._find_several()
        self._find_names()
        self._find_parts()
        self._find_reasoning()

    def _rendered(self, messages: Messages, abilities: TemplateAbilities, *, opened: bool = True) -> str | None:
        """Return the text of a conversation; None when the template rejects it."""
        try:
            return self._render(history(messages, abilities), opened)
        except TemplateError:
            return None

    def _lost(self, messages: Messages, abilities: TemplateAbilities, *, of: Messages | None = None) -> float:
        """Count the marks, of some of the messages, that the text lacks; infinity without a text."""
        text = self._rendered(messages, abilities)
        return math.inf if text is None else sum(mark not in text for mark in _marks(of or messages))

    def _shows(self, messages: Messages, abilities: TemplateAbilities | None = None) -> bool:
        return not self._lost(messages, abilities or self.abilities)

    def _with_calls(self, *turn: Mapping[str, Any]) -> tuple[Messages, Messages]:
        """A conversation whose answer to the results is still to come, and the same one later on."""
        asked = [*self._lead, _ASK, *turn]
        return asked, [*asked, _ANSWER, _AGAIN]

    def _lost_of_calls(self, turn: Messages, abilities: TemplateAbilities) -> float:
        return sum(self._lost(messages, abilities, of=turn) for messages in self._with_calls(*turn))

    def _best(
        self, candidates: Iterable[TemplateAbilities], rank: Callable[[TemplateAbilities], tuple[float, ...]]
    ) -> tuple[TemplateAbilities, float]:
        """The first candidate of the best rank, and the loss with it, which ranks begin with."""
        ranked: list[tuple[tuple[float, ...], TemplateAbilities]] = []
        for candidate in candidates:
            ranked.append((rank(candidate), candidate))
            if not any(ranked[-1][0]):
                break
        found, best = min(ranked, key=lambda each: each[0])
        return best, found[0]

    def _learn(self, **facts: Any) -> None:
        self.abilities = dataclasses.replace(self.abilities, **facts)

    def _replaced(self, **facts: Sequence[Any]) -> list[TemplateAbilities]:
        """The facts known so far with every combination of others, those of the first values first."""
        return [
            dataclasses.replace(self.abilities, **dict(zip(facts, values, strict=True)))
            for values in itertools.product(*facts.values())
        ]

    def _find_texts(self) -> None:
        """Find a beginning that the template takes, and the form of texts in it."""
        everyone = frozenset({*ROLES, "tool"})
        leads: list[Messages] = [[_SYSTEM], []]
        candidates = self._replaced(needs_parts=(frozenset(), everyone), null_reasoning=(False, True))
        found = []
        for lead in leads:
            messages = [*lead, _ASK, _ANSWER, _AGAIN]
            best, lost = self._best(candidates, lambda each, messages=messages: (self._lost(messages, each),))  # type: ignore[misc]
            found.append((lost, best))
            if not lost:
                break
        lost, self.abilities = min(found, key=lambda each: each[0])
        self._lead = leads[[each[0] for each in found].index(lost)]
        for role in self.abilities.needs_parts:
            fewer = dataclasses.replace(self.abilities, needs_parts=self.abilities.needs_parts - {role})
            if self._shows([*self._lead, _ASK, _ANSWER, _AGAIN], fewer):
                self.abilities = fewer

    def _find_turns(self) -> None:
        """Find the roles of which two messages must not follow each other, and whether an answer may be empty."""
        self._find_join("user", [[*self._lead, _ASK, _AGAIN], [*self._lead, _ASK, _AGAIN, _ANSWER, _text("user", "c")]])
        self._find_join("assistant", [[*self._lead, _ASK, _ANSWER, _text("assistant", "b"), _AGAIN]])
        nothing = [*self._lead, _ASK, {**_ANSWER, "content": ""}, _AGAIN]
        self.abilities, _ = self._best(
            self._replaced(empty_turns=(True, False)), lambda each: (self._lost(nothing, each),)
        )

    def _find_join(self, role: str, conversations: Sequence[Messages]) -> None:
        """Find whether messages of a role must be joined: no other way of showing the conversations loses less."""
        candidates = self._replaced(joins=(self.abilities.joins, self.abilities.joins | {role}))
        self.abilities, _ = self._best(candidates, lambda each: (sum(self._lost(c, each) for c in conversations),))

    def _find_systems(self) -> None:
        """Find where system messages may stand, and whether the role developer is more than an unknown word."""
        first = [_SYSTEM, _ASK]
        second = _text("system", "b")
        late = [[*self._lead, _ASK, _ANSWER, second, _AGAIN], [*self._lead, _ASK, second, _AGAIN]]
        developer = _text("developer", "a")
        known = dataclasses.replace(self.abilities, developer=True)
        text = self._rendered([developer, _ASK], known)
        alone = self._rendered([_SYSTEM], self.abilities)
        unknown = self._rendered([{**developer, "role": _UNKNOWN_ROLE}, _ASK], known)
        self._learn(
            developer=text is not None
            and developer["content"] in text
            and (unknown is None or unknown.replace(_UNKNOWN_ROLE, "developer") != text),
            several_systems=self._shows([_SYSTEM, _text("system", "b"), _ASK]),
            late_systems=all(map(self._shows, late)),
            system_alone=alone is None or _SYSTEM["content"] in alone,
            hides_system=0 < self._lost(first, self.abilities) < math.inf,
        )
        if self._lost(first, self.abilities) == math.inf:
            moved = dataclasses.replace(self.abilities, system_in_question=True)
            self._learn(system_in_question=self._shows([_SYSTEM, _ASK, _ANSWER, _AGAIN], moved))

    def _find_call(self) -> None:
        """Find the form of a call and its result; plain form, when there is none in which both are shown."""
        turn = (_calls("a"), _result("a"))

        def rank(abilities: TemplateAbilities) -> tuple[float, ...]:
            texts = [self._rendered(messages, abilities) or "" for messages in self._with_calls(*turn)]
            return self._lost_of_calls(turn, abilities), sum(bool(_WRONG_FORM.search(text)) for text in texts)

        forms = self._replaced(
            null_content=(False, True),
            short_ids=(False, True),
            arguments=("object", "text"),
            result_names=(True, False),
        )
        found, lost = self._best(forms, rank)
        self._learn(calls=not lost)
        if lost:
            return
        self.abilities = found
        # Templates that tell a message of calls by its null content write a turn more for an empty text.
        null = dataclasses.replace(found, null_content=True)
        if not any(rank(null)) and self._length(turn, null) < self._length(turn, found):
            self.abilities = null
        asked, _ = self._with_calls(*turn)
        if not self._shows(asked):
            self._learn(system_in_calls=False)
        broken = [*self._lead, _ASK, _calls("a", arguments='markbroken {"'), _result("a")]
        open_calls = [*self._lead, _ASK, _calls("a")]
        behind: list[Messages] = [[], [_AGAIN], [_ANSWER, _AGAIN], [_calls("b"), _result("b")]]
        self._learn(
            text_arguments=self._shows(broken),
            open_calls=all(self._shows([*open_calls, *each]) for each in behind),
        )

    def _length(self, turn: Messages, abilities: TemplateAbilities) -> int:
        return sum(len(self._rendered(messages, abilities) or "") for messages in self._with_calls(*turn))

    def _find_plain_results(self) -> None:
        """Find the role of results in plain form, beside calls in plain form."""
        turn = (_calls("a"), _result("a"))
        facts: dict[str, Sequence[Any]] = {"calls": (False,), "plain_results": ("tool", "user")}
        if not self.abilities.calls:
            facts |= {"result_names": (True, False), "short_ids": (False, True)}
        found, lost = self._best(self._replaced(**facts), lambda each: (self._lost_of_calls(turn, each),))
        if lost:
            found = dataclasses.replace(self.abilities, plain_results="user")
        self.abilities = dataclasses.replace(found, calls=self.abilities.calls)

    def _find_questions_behind_results(self) -> None:
        """Find whether a user message may stand behind a result."""
        asked = [*self._lead, _ASK, _calls("a"), _result("a"), _AGAIN]
        self._find_join("tool", [asked, [*asked, _ANSWER, _text("user", "c")]])

    def _find_several(self) -> None:
        """Find the form of several calls of one message, and of text beside a call."""
        if not self.abilities.calls:
            return
        several = (_calls("a", "b"), _result("a"), _result("b"))
        text = (_calls("a", text="marktexta"), _result("a"), _calls("b", text="marktextb"), _result("b"))
        both = (_calls("a", "b", text="marktexta"), _result("a"), _result("b"))
        for fact, values, turn in (
            ("several_calls", ("together", "separate", "plain"), several),
            ("text_with_calls", ("beside", "before", "previous", "plain"), text),
        ):
            candidates = self._replaced(**{fact: values})
            self.abilities, _ = self._best(candidates, lambda each, turn=turn: (self._lost_of_calls(turn, each),))  # type: ignore[misc]
        if self._lost_of_calls(both, self.abilities):
            self._learn(text_with_calls="plain")

    def _find_names(self) -> None:
        """Find the roles whose names are shown."""
        turns: dict[str, list[Messages]] = {
            "system": [[{**_SYSTEM, "name": "markbearer"}, _ASK]],
            "user": [[*self._lead, {**_ASK, "name": "markbearer"}, _ANSWER, _AGAIN]],
            "assistant": [
                [*self._lead, _ASK, {**_ANSWER, "name": "markbearer"}, _AGAIN],
                *self._with_calls(_calls("a", name="markbearer"), _result("a")),
            ],
            "tool": [*self._with_calls(_calls("a"), _result("a", name="markbearer"))],
        }
        for role, conversations in turns.items():
            named = dataclasses.replace(self.abilities, names=self.abilities.names | {role})
            if all("markbearer" in (self._rendered(messages, named) or "") for messages in conversations):
                self.abilities = named

    def _find_parts(self) -> None:
        """Find the roles whose content may be a list of parts."""
        parts = {"content": "markparta\nmarkpartb", "parts": ["markparta", "markpartb"]}
        turns: dict[str, Messages] = {
            "system": [{**_SYSTEM, **parts}, _ASK],
            "user": [*self._lead, {**_ASK, **parts}, _ANSWER, _AGAIN],
            "assistant": [*self._lead, _ASK, {**_ANSWER, **parts}, _AGAIN],
        }
        if self.abilities.calls:
            turns["tool"] = self._with_calls(_calls("a"), {**_result("a"), **parts})[1]
        for role, messages in turns.items():
            listed = dataclasses.replace(self.abilities, reads_parts=self.abilities.reads_parts | {role})
            text, plain = self._rendered(messages, listed), self._rendered(messages, self.abilities)
            if text is None or any(mark not in text for mark in _marks(parts)):
                continue
            if len(_PARTS_AS_DATA.findall(text)) <= len(_PARTS_AS_DATA.findall(plain or "")):
                self.abilities = listed

    def _find_reasoning(self) -> None:
        """Find the key under which reasoning is shown most often; most templates leave out that of earlier answers."""
        thought = {"reasoning": "markthought"}
        conversations: list[tuple[Messages, bool]] = [
            ([*self._lead, _ASK, {**_ANSWER, **thought}], False),
            ([*self._lead, _ASK, {**_ANSWER, **thought}, _AGAIN], True),
            ([*self._lead, _ASK, _calls("a", **thought), _result("a")], True),
        ]

        def hidden(abilities: TemplateAbilities) -> tuple[float, ...]:
            texts = [self._rendered(messages, abilities, opened=opened) or "" for messages, opened in conversations]
            as_data = any(_THINKING_AS_DATA.search(text) for text in texts)
            return (math.inf if as_data else sum("markthought" not in text for text in texts),)

        found, missing = self._best(self._replaced(reasoning=(*REASONING_KEYS, REASONING_PART)), hidden)
        if missing < len(conversations):
            self.abilities = found


def _text_of(render: Render, messages: Messages) -> str:
    try:
        return render(messages, True)
    except TemplateError:
        return ""


def _marks(data: Any) -> frozenset[str]:
    """Every mark in nested lists and mappings."""
    return frozenset(_MARK.findall(json.dumps(data)))
