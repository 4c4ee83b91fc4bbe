"""The doubles of the stock LLM API model: which parameters the engine of a version heeds, and adapters and images."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.llmapi.raw_requests import ask
from tests.doubles.llmapi.server import LlmapiServer
from tests.integration.kserve import Answer, Kserve
from tests.scripted_engine.replay import turn

VERSIONS = ("0.19", "1.0", "1.2", "1.3")
OLD, NEW = VERSIONS[:2], VERSIONS[2:]
RANDOM = {"temperature": 0.7, "top_p": 0.9}


def draw(server: LlmapiServer, client: Kserve, version: str, **parameters: Any) -> Answer:
    [answer] = ask(client, server.model(version), return_finish_reason=True, **parameters)
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
@pytest.mark.parametrize("parameters", [{"top_p": 1.5}, {"top_k": -1}, {"temperature": -1.0}])
def test_ranges_are_checked_from_1_2(
    llmapi_triton: LlmapiServer, client: Kserve, version: str, parameters: dict[str, Any]
) -> None:
    llmapi_triton.play(turn(text="x"))
    answer = draw(llmapi_triton, client, version, **parameters)
    told = rf"Error generating request: require .*{next(iter(parameters))}"
    assert bool(re.match(told, answer.error)) == (version in NEW)


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


@pytest.mark.parametrize("version", VERSIONS)
def test_a_wider_search_changes_nothing(llmapi_triton: LlmapiServer, client: Kserve, version: str) -> None:
    llmapi_triton.play(turn(text="x"))
    name = "beam_width" if version == "0.19" else "best_of"
    answer = draw(llmapi_triton, client, version, **{name: 4}, **RANDOM)
    assert (answer.text, answer.tensors["text_output"].shape) == ("x", (1,))
    assert llmapi_triton.requests()[0]["ignored"] == {name: 4}
    greedy = draw(llmapi_triton, client, version, **{name: 4})
    assert ("best_of above 1 is not allowed" in greedy.error) == (version != "0.19")


def test_adapters_are_named_by_three_things(llmapi_triton: LlmapiServer, client: Kserve, tmp_path: Path) -> None:
    llmapi_triton.play(turn(text="x"))
    model = llmapi_triton.model("1.3")
    adapter = {"lora_id": 7, "lora_name": "french", "lora_path": str(tmp_path)}
    for left_out in adapter:
        [answer] = ask(client, model, **{name: value for name, value in adapter.items() if name != left_out})
        assert answer.error == "Error generating request: lora_id, lora_name and lora_path must be given together"
    [nowhere] = ask(client, model, **{**adapter, "lora_path": "/nowhere"})
    assert "/nowhere does not exist" in nowhere.error
    [unknown] = ask(client, model, **adapter, lora_ckpt_source="other")
    assert "neither hf nor nemo" in unknown.error
    assert [ask(client, model, **adapter, **more)[0].text for more in ({}, {"lora_ckpt_source": "nemo"})] == ["x", "x"]
    ask(client, model)
    used = [request["adapter"] for request in llmapi_triton.requests()[-3:]]
    assert used == [{"adapter_id": 7, "name": "french", "path": str(tmp_path)}] * 2 + [None]


def test_an_adapter_is_known_by_its_id(llmapi_triton: LlmapiServer, client: Kserve, tmp_path: Path) -> None:
    llmapi_triton.play(turn(text="x"))
    (tmp_path / "other").mkdir()
    for name, path in (("first", tmp_path), ("second", tmp_path / "other")):
        ask(client, llmapi_triton.model("1.3"), lora_id=7, lora_name=name, lora_path=str(path))
    assert [request["adapter"]["name"] for request in llmapi_triton.requests()] == ["first", "first"]


def test_images_are_not_looked_at(llmapi_triton: LlmapiServer, client: Kserve) -> None:
    llmapi_triton.play(turn(text="x"))
    [answer] = ask(client, llmapi_triton.model("1.3"), image_url=["http://127.0.0.1:1/a.png"])
    assert answer.text == "x"
    assert llmapi_triton.requests()[0]["ignored"] == {"image_url": ["http://127.0.0.1:1/a.png"]}
