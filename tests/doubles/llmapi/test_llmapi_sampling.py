"""The doubles of the stock LLM API model: which parameters the engine of a version heeds."""

from __future__ import annotations

import pytest

from tests.doubles.llmapi.sampling import read_sampling
from tests.doubles.llmapi.versions import PREFIX, VERSIONS

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
