"""Running generations become one body."""

from __future__ import annotations

import functools
import time
from typing import Any

import anyio.to_thread
import orjson

from gateway.generation import Usage
from gateway.openai.completions.answer import Answer, completion_id
from gateway.openai.completions.logprobs import Row
from gateway.openai.usage import usage_object
from gateway.web.record import RequestRecord

_MANY_ROWS = 1024  # of prompts: writing more than these would hold up other requests' tokens


async def whole_answer(answer: Answer, record: RequestRecord) -> bytes:
    """Run all generations to their end and return the body.

    Raises:
        EngineError: when one fails; nothing of a part of an answer is returned.
    """
    created = int(time.time())
    texts: list[list[str]] = [[] for _ in answer.choices]
    rows: list[list[Row]] = [[] for _ in answer.choices]
    async with answer.running() as running:
        ended = False
        try:
            while (ready := await running.ready()) is not None:
                for index, pieces, _ in ready:
                    text, new = answer.choices[index].take(pieces)
                    texts[index].append(text)
                    rows[index] += new
            ended = True
        finally:
            answer.note(record, running, ended=ended)
    write = functools.partial(_body, answer, texts, rows, created, answer.usage(running))
    return await anyio.to_thread.run_sync(write) if _is_long(answer) else write()


def _is_long(answer: Answer) -> bool:
    """Whether writing the lists of the prompts would hold up other requests' tokens."""
    if not answer.request.echo or answer.request.logprobs is None:
        return False
    return sum(len(choice.prepared.prompt.ids) for choice in answer.choices) > _MANY_ROWS


def _body(answer: Answer, texts: list[list[str]], rows: list[list[Row]], created: int, usage: Usage) -> bytes:
    bodies: list[dict[str, Any]] = []
    for index in _shown(answer):
        choice = answer.choices[index]
        opening, first = choice.opening()
        bodies.append(
            {
                "index": len(bodies),
                "text": opening + "".join(texts[index]),
                "logprobs": choice.logprobs(first + rows[index]),
                "finish_reason": choice.finish_reason,
                "stop_reason": choice.stop_reason,
                **choice.prompt_extras(),
                **choice.new_extras(),
            }
        )
    return orjson.dumps(
        {
            "id": completion_id(),
            "object": "text_completion",
            "created": created,
            "model": answer.request.model,
            "choices": bodies,
            "usage": usage_object(usage),
        }
    )


def _shown(answer: Answer) -> list[int]:
    """The choices that are shown, in order: of each prompt the best candidates, or all where there are no others."""
    shown: list[int] = []
    for start in range(0, len(answer.choices), answer.candidates):
        indices = list(range(start, start + answer.candidates))
        if answer.candidates > answer.request.n:
            indices.sort(key=lambda index: answer.choices[index].mean_logprob, reverse=True)
        shown += indices[: answer.request.n]
    return shown
