"""The JavaScript SDKs of OpenAI, Anthropic, Vercel and LangChain: loops of tools and outputs of a type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.npm import UnavailableError, installed
from tests.scripted_engine.replay import turn
from tests.sdks.conftest import BOTH, FIRST_THOUGHT, LAST_THOUGHT, MODEL, SAID, WAYS, Stack
from tests.sdks.javascript import HERE, JavaScriptClient, desk, running

PATHS = {
    "openai": "/v1/responses",
    "openai_agents": "/v1/responses",
    "ai_sdk": "/v1/responses",
    "langchain": "/v1/responses",
    "anthropic": "/v1/messages",
}
CLIENTS = pytest.mark.parametrize("client", PATHS)


@pytest.fixture(scope="module")
def client_named(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], JavaScriptClient]]:
    """Starts clients, each once."""
    try:
        node_modules = installed(HERE / "package.json")
    except UnavailableError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("javascript")
    scripts = desk(folder / "scripts", node_modules)
    started: dict[str, JavaScriptClient] = {}
    with ExitStack() as exits:

        def start(name: str) -> JavaScriptClient:
            if name not in started:
                log = folder / f"{name}.log"
                started[name] = exits.enter_context(running(name, scripts, stack.url, log))
            return started[name]

        yield start


@CLIENTS
@WAYS
@BOTH
def test_a_loop_of_tools(stack: Stack, client_named: Any, client: str, streamed: bool, thought: bool) -> None:
    stack.play_loop(thought=thought)
    told = client_named(client).run("loop", streamed=streamed)
    assert told["output"] == SAID
    stack.check_loop(PATHS[client])
    assert told["used"] == stack.prompt_tokens()
    thoughts = [FIRST_THOUGHT, LAST_THOUGHT] if thought else []
    if client == "ai_sdk" or (client == "langchain" and streamed):  # which show summaries alone
        thoughts = ["" for _ in thoughts] if client == "ai_sdk" else []
    assert told["thoughts"] == thoughts
    assert told.get("calls", [1, 2, 0]) == [1, 2, 0]
    assert told.get("ended", 0) == (3 if streamed and client == "openai_agents" else 0)
    reasons = {"ai_sdk": ["tool-calls", "tool-calls", "stop"], "anthropic": ["tool_use", "tool_use", "end_turn"]}
    assert told.get("reasons") == reasons.get(client)


@WAYS
@BOTH
def test_a_loop_of_the_ai_sdk_that_keeps_nothing(
    stack: Stack, client_named: Any, streamed: bool, thought: bool
) -> None:
    stack.play_loop(thought=thought)
    sealed = ["reasoning.encrypted_content"]
    told = client_named("ai_sdk").run("loop", streamed=streamed, store=False, include=sealed)
    assert told["output"] == SAID
    stack.check_loop("/v1/responses")
    assert stack.shows_thought() == [False, thought, thought]  # sealed, it came back


@CLIENTS
@WAYS
def test_an_output_of_a_type(stack: Stack, client_named: Any, client: str, streamed: bool) -> None:
    stack.play(turn(text='{"city": "Rome"}<|im_end|>'))
    assert client_named(client).run("typed", streamed=streamed) == {"city": "Rome"}
    stack.check_schema(PATHS[client])


@WAYS
@BOTH
def test_anthropic_s_runner_of_tools(stack: Stack, client_named: Any, streamed: bool, thought: bool) -> None:
    stack.play_loop(thought=thought)
    told = client_named("anthropic").run("runner", streamed=streamed)
    assert told["output"] == SAID
    assert told["thoughts"] == ([FIRST_THOUGHT, LAST_THOUGHT] if thought else [])
    stack.check_loop("/v1/messages", before=["POST /v1/messages 400"])


def test_anthropic_s_counting_and_models(stack: Stack, client_named: Any) -> None:
    stack.play(turn(text="Yes.<|im_end|>"))
    told = client_named("anthropic").run("counted")
    assert told["tokens"] == told["used"] == len(stack.generated()[0]["prompt_ids"])
    assert client_named("anthropic").run("models") == [MODEL]
