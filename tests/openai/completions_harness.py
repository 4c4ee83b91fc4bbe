"""Asking the application for completions over a scripted engine that has log-probs of prompts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from openai.types import Completion

from gateway.generation import Capability, EngineChunk, GenerationRequest
from tests.app.harness import Gateway
from tests.app.scripted import MODEL, TOKENS, ByteIds, Script, Step

EVERY = ("prompt_logprobs", "logit_bias", "min_tokens", "stop_token_ids", "repetition_penalty", "use_beam_search")
FEATURES = replace(TOKENS, capabilities=dict.fromkeys(EVERY, Capability("native", "by the script.")))


def prompt_logprob(position: int) -> float:
    """What the scripted engine says of the prompt's token at ``position``."""
    return -position / 4


def scores(folder: Path, text: str, *, end: int | None = None) -> Script:
    """A script that answers ``text``, one token a byte, with all log-probs; ``end`` is an id that comes last.

    The best alternative of every token is ``!``, the next ones follow it in the vocabulary.
    """
    ids = [*ByteIds(folder).of(text), *([] if end is None else [end])]

    def script(request: GenerationRequest) -> list[Step]:
        steps: list[Step] = []
        for position, index in enumerate(ids[: request.max_tokens]):
            if index in request.end_ids:
                break
            steps.append(
                EngineChunk(
                    ids=[index],
                    logprobs=[-(position + 1) / 8 - (request.seed % 4)] if request.params.logprobs else None,
                    top_logprobs=[_alternatives(request.params.top_logprobs)] if request.params.top_logprobs else None,
                )
            )
        wanted = request.params.prompt_logprobs
        if wanted is not None and steps and isinstance(steps[0], EngineChunk):
            count = len(request.prompt.ids)
            steps[0].prompt_logprobs = [prompt_logprob(position) for position in range(1, count)]
            steps[0].prompt_top_logprobs = [_alternatives(wanted)] * (count - 1) if wanted else None
        return [*steps, EngineChunk(final=True)]

    return script


def _alternatives(count: int) -> list[tuple[int, float]]:
    return [(index, -0.01 * (index + 1)) for index in range(count)]


async def complete(running: Gateway, prompt: Any = "Hi", **body: Any) -> httpx.Response:
    """The answer to a completion request."""
    return await running.client.post("/v1/completions", json={"model": MODEL, "prompt": prompt, **body})


def checked(body: dict[str, Any]) -> dict[str, Any]:
    """The body of a whole answer, valid by OpenAI's own types.

    Those have no null in ``token_logprobs`` and ``top_logprobs``, which OpenAI's own server sends for the first token
    of an echoed prompt.
    """
    assert set(body) == {"id", "object", "created", "model", "choices", "usage"}
    assert body["id"].startswith("cmpl-")
    strict = json.loads(json.dumps(body))
    for choice in strict["choices"]:
        assert {"index", "text", "logprobs", "finish_reason"} <= set(choice)
        lists = choice["logprobs"]
        if lists and lists["token_logprobs"][:1] == [None]:
            lists["token_logprobs"][0], lists["top_logprobs"][0] = 0.0, {}
    Completion.model_validate(strict, strict=True)
    return body


def events(content: bytes) -> list[dict[str, Any]]:
    """The chunks of a whole stream, valid by OpenAI's own types but for the null of a reason to come."""
    *chunks, done = [line.removeprefix("data: ") for line in content.decode().split("\n\n") if line]
    assert done == "[DONE]"
    parsed: list[dict[str, Any]] = [json.loads(chunk) for chunk in chunks]
    assert len({(chunk["id"], chunk["created"]) for chunk in parsed}) == 1
    for chunk in parsed:
        strict = json.loads(json.dumps(chunk))
        for choice in strict["choices"]:
            choice["finish_reason"] = choice["finish_reason"] or "stop"
            if choice["logprobs"] and choice["logprobs"]["token_logprobs"][:1] == [None]:
                choice["logprobs"] = None
        Completion.model_validate(strict, strict=True)
    return parsed


def joined(chunks: Sequence[dict[str, Any]], index: int = 0) -> dict[str, Any]:
    """One choice of a stream as a whole answer would have it."""
    lists: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    text, reason, has_lists = "", None, False
    for choice in (choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index):
        assert reason is None, "something follows the finish reason"
        text += choice["text"]
        reason = choice["finish_reason"]
        assert ("stop_reason" in choice) is (reason is not None)
        if choice["logprobs"]:
            has_lists = True
            for name in lists:
                lists[name] += choice["logprobs"][name]
    return {
        "index": index,
        "text": text,
        "logprobs": lists if has_lists else None,
        "finish_reason": reason,
        "stop_reason": choice["stop_reason"],
    }
