"""The same program gives the same text by every dialect, whole and streamed, or the refusal that names the cure."""

from __future__ import annotations

from typing import Any

import pytest
from openai import BadRequestError

from tests.dialects.bench import APART_S, Bench
from tests.dialects.dialects import Dialect
from tests.dialects.expectations import expected
from tests.scripted_engine.replay import turn

TEXTS = {
    "emoji": "Well 🙂👩‍🚀🏳️‍🌈 done", "cjk": "你好,世界。東京は雨です 한국어", "arabic": "مرحبا بالعالم، كيف الحال؟",
    "spaces": "  two before, four    within, one after ", "lines": "\n\nfirst\n  - second\n\tthird\r\n",
    "prose": "Hello the capital of the Grüße is not here",
}  # fmt: skip


def ask(bench: Bench, dialect: Dialect, name: str, **more: Any) -> Any:
    asked = {"model": dialect.name, "messages": [{"role": "user", "content": f"say {name}, please"}], "temperature": 0}
    return bench.openai.chat.completions.create(**asked, **{"max_tokens": 200, **more})


def whole(bench: Bench, dialect: Dialect, name: str, **more: Any) -> tuple[str, str]:
    choice = ask(bench, dialect, name, **more).choices[0]
    return choice.message.content, choice.finish_reason


def streamed(bench: Bench, dialect: Dialect, name: str, **more: Any) -> tuple[list[str], str]:
    choices = [chunk.choices[0] for chunk in ask(bench, dialect, name, stream=True, **more) if chunk.choices]
    return [choice.delta.content for choice in choices if choice.delta.content], choices[-1].finish_reason


@pytest.fixture
def said(bench: Bench) -> dict[str, str]:
    bench.play(*(turn(f"say {name}, please", text=text) for name, text in TEXTS.items()))
    return TEXTS


def test_a_whole_answer_is_the_engine_s_text(bench: Bench, dialect: Dialect, said: dict[str, str]) -> None:
    assert {name: whole(bench, dialect, name) for name in said} == {name: (text, "stop") for name, text in said.items()}


def test_a_streamed_answer_is_the_same_or_refused_by_name(bench: Bench, dialect: Dialect, said: dict[str, str]) -> None:
    if expected(dialect, "stream") == "rejected":
        with pytest.raises(BadRequestError) as caught:
            streamed(bench, dialect, "emoji")
        assert caught.value.param == "stream"
        assert "text_streaming" in caught.value.message
        return
    for name, text in said.items():
        pieces, finish = streamed(bench, dialect, name)
        assert ("".join(pieces), finish) == (text, "stop")
        assert (len(pieces) == 1) == (expected(dialect, "stream") == "one event")


@pytest.mark.parametrize("stop", ["🚀", "done", "l 🙂👩", "ne"], ids=["character", "end", "across", "within"])
def test_a_stop_string_ends_the_text_where_it_begins(bench: Bench, dialect: Dialect, stop: str) -> None:
    bench.play(turn(text=TEXTS["emoji"], pause=APART_S))
    cut = (TEXTS["emoji"].partition(stop)[0], "stop")
    assert whole(bench, dialect, "emoji", stop=stop) == cut
    if expected(dialect, "stream") != "rejected":
        pieces, finish = streamed(bench, dialect, "emoji", stop=[stop, "never said"])
        assert ("".join(pieces), finish) == cut


def test_a_limit_cuts_the_text(bench: Bench, dialect: Dialect, said: dict[str, str]) -> None:
    answer = ask(bench, dialect, "prose", max_tokens=4)
    assert (answer.choices[0].finish_reason, answer.usage.completion_tokens) == ("length", 4)
    text = answer.choices[0].message.content
    assert text
    assert said["prose"].startswith(text)
