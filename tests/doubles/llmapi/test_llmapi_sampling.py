"""The doubles of the stock LLM API model: which parameters the engine of a version heeds, and adapters and images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.doubles.llmapi.server import LlmapiServer
from tests.doubles.llmapi.versions import PREFIX
from tests.integration.kserve import Answer, Kserve, answers, infer_request
from tests.scripted_engine.replay import turn

VERSIONS = ("0.19", "1.0", "1.2", "1.3")
OLD, NEW = VERSIONS[:2], VERSIONS[2:]
RANDOM = {"temperature": 0.7, "top_p": 0.9}
_DTYPES = {int: np.int32, float: np.float32}


def draw(server: LlmapiServer, client: Kserve, version: str, **parameters: Any) -> Answer:
    """The answer to a text, by sampling parameters without their prefix."""
    tensors = {"text_input": np.array([b"hi"], np.object_), "return_finish_reason": np.array([True])}
    tensors[PREFIX + "exclude_input_from_output"] = np.array([True])
    for name, value in parameters.items():
        tensors[PREFIX + name] = np.array([value], np.uint64 if name == "seed" else _DTYPES[type(value)])
    [answer] = answers(client.call(infer_request(server.model(version), **tensors), timeout=20))
    return answer


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("parameters", "greedy_in"),
    [
        ({}, VERSIONS),
        ({"top_k": 1}, VERSIONS),
        ({"top_k": 1, "temperature": 0.7, "top_p": 0.9}, NEW),
        ({"temperature": 0.7}, OLD),
        ({"temperature": 0.0}, VERSIONS),
        ({"temperature": 0.0, "top_p": 1.0}, NEW),
        ({"top_p": 0.0}, VERSIONS),
        ({"top_p": 0.9}, ()),
        ({"top_k": 40}, ()),
        (RANDOM, ()),
    ],
)
def test_what_is_greedy(
    llmapi_triton: LlmapiServer, client: Kserve, version: str, parameters: dict[str, Any], greedy_in: tuple[str, ...]
) -> None:
    llmapi_triton.play(turn(sampled={"end": 0.0}))
    texts = {draw(llmapi_triton, client, version, **parameters).text for _ in range(4)}
    assert (len(texts) == 1) == (version in greedy_in)
    assert {request["effective"]["greedy"] for request in llmapi_triton.requests()} == {version in greedy_in}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_temperature_alone_does_nothing_before_1_2(llmapi_triton: LlmapiServer, client: Kserve, version: str) -> None:
    llmapi_triton.play(turn(text="x"))
    draw(llmapi_triton, client, version, temperature=0.5)
    [request] = llmapi_triton.requests()
    assert request["ignored"] == ({"temperature": 0.5} if version in OLD else {})
    assert request["effective"].get("temperature") == (None if version in OLD else 0.5)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_seed_counts_from_1_3(llmapi_triton: LlmapiServer, client: Kserve, version: str) -> None:
    llmapi_triton.play(turn(sampled={"end": 0.0}))
    texts = {draw(llmapi_triton, client, version, seed=2**63, **RANDOM).text for _ in range(4)}
    assert (len(texts) == 1) == (version == "1.3")
    request = llmapi_triton.requests()[0]
    assert ("seed" in request["effective"], "seed" in request["ignored"]) == (version == "1.3", version != "1.3")


@pytest.mark.parametrize("version", VERSIONS)
def test_penalties_count_from_1_3(llmapi_triton: LlmapiServer, client: Kserve, version: str) -> None:
    llmapi_triton.play(turn(text="x"))
    penalties = {"frequency_penalty": 0.5, "presence_penalty": 0.25}
    draw(llmapi_triton, client, version, **penalties, **RANDOM)
    [request] = llmapi_triton.requests()
    heeded = request["effective"] if version == "1.3" else request["ignored"]
    assert penalties.items() <= heeded.items()
    first, second = map(str, llmapi_triton.ids("ab"))
    llmapi_triton.play(turn(logits=[{first: 1.0, second: 0.9}]))
    said = draw(llmapi_triton, client, version, top_k=1, max_tokens=2, **penalties).text
    assert said == ("ab" if version == "1.3" else "aa")
