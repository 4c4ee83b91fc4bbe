"""docs/how-to/migration.md: each road is walked with the settings of the page, between doubles of the stock models."""

from __future__ import annotations

import json
import re
import shlex
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from openai import NotFoundError, OpenAI
from typer.testing import CliRunner

from gateway_ops.cli.root import app
from tests.clients.programs.pages import ADDRESS, exports
from tests.doubles.llmapi.server import LlmapiServer
from tests.doubles.stock.server import StockServer
from tests.gateway_ops.compare.other_server import OtherServer, Said
from tests.scripted_engine.replay import turn
from tests.stack import GatewayProcess
from tests.waiting import wait_until

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "migration.md").read_text(encoding="utf-8")
TEXTS = {
    "first": "The first answer, whole.<|im_end|>",
    "second": "Another one: 世界 🙂.<|im_end|>",
    "third": "One that is cut, as its limit is lower than its length.",
}
# What the front end takes of chat (its schema forbids the rest), and the defaults of both.
FRONT_END_FIELDS = frozenset({
    "model", "messages", "max_tokens", "max_completion_tokens", "temperature", "top_p", "stop", "stream", "n", "seed",
    "logprobs", "top_logprobs", "response_format", "user", "tools", "tool_choice", "presence_penalty",
    "frequency_penalty", "stream_options", "min_tokens", "ignore_eos",
})  # fmt: skip
SILENT = {"max_tokens": 16}


def blocks(heading: str, language: str) -> list[str]:
    """The blocks of code under a heading of the page."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


def ask(url: str, model: str, text: str = "first", **more: Any) -> Any:
    with OpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0) as client:
        messages: Any = [{"role": "user", "content": f"say the {text}"}]
        return client.chat.completions.create(model=model, messages=messages, temperature=0, **more)


def compare(folder: Path, *arguments: str, limit: int | None = 24) -> tuple[dict[str, Any], int]:
    """Compare on one request for each of the texts; ``limit`` None leaves the length to the servers."""
    file, report = folder / "requests.jsonl", folder / "report.json"
    limits = {} if limit is None else {"max_tokens": limit}
    bodies = [{"messages": [{"role": "user", "content": f"say the {name}"}], **limits} for name in TEXTS]
    file.write_text("".join(json.dumps({**body, "temperature": 0}) + "\n" for body in bodies))
    done = CliRunner().invoke(app, ["compare", *arguments, "--requests", str(file), "--output", str(report)])
    assert done.exit_code in {0, 1}, done.output
    return json.loads(report.read_text()), done.exit_code


def differences(found: dict[str, Any]) -> list[set[str]]:
    return [{each["in"] for each in row.get("differences", ())} for row in found["rows"]]


@pytest.fixture
def played(stock_triton: StockServer, llmapi_triton: LlmapiServer) -> None:
    turns = [turn(f"say the {name}", text=text) for name, text in TEXTS.items()]
    stock_triton.play(*turns, chunk=[1, 3])
    llmapi_triton.play(*turns, chunk=[1, 3])


class Settings:
    """The settings file of the first road, as it is changed step by step."""

    def __init__(self, folder: Path, stock: StockServer, llmapi: LlmapiServer) -> None:
        self.file = folder / "gateway.yaml"
        (first, split) = blocks("From an ensemble to the LLM API", "yaml")
        self.values = yaml.safe_load(first)
        self.split = yaml.safe_load(split)
        self.old, self.new = self.values["models"]
        assert (self.old["triton"]["model"], self.new["triton"]["model"]) == ("ensemble", "tensorrt_llm")
        self.old["triton"] = {"url": stock.grpc_url, "model": stock.ensemble("1.2.1")}
        self.new["triton"] = {"url": llmapi.grpc_url, "model": llmapi.model(self.new["engine_version"])}
        for model in (self.old, self.new):
            model.update(tokenizer=str(llmapi.model_dir), max_seq_len=2048)
        self.old["tokenizer"] = str(stock.model_dir())
        self.write()

    def write(self) -> None:
        self.file.write_text(yaml.safe_dump(self.values))


@pytest.fixture
def settings(stock_triton: StockServer, llmapi_triton: LlmapiServer, tmp_path: Path) -> Settings:
    return Settings(tmp_path, stock_triton, llmapi_triton)


def reload(gateway: GatewayProcess, settings: Settings) -> None:
    before = gateway.metric("gateway_settings_reloads_total", 'outcome="applied"')
    settings.write()
    gateway.signal(signal.SIGHUP)
    wait_until(lambda: gateway.metric("gateway_settings_reloads_total", 'outcome="applied"') > before)


def test_from_an_ensemble_to_the_llm_api(
    played: None, settings: Settings, stock_triton: StockServer, tmp_path: Path
) -> None:
    old, new = settings.old["name"], settings.new["name"]
    with GatewayProcess(tmp_path / "log", GATEWAY_CONFIG=str(settings.file)) as gateway:
        assert ask(gateway.url, "llama3").model == old
        commands = [shlex.split(line) for line in blocks("From an ensemble to the LLM API", "sh")[0].splitlines()]
        assert [command[:4] for command in commands] == [["gateway", "compare", old, new]] * 2
        found, status = compare(tmp_path, old, new, "--url", gateway.url, "--repeat")
        assert (differences(found), status) == ([set(), set(), set()], 0)
        told = {fact["what"]: (fact["a"], fact["b"]) for fact in found["facts"]}
        assert told["dialect"] == ("tokens", "llmapi")
        assert any("differ in their tokenizer" in warning for warning in found["warnings"])  # the new one adds a BOS
        assert told["parameter logprobs"] == ("native", "impossible")

        stock_triton.play(*(turn(f"say the {name}", text=text.replace("one", "1")) for name, text in TEXTS.items()))
        found, status = compare(tmp_path, old, new, "--url", gateway.url)
        assert [bool(each) for each in differences(found)] == [False, True, False]
        assert status == 1

        del settings.old["aliases"]
        settings.values |= settings.split
        settings.values["splits"]["llama3"] = dict.fromkeys(settings.values["splits"]["llama3"], 50)
        reload(gateway, settings)
        assert {ask(gateway.url, "llama3").model for _ in range(30)} == {old, new}

        del settings.values["splits"]
        settings.new["aliases"] = ["llama3"]
        reload(gateway, settings)
        assert ask(gateway.url, "llama3").model == new

        settings.old["aliases"] = settings.new.pop("aliases")
        reload(gateway, settings)
        assert ask(gateway.url, "llama3").model == old


def environment(line: str, stock: StockServer) -> dict[str, str]:
    """The settings of a line of the page, for the Triton and the folder of a double."""
    *words, command, verb = shlex.split(line)
    assert (command, verb) == ("gateway", "serve")
    env = dict(word.split("=", 1) for word in words)
    assert set(env) == {
        "GATEWAY_MODEL", "GATEWAY_TRITON_URL", "GATEWAY_TOKENIZER", "GATEWAY_MAX_SEQ_LEN", "GATEWAY_PORT",
    }  # fmt: skip
    del env["GATEWAY_PORT"]
    own = {"GATEWAY_TRITON_URL": stock.grpc_url, "GATEWAY_TOKENIZER": str(stock.model_dir())}
    # Its model is named by its version here.
    return {**env, **own, "GATEWAY_TRITON_MODEL": stock.ensemble("1.2.1"), "GATEWAY_MAX_SEQ_LEN": "2048"}


@pytest.fixture
def gateway(
    request: pytest.FixtureRequest, played: None, stock_triton: StockServer, tmp_path: Path
) -> Iterator[GatewayProcess]:
    (line,) = blocks(request.param, "sh")
    with GatewayProcess(tmp_path / "log", **environment(line, stock_triton)) as running:
        yield running


def test_an_application_of_openai(
    played: None, stock_triton: StockServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the page's two variables, and goes on asking for OpenAI's model."""
    (variables,), (line,) = blocks("From OpenAI", "sh"), blocks("From Triton's own OpenAI front end", "sh")
    (model,) = re.findall(r"`GATEWAY_MODEL_ALIASES=(\S+) make up`", PAGE)
    env = environment(line, stock_triton) | {"GATEWAY_MODEL_ALIASES": model}
    with GatewayProcess(tmp_path / "log", **env) as gateway:
        for name, value in exports(variables).items():
            monkeypatch.setenv(name, value.replace(ADDRESS, gateway.url))
        with OpenAI(max_retries=0) as client:
            messages: Any = [{"role": "user", "content": "say the first"}]
            answer = client.chat.completions.create(model=model, messages=messages)
            with pytest.raises(NotFoundError, match="Put the text of files into the messages"):
                client.files.list()
    assert answer.choices[0].message.content == "The first answer, whole."


Answer = Callable[[str, dict[str, Any]], Said]


def same_engine(gateway: GatewayProcess, body: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """What the engine says to a body."""
    with httpx.Client(base_url=gateway.url, timeout=30) as client:
        said = client.post("/v1/chat/completions", json={**SILENT, **body, "stream": False, **changed})
    assert said.status_code == 200, said.text
    answer: dict[str, Any] = said.json()
    answer["choices"] = [{**choice, "finish_reason": "stop"} for choice in answer["choices"]]
    return answer


def front_end(gateway: GatewayProcess) -> Answer:
    """Triton's own front end, as its source has it: answers end by ``stop``, usage is null, errors are FastAPI's."""

    def answer(_path: str, body: dict[str, Any]) -> Said:
        if unknown := sorted(body.keys() - FRONT_END_FIELDS):
            return Said({"detail": [{"type": "extra_forbidden", "loc": ["body", unknown[0]]}]}, 422)
        if body.get("n", 1) > 1 or body.get("logprobs"):
            return Said({"detail": "n > 1 is not supported"}, 400)
        kept = {name: value for name, value in body.items() if name != "response_format"}
        return Said({**same_engine(gateway, kept), "usage": None})

    return answer


def openai_trtllm(gateway: GatewayProcess) -> Answer:
    """openai_trtllm, too: usage of zeros, and what it does not know is dropped."""

    def answer(_path: str, body: dict[str, Any]) -> Said:
        if isinstance(body.get("stop"), str):
            return Said(b"Failed to deserialize the JSON body into the target type", 422, "text/plain")
        known = {"messages", "max_tokens", "temperature", "top_p", "stop", "model"}
        zeros = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        kept = {name: value for name, value in body.items() if name in known}
        return Said({**same_engine(gateway, kept), "object": "text_completion", "usage": zeros})

    return answer


def send_both(tmp_path: Path, other: str, own: str, *bodies: dict[str, Any]) -> list[dict[str, Any]]:
    file, report = tmp_path / "odd.jsonl", tmp_path / "odd.json"
    file.write_text("".join(json.dumps(body) + "\n" for body in bodies))
    done = CliRunner().invoke(app, ["compare", other, own, "--requests", str(file), "--output", str(report)])
    assert done.exit_code == 1, done.output
    rows: list[dict[str, Any]] = json.loads(report.read_text())["rows"]
    return rows


FIRST = {"messages": [{"role": "user", "content": "say the first"}], "temperature": 0, "max_tokens": 40}


@pytest.mark.parametrize("gateway", ["From Triton's own OpenAI front end"], indirect=True)
def test_from_tritons_own_front_end(gateway: GatewayProcess, tmp_path: Path) -> None:
    with OtherServer(front_end(gateway), models=["ensemble"]) as there:
        targets = f"{there.url}#ensemble", f"{gateway.url}#ensemble"
        found, _ = compare(tmp_path, *targets)
        cut = {"usage", "finish_reason"}
        assert differences(found) == [{"usage"}, {"usage"}, cut]
        found, _ = compare(tmp_path, *targets, "--ignore", "usage", limit=64)
        assert differences(found) == [set(), set(), set()]
        # A silent request: 16 tokens there, what fits here.
        found, _ = compare(tmp_path, *targets, "--ignore", "usage", limit=None)
        assert [each >= {"text"} for each in differences(found)] == [True, True, True]
        odd = [{"n": 2}, {"logprobs": True}, {"top_k": 1}, {"response_format": {"type": "json_object"}}]
        rows = send_both(tmp_path, *targets, *({**FIRST, **each} for each in odd))
        assert [row["outcome"] for row in rows] == ["refused_by_a", "refused_by_a", "refused_by_a", "refused_by_b"]
        assert [rows[place]["a"]["status"] for place in (0, 2)] == [400, 422]
        assert rows[3]["b"]["param"] == "response_format"
    assert ask(gateway.url, "ensemble", max_tokens=64).choices[0].finish_reason == "stop"


@pytest.mark.parametrize("gateway", ["From openai_trtllm"], indirect=True)
def test_from_openai_trtllm(gateway: GatewayProcess, tmp_path: Path) -> None:
    with OtherServer(openai_trtllm(gateway), models=None) as there:
        targets = f"{there.url}#ensemble", f"{gateway.url}#ensemble"
        found, status = compare(tmp_path, *targets, "--ignore", "usage", limit=64)
        assert (differences(found), status) == ([set(), set(), set()], 0)
        assert all(fact["a"] is None for fact in found["facts"])
        found, _ = compare(tmp_path, *targets, limit=64)
        assert differences(found) == [{"usage"}] * 3
        odd = [{"stop": "answer"}, {"n": 2}, {"logprobs": True}, {"response_format": {"type": "json_object"}}]
        rows = send_both(tmp_path, *targets, *({**FIRST, **each} for each in odd))
        assert [row["outcome"] for row in rows] == ["refused_by_a", "differs", "differs", "refused_by_b"]
        assert {"choices", "usage"} <= {each["in"] for each in rows[1]["differences"]}
        assert {"logprobs"} <= {each["in"] for each in rows[2]["differences"]}
    assert [model["id"] for model in httpx.get(f"{gateway.url}/v1/models").json()["data"]] == ["ensemble"]
