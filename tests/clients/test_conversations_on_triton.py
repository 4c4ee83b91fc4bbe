"""Conversations, sealed reasoning and compaction by the SDK: two gateways with one store and key, on a real Triton."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography.fernet import Fernet
from openai import BadRequestError, NotFoundError, OpenAI
from openai.types.responses import Response

from tests.clients.test_responses_on_triton import streamed
from tests.openai.tools_harness import SHOWS_ALL
from tests.scripted_engine.replay import ScriptedServer, turn
from tests.stack import GatewayProcess

AGENT = "agent"
THOUGHT = "She is called Ada."
SAID = "Hello Ada."
PLAYED = (  # the last one that the prompt has
    turn("My name is Ada", text=f"<think>\n{THOUGHT}\n</think>\n\n{SAID}<|im_end|>"),
    turn("Who am I", text="You are Ada.<|im_end|>"),
    turn("Summarize the conversation", text="The user is called Ada.<|im_end|>"),
)


@pytest.fixture(scope="module")
def pair(
    scripted_triton: ScriptedServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[GatewayProcess, GatewayProcess]]:
    folder = tmp_path_factory.mktemp("conversations")
    (folder / "template.jinja").write_text(SHOWS_ALL)
    settings = {
        "GATEWAY_MODEL": AGENT,
        "GATEWAY_TRITON_URL": scripted_triton.grpc_url,
        "GATEWAY_TOKENIZER": str(scripted_triton.model_dir),
        "GATEWAY_TEMPLATE": str(folder / "template.jinja"),
        "GATEWAY_FAMILY": "qwen3",  # whose models reason
        "GATEWAY_MAX_SEQ_LEN": "8192",
        "GATEWAY_STATE_PATH": str(folder / "state.sqlite"),
        "GATEWAY_STATE_KEYS": Fernet.generate_key().decode(),
        "GATEWAY_API_KEYS": "ada,bob",
    }
    with (
        GatewayProcess(folder / "one", **settings) as one,
        GatewayProcess(folder / "two", **settings) as two,
    ):
        yield one, two


@pytest.fixture
def clients(
    pair: tuple[GatewayProcess, GatewayProcess], scripted_triton: ScriptedServer
) -> Iterator[tuple[OpenAI, OpenAI]]:
    scripted_triton.play(*PLAYED, chunk=[1, 5])
    with contextlib.ExitStack() as stack:
        one, two = (
            stack.enter_context(
                OpenAI(
                    base_url=f"{each.url}/v1", api_key="ada", max_retries=0, timeout=60,
                    _strict_response_validation=True,
                )
            )
            for each in pair
        )  # fmt: skip
        yield one, two


def prompt(scripted_triton: ScriptedServer) -> str:
    shown: str = scripted_triton.requests()[-1]["prompt"]
    return shown


@pytest.mark.parametrize("way", ["whole", "streamed"])
def test_a_conversation_over_two_gateways(
    clients: tuple[OpenAI, OpenAI], scripted_triton: ScriptedServer, way: str
) -> None:
    one, two = clients

    def ask(sdk: OpenAI, **body: Any) -> Response:
        return sdk.responses.create(model=AGENT, **body) if way == "whole" else streamed(sdk, model=AGENT, **body)

    made = one.conversations.create(metadata={"topic": "names"}, items=[{"role": "system", "content": "Be kind."}])
    assert two.conversations.retrieve(made.id) == made
    first = ask(one, conversation=made.id, input="My name is Ada.")
    assert (first.output_text, first.conversation and first.conversation.id) == (SAID, made.id)
    second = ask(two, conversation=made.id, input="Who am I?")
    assert second.output_text == "You are Ada."
    for part in ("Be kind.", "My name is Ada.", THOUGHT, SAID, "Who am I?"):
        assert part in prompt(scripted_triton)
    listed = list(two.conversations.items.list(made.id, limit=2, order="asc"))  # three pages
    assert [item.type for item in listed] == ["message", "message", "reasoning", "message", "message", "message"]
    assert {item.id for item in [*first.output, *second.output]} <= {item.id for item in listed}
    assert one.conversations.items.retrieve(listed[-1].id or "", conversation_id=made.id) == listed[-1]
    one.conversations.items.delete(listed[-1].id or "", conversation_id=made.id)
    added = one.conversations.items.create(made.id, items=[{"role": "user", "content": "Bye."}])
    assert [item.type for item in added.data] == ["message"]
    assert one.conversations.update(made.id, metadata={"topic": "ends"}).metadata == {"topic": "ends"}
    assert len(list(two.conversations.items.list(made.id))) == 6
    with pytest.raises(NotFoundError):
        one.with_options(api_key="bob").conversations.retrieve(made.id)
    with pytest.raises(NotFoundError):
        one.with_options(api_key="bob").responses.create(model=AGENT, conversation=made.id, input="Who am I?")
    assert two.conversations.delete(made.id).deleted
    with pytest.raises(NotFoundError):
        one.conversations.retrieve(made.id)


def test_many_writers_on_two_gateways(clients: tuple[OpenAI, OpenAI]) -> None:
    made = clients[0].conversations.create()

    def write(sdk: OpenAI, number: int) -> None:
        for part in range(5):
            sdk.conversations.items.create(made.id, items=[{"role": "user", "content": f"{number}.{part}"}])

    threads = [threading.Thread(target=write, args=(clients[number % 2], number)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    items: list[Any] = list(clients[1].conversations.items.list(made.id, limit=100))
    texts = {item.content[0].text for item in items}
    assert texts == {f"{number}.{part}" for number in range(6) for part in range(5)}


@pytest.mark.parametrize("way", ["whole", "streamed"])
def test_sealed_reasoning_through_a_second_gateway(
    clients: tuple[OpenAI, OpenAI], scripted_triton: ScriptedServer, way: str
) -> None:
    one, two = clients
    body: dict[str, Any] = {"store": False, "include": ["reasoning.encrypted_content"], "model": AGENT}
    items: list[Any] = [{"role": "user", "content": "My name is Ada."}]
    first = one.responses.create(**body, input=items) if way == "whole" else streamed(one, **body, input=items)
    output: list[Any] = [item.to_dict() for item in first.output]
    assert output[0]["encrypted_content"]
    output[0]["content"] = None  # as clients do that keep no reasoning
    items += [*output, {"role": "user", "content": "Who am I?"}]
    answer = two.responses.with_raw_response.create(**body, input=items)
    assert answer.parse().output_text == "You are Ada."
    assert "x-ignored-parameters" not in answer.headers
    assert THOUGHT in prompt(scripted_triton)
    others = two.with_options(api_key="bob").responses.with_raw_response.create(**body, input=items)
    assert others.headers["x-ignored-parameters"] == "input.reasoning.encrypted_content"
    assert THOUGHT not in prompt(scripted_triton)


def test_items_of_stored_responses(clients: tuple[OpenAI, OpenAI], scripted_triton: ScriptedServer) -> None:
    first = clients[0].responses.create(model=AGENT, input="My name is Ada.")
    items: list[Any] = [{"role": "user", "content": "My name is Ada."}]
    items += [{"type": "item_reference", "id": item.id} for item in first.output]
    items.append({"role": "user", "content": "Who am I?"})
    assert clients[1].responses.create(model=AGENT, input=items).output_text == "You are Ada."
    assert THOUGHT in prompt(scripted_triton)
    assert SAID in prompt(scripted_triton)
    with pytest.raises(BadRequestError) as rejected:
        clients[1].with_options(api_key="bob").responses.create(model=AGENT, input=items)
    assert rejected.value.code == "item_not_found"


def test_compaction(
    clients: tuple[OpenAI, OpenAI], pair: tuple[GatewayProcess, GatewayProcess], scripted_triton: ScriptedServer
) -> None:
    first = clients[0].responses.create(model=AGENT, input="My name is Ada.")
    # Not strict: the SDK's own type of the output has no messages of users, which OpenAI's documentation has there.
    with OpenAI(base_url=f"{pair[0].url}/v1", api_key="ada", max_retries=0, timeout=60) as sdk:
        compacted = sdk.responses.compact(model=AGENT, previous_response_id=first.id)
    assert [item.type for item in compacted.output] == ["message", "compaction"]
    assert compacted.usage.output_tokens > 0
    assert THOUGHT in prompt(scripted_triton)
    items: list[Any] = [item.to_dict(warnings=False) for item in compacted.output]  # which warn of those messages
    items.append({"role": "user", "content": "Who am I?"})
    assert clients[1].responses.create(model=AGENT, input=items).output_text == "You are Ada."
    assert "The user is called Ada." in prompt(scripted_triton)
    assert SAID not in prompt(scripted_triton)
