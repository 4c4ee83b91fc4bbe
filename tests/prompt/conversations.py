"""Conversations as endpoints hand them to the prompt room, every text of them a word that stands nowhere else."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from gateway.text.prompt import ChatTemplate, history

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "lookup",
            "description": "Looks.",
            "parameters": {"type": "object", "properties": {"place": {"type": "string", "description": "Where."}}},
        },
    }
]
_WORD = re.compile(r"\bw\d+w\b")


def _words() -> Iterator[str]:
    return (f"w{number}w" for number in itertools.count())


def words_of(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every word of a conversation but those of earlier reasoning, which many templates leave out on purpose."""
    told = [{key: value for key, value in message.items() if key != "reasoning"} for message in messages]
    return sorted(set(_WORD.findall(json.dumps(told))), key=lambda word: int(word[1:-1]))


def rendered(template: ChatTemplate, messages: Sequence[Mapping[str, Any]], *, tools: bool) -> str:
    """The prompt of a conversation, as chats have it built."""
    shown = TOOLS if tools and template.shows_tools else None
    return template.render(history(messages, template.abilities(tools=shown is not None)), tools=shown)


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """System messages, questions, answers, calls in loops with results; names and parts now and then."""
    words = _words()

    def message(role: str) -> dict[str, Any]:
        texts = [next(words) for _ in range(draw(st.sampled_from((1, 1, 1, 2))))]
        found: dict[str, Any] = {"role": role, "content": "\n".join(texts)}
        if len(texts) > 1:
            found["parts"] = texts
        return found | ({"name": next(words)} if draw(st.sampled_from((False, False, True))) else {})

    def calls() -> list[dict[str, Any]]:
        count = draw(st.sampled_from((1, 1, 2, 3)))
        functions = [{"name": next(words), "arguments": json.dumps({next(words): next(words)})} for _ in range(count)]
        listed = [
            {"id": f"call_{function['name']}", "type": "function", "function": function} for function in functions
        ]
        said = message("assistant") if draw(st.booleans()) else {"role": "assistant", "content": ""}
        results = [{"role": "tool", "tool_call_id": call["id"], "content": next(words)} for call in listed]
        if draw(st.booleans()):
            said["reasoning"] = "thought"
        return [{**said, "tool_calls": listed}, *draw(st.permutations(results))]

    found = [
        message(draw(st.sampled_from(("system", "developer")))) for _ in range(draw(st.sampled_from((0, 1, 1, 2))))
    ]
    for _ in range(draw(st.integers(0, 2))):
        found.append(message("user"))
        for _ in range(draw(st.integers(0, 2))):
            found += calls()
        found.append(message("assistant"))
        if draw(st.sampled_from((False, False, False, True))):
            found.append(message("system"))
    found.append(message("user"))
    for _ in range(draw(st.integers(0, 2))):
        found += calls()
    return found
