"""The doubles of the stock LLM API model: which parameters the engine of a version heeds."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

from tests.doubles.llmapi.sampling import read_sampling
from tests.doubles.llmapi.versions import PREFIX, VERSIONS
from tests.integration.kserve import Kserve, answers, infer_request
from tests.scripted_engine.replay import turn

OLD, NEW = ("0.19", "1.0"), ("1.2", "1.3")
RANDOM = {"temperature": 0.7, "top_p": 0.9}
PENALTIES = {"frequency_penalty": 0.5, "presence_penalty": 0.25}


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
def test_what_is_greedy(version, parameters, greedy_in) -> None:
    read = read_sampling(VERSIONS[version], {PREFIX + name: value for name, value in parameters.items()})
    assert read.greedy == read.effective["greedy"] == (version in greedy_in)


@pytest.mark.parametrize(
    ("parameters", "heeded", "heeded_in"),
    [
        ({"temperature": 0.5}, {"temperature"}, NEW),  # alone it does nothing before
        ({"seed": 2**63, **RANDOM}, {"seed"}, ("1.3",)),
        ({**PENALTIES, **RANDOM}, PENALTIES.keys(), ("1.3",)),
    ],
    ids=["temperature", "seed", "penalties"],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_heeded(version, parameters, heeded, heeded_in) -> None:
    read = read_sampling(VERSIONS[version], {PREFIX + name: value for name, value in parameters.items()})
    wanted = (heeded, set()) if version in heeded_in else (set(), heeded)
    assert (read.effective.keys() & heeded, read.ignored.keys() & heeded) == wanted
    assert read.seed == (parameters.get("seed") if version == "1.3" else None)


@pytest.mark.parametrize("version", VERSIONS)
def test_draws_follow_what_is_heeded(llmapi_triton, version) -> None:
    llmapi_triton.play(turn(sampled={"end": 0.0}))
    with contextlib.closing(Kserve(llmapi_triton.grpc_url)) as client:

        def drawn(**parameters: Any) -> set[str]:
            """The answers to the same request."""
            tensors = {PREFIX + name: np.array([value]) for name, value in parameters.items()}
            tensors["text_input"] = np.array([b"hi"], np.object_)
            asked = infer_request(llmapi_triton.model(version), **tensors)
            return {answer.text for _ in range(4) for answer in answers(client.call(asked, timeout=20))}

        random = {name: np.float32(value) for name, value in RANDOM.items()}
        assert len(drawn(top_k=np.int32(1))) == 1
        assert len(drawn(**random)) > 1
        assert (len(drawn(**random, seed=np.uint64(2**63))) == 1) == (version == "1.3")
        first, second = map(str, llmapi_triton.ids("ab"))
        llmapi_triton.play(turn(logits=[{first: 1.0, second: 0.9}]))
        penalties = {name: np.float32(value) for name, value in PENALTIES.items()}
        (said,) = drawn(top_k=np.int32(1), max_tokens=np.int32(2), **penalties)
        assert said.endswith("ab" if version == "1.3" else "aa")
