"""A stack that answers SDKs: the gateway before a real Triton whose engine plays a model that thinks and calls."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

from tests.clients.programs.pages import MODEL
from tests.lazy_module import LazyModule
from tests.scripted_engine.replay import ScriptedServer, turn
from tests.stack import GatewayProcess

if TYPE_CHECKING:
    import agents
else:
    agents = LazyModule("agents")

collect_ignore = ["test_pydantic_ai.py"] if sys.version_info < (3, 11) else []  # it has no release for 3.10
WAYS = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
BOTH = pytest.mark.parametrize("thought", [False, True], ids=["plain", "thought"])
QUESTION = "Is it warmer than in Paris and Oslo, the weather in Rome?"
DEGREES = {"Rome": 22, "Paris": 15, "Oslo": -3}
SAID = "Rome is the warmest: 22 °C."
FIRST_THOUGHT, LAST_THOUGHT = "Rome first.", "22 is more than 15."
_HERMES = Path(__file__).parents[2] / "chat_templates" / "hermes.jinja"
_ASSISTANT = '{{- "<|im_start|>assistant\\n" + (message["content"] or "") }}'
_REASONING = '{{- "<think>\\n" + message["reasoning_content"] + "\\n</think>\\n\\n" if message["reasoning_content"] }}'


class Place(BaseModel):
    """An output of a type."""

    city: str


def degrees_in(city: str) -> str:
    """What the tool of all loops answers."""
    return f"{DEGREES[city]} degrees"


def get_weather(city: str) -> str:
    """Temperature in a city."""
    return degrees_in(city)


def called(city: str) -> str:
    """A call as the model writes it."""
    return f'<tool_call>\n{{"name": "get_weather", "arguments": {{"city": "{city}"}}}}\n</tool_call>'


def _thought(text: str) -> str:
    return f"<think>\n{text}\n</think>\n\n"


class Stack:
    """The running gateway, what its model says, and what it was asked.

    Attributes:
        url: of the gateway, without ``/v1``.
    """

    def __init__(self, gateway: GatewayProcess, server: ScriptedServer) -> None:
        self.url = gateway.url
        self._gateway, self._server = gateway, server
        self._begin = 0

    def play(self, *turns: dict[str, Any], chunk: int | list[int] = 3) -> None:
        """Replace what the model says, and forget what was asked."""
        self._server.play(*turns, chunk=chunk)
        self._begin = len(self._gateway.log_lines())

    def play_loop(self, *, thought: bool) -> None:
        """One call, then a text with two calls, then the answer; with thoughts before the first and the last."""
        first, last = (_thought(FIRST_THOUGHT), _thought(LAST_THOUGHT)) if thought else ("", "")
        self.play(
            turn("weather in Rome", text=f"{first}{called('Rome')}<|im_end|>"),
            turn("22 degrees", text=f"Two more.\n{called('Paris')}\n{called('Oslo')}<|im_end|>"),
            turn("15 degrees(.|\n)*-3 degrees", text=f"{last}{SAID}<|im_end|>"),
            chunk=[1, 7],
        )

    def asked(self) -> list[str]:
        """Method, path and status of each request to the gateway since the last `play`."""
        records = [json.loads(line) for line in self._gateway.log_lines()[self._begin :]]
        return [f"{each['method']} {each['path']} {each['status']}" for each in records if "path" in each]

    def generated(self) -> list[dict[str, Any]]:
        """What the engine was asked since the last `play`; see `ScriptedServer.requests`."""
        return self._server.requests()

    def check_loop(self, path: str, before: Sequence[str] = ()) -> None:
        """The loop took three requests to one path, and the last one shows all that was called and answered.

        Args:
            path: such as ``/v1/responses``.
            before: what went before them, as `asked` tells it.
        """
        assert self.asked() == [*before, *[f"POST {path} 200"] * 3]
        prompts = [request["prompt"] for request in self.generated()]
        assert len(prompts) == 3
        assert all('"name": "get_weather"' in prompt for prompt in prompts)
        assert [prompt.count("<tool_response>") for prompt in prompts] == [0, 1, 3]
        assert prompts[2].count(called("Rome")) == 1
        assert f"Two more.\n{called('Paris')}\n{called('Oslo')}" in prompts[2]

    def check_schema(self, path: str) -> None:
        """One request to a path, whose answer the engine was told to hold to a schema with a city."""
        assert self.asked() == [f"POST {path} 200"]
        (request,) = self.generated()
        assert '"city"' in request["guide"]["text"]

    def prompt_tokens(self) -> list[int]:
        """How long the engine's prompts were, which usage must tell."""
        return [len(request["prompt_ids"]) for request in self.generated()]

    def shows_thought(self) -> list[bool]:
        """Whether the prompts of a loop hold the first thought."""
        return [f"<think>\n{FIRST_THOUGHT}\n</think>" in request["prompt"] for request in self.generated()]


@pytest.fixture(scope="session")
def stack(scripted_triton: ScriptedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The stack that all SDKs share; a test begins with `Stack.play`."""
    folder = tmp_path_factory.mktemp("sdks")
    hermes = _HERMES.read_text(encoding="utf-8")
    assert _ASSISTANT in hermes
    shown = f'{{{{- "<|im_start|>assistant\\n" }}}}{_REASONING}{{{{- message["content"] or "" }}}}'
    (folder / "template.jinja").write_text(hermes.replace(_ASSISTANT, shown), encoding="utf-8")
    with GatewayProcess.of_model(
        folder / "log",
        MODEL,
        scripted_triton.grpc_url,
        scripted_triton.model_dir,
        8192,
        GATEWAY_TEMPLATE=str(folder / "template.jinja"),
        GATEWAY_FAMILY="qwen3",
        GATEWAY_PATH="tokens",
        GATEWAY_STATE_PATH=str(folder / "state.db"),
        GATEWAY_STATE_KEYS=base64.urlsafe_b64encode(bytes(32)).decode(),
    ) as process:
        yield Stack(process, scripted_triton)


@pytest.fixture
async def config(stack: Stack) -> AsyncIterator[agents.RunConfig]:
    """The settings of OpenAI's Agents SDK by which it asks the stack."""
    async with AsyncOpenAI(
        base_url=f"{stack.url}/v1", api_key="unused", max_retries=0, _strict_response_validation=True
    ) as client:
        yield agents.RunConfig(model_provider=agents.OpenAIProvider(openai_client=client), tracing_disabled=True)
