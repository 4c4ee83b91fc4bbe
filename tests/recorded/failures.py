"""Failures of the engine, before and within its answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.recorded.exchange import Case, chat, complete
from tests.recorded.forms import schema

S: dict[str, Any] = {"stream": True}

FAILURES: list[Case] = [
    chat(name + how, f"{before}<<{direction}>>", **stream)
    for how, before, stream in (
        ("", "", {}),
        (" at the start of a stream", "", S),
        (" within an answer", "He", {}),
        (" within a stream", "He", S),
    )
    for name, direction in (
        ("the queue is full", "error [request id: x] Exceeds maximum queue size"),
        ("Triton stops", "abort UNAVAILABLE Server is shutting down"),
        ("the connection is lost", "abort UNAVAILABLE Socket closed"),
        ("the engine has a defect", "error Encountered an error in /opt/engine.cpp:42"),
        ("the deadline passes", "abort DEADLINE_EXCEEDED Deadline Exceeded"),
        ("the answer has no end", "vanish"),
        ("the engine gives up", "finish timeout"),
        ("the engine ends for an unknown reason", "finish tired"),
        ("the engine cancels", "finish cancelled"),
    )
] + [
    chat("the prompt is too long for the engine", "<<error Prompt length (512) exceeds maximum input length (256).>>"),
    chat("the engine has no guides", "<<error guided decoding is not set up>>", response_format=schema()),
    chat("the engine cannot hold the guide", "<<error Guided decoding error: bad grammar>>", guided_regex="a"),
    chat("the engine refuses a tensor", "<<error bad_words_list is not supported by the engine>>", bad_words=["x"]),
    chat("the engine has no such adapter", "<<error LoRA task 5 not found in cache>>"),
    chat("an adapter does not fit", "<<error lora_weights have the wrong shape>>"),
    chat("an input is missing", "<<abort INVALID_ARGUMENT expected 5 inputs but got 4>>"),
    chat("a message is too large", "<<abort RESOURCE_EXHAUSTED too large>>"),
    replace(
        chat("one of several choices fails", "Hello||<<error Exceeds maximum queue size>>", n=2, seed=2), cut_short=True
    ),
    chat("the queue is full through the ensemble", "<<error in ensemble 'ensemble', Exceeds maximum queue size>>",
         model="words"),
    complete("a completion fails", "say:<<error Exceeds maximum queue size>>"),
    complete("a completion fails within a stream", "say:He<<error Encountered an error>>", **S),
]  # fmt: skip
