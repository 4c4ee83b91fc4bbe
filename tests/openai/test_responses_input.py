"""Items of a Responses request as the model is shown them, and chains of stored responses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.app.harness import gateway, rejected, says
from tests.app.scripted import MODEL, write_tokenizer
from tests.conversations.test_three_apis import EXAMPLES, NAMES, TEXTS, answers, of_responses
from tests.openai.responses_harness import post, running, streamed, whole
from tests.openai.tools_harness import CITY, GUIDED, SHOWS_ALL, SHOWS_TOOLS, UNGUIDED, call_text, tool

USER = {"role": "user", "content": "Hi"}


@pytest.fixture(scope="module")
def all_shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("shows-all"), SHOWS_ALL)


def call(call_id: str = "c1", name: str = "ls", arguments: str = '{"a": 1}', **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **more}


def result(call_id: str | None = "c1", output: Any = "done", **more: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output, **more}


def reference(to: str) -> dict[str, Any]:
    return {"type": "item_reference", "id": to}


def reasoning(*texts: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "reasoning_text", "text": text} for text in texts]
    return {"type": "reasoning", "id": "rs_1", "summary": [], "content": content, **more}


def made(call_id: str = "c1", name: str = "ls", arguments: str = '{"a": 1}') -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls: dict[str, Any], content: str | None = None, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls), **more}


def answered(call_id: str = "c1", content: Any = "done") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def said(text: str, **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part], **more}


IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "high"}
LEFT_OUT = "[An image was left out: this model reads text only.]"
FILE_LEFT_OUT = "[A part of the type input_file was left out: this model reads text only.]"

ROWS: dict[str, tuple[Any, ...]] = {
    "a message with a type, an id and a phase": (
        [{"type": "message", "id": "msg_1", "role": "user", "content": "Hi", "phase": "commentary"}],
        [USER]),
    "system and developer": (
        [{"role": "developer", "content": "d"}, {"role": "developer", "content": [{"type": "input_text", "text": "e"}]},
         {"role": "system", "content": "s"}, USER],
        [{"role": "developer", "content": "d"}, {"role": "developer", "content": "e"},
         {"role": "system", "content": "s"}, USER]),
    "an assistant's text as a string": (
        [USER, {"role": "assistant", "content": "So."}, USER],
        [USER, {"role": "assistant", "content": "So."}, USER]),
    "a refusal": (
        [USER, {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}, USER],
        [USER, {"role": "assistant", "content": "No."}, USER]),
    "two answers in a row": (
        [USER, said("a"), said("b"), USER],
        [USER, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}, USER]),
    "a call with id and status": (
        [USER, call(id="fc_1", status="completed"), result(id="fco_1", status="completed")],
        [USER, calling(made()), answered()]),
    "calls at once": (
        [USER, call("c1"), call("c2", "cat", "{}"), result("c2", "two"), result("c1", "one")],
        [USER, calling(made("c1"), made("c2", "cat", "{}")), answered("c2", "two"), answered("c1", "one")]),
    "text behind a call": (
        [USER, call(), said("So."), result()],
        [USER, calling(made(), content="So."), answered()]),
    "reasoning in several parts": (
        [USER, reasoning("a", "b"), said("So."), USER],
        [USER, {"role": "assistant", "content": "So.", "reasoning_content": "a\nb"}, USER]),
    "reasoning that is only a summary, and sealed by another server": (
        [USER, {"type": "reasoning", "summary": [{"type": "summary_text", "text": "**Hm**"}], "content": None,
                "encrypted_content": "b3BhcXVl"}, call(), result()],
        [USER, calling(made(), reasoning_content="**Hm**"), answered()], "input.reasoning.encrypted_content"),
    "reasoning without anything": (
        [USER, {"type": "reasoning", "id": "rs_1", "summary": [], "content": []}, call(), result()],
        [USER, calling(made()), answered()]),
    "reasoning of any shape": (
        [USER, {"type": "reasoning", "id": 7, "summary": "x", "content": [1, {"text": 2}], "encrypted_content": {}},
         call(), result()],
        [USER, calling(made()), answered()], "input.reasoning.encrypted_content"),
    "reasoning that nothing follows": (
        [USER, reasoning("Hm."), USER], [USER, {"role": "assistant", "reasoning_content": "Hm."}, USER]),
    "an output of parts": (
        [USER, call(), result(output=[{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}])],
        [USER, calling(made()), answered(content=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])]),
    "an image in an output": (
        [USER, call(), result(output=[IMAGE])],
        [USER, calling(made()), answered(content=LEFT_OUT)], "input.input_image"),
    "a file in an output": (
        [USER, call(), result(output=[{"type": "input_text", "text": "a"}, {"type": "input_file", "file_id": "f"}])],
        [USER, calling(made()),
         answered(content=[{"type": "text", "text": "a"}, {"type": "text", "text": FILE_LEFT_OUT}])],
        "input.input_file"),
    "an empty output": ([USER, call(), result(output=[])], [USER, calling(made()), answered(content="")]),
    "a call of a namespace": (
        [USER, call(namespace="shell"), result()],
        [USER, calling(made(name="shell__ls")), answered()]),
    "a custom call": (
        [USER, {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": 'say "é"\n'},
         {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"}],
        [USER, calling(made(name="patch", arguments='{"input": "say \\"é\\"\\n"}')), answered()]),
    "arguments that were cut": (
        [USER, call(arguments='{"a": "b'), result()],
        [USER, calling(made(arguments='{"a": "b')), answered()]),
    "arguments that are no object": (
        [USER, call(arguments="[NaN]"), result()],
        [USER, calling(made(arguments="[NaN]")), answered()]),
    "no arguments": ([USER, call(arguments=""), result()], [USER, calling(made(arguments="")), answered()]),
    "a reference to reasoning": (
        [USER, reference("rs_1"), call(), result()],
        [USER, calling(made()), answered()], "input.item_reference"),
    "a reference without a type": (
        [USER, {"id": "rs_1"}, call(), result()],
        [USER, calling(made()), answered()], "input.item_reference"),
    "a reference to what is there": (
        [USER, said("So."), reference("msg_1"), USER],
        [USER, {"role": "assistant", "content": "So."}, USER]),
    "items of other types": (
        [USER, {"type": "web_search_call", "id": "ws_1", "action": {}},
         {"type": "compaction", "encrypted_content": "x"}, {"type": "mcp_call", "id": 7},
         {"type": "local_shell_call_output", "call_id": "z", "output": "x"}, USER],
        [USER, USER], "input.web_search_call, input.compaction, input.mcp_call, input.local_shell_call_output"),
    "outputs without an id go to the calls that wait, by name where they have one": (
        [USER, call("c1"), call("c2", "cat"), call("c3", "cat"), result("c2", "two"),
         {"type": "function_call_output", "name": "cat", "output": "three"},
         {"type": "function_call_output", "output": "one", "call_id": None}],
        [USER, calling(made("c1"), made("c2", "cat"), made("c3", "cat")), answered("c2", "two"),
         answered("c3", "three"), answered("c1", "one")]),
    "an output of another type to a call that is there": (
        [USER, call(), {"type": "shell_call_output", "call_id": "c1", "output": "done"}],
        [USER, calling(made()), answered()]),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
async def test_the_model_is_shown_what_chat_shows(all_shown: Path, row: str) -> None:
    items, messages, *named = ROWS[row]
    async with gateway(all_shown, says(all_shown, "x"), features=UNGUIDED, max_seq_len=4096) as running:
        answer = await post(running, input=items)
        assert answer.status_code == 200, answer.text
        assert answer.headers.get_list("x-ignored-parameters") == named
        shown = running.engine.requests[-1].prompt.text
        chat = await running.chat(messages=messages)
        assert (chat.status_code, running.engine.requests[-1].prompt.text) == (200, shown), chat.text
        counted = await running.client.post("/v1/responses/input_tokens", json={"model": MODEL, "input": items})
        assert counted.json()["input_tokens"] == answer.json()["usage"]["input_tokens"]


@pytest.mark.parametrize(
    ("items", "param", "code"),
    [
        ([USER, result(), call()], "input[1].call_id", "invalid_value"),
        ([USER, {**result("x"), "type": "custom_tool_call_output"}], "input[1].call_id", "invalid_value"),
        ([USER, reference("msg_1")], "input[1].id", "item_not_found"),
        ([USER, {"id": "fc_1"}], "input[1].id", "item_not_found"),
        ([USER, reference("a"), reference("b")], "input[1].id", "item_not_found"),  # which lead to each other
        ([USER, result(None)], "input[1].call_id", "invalid_value"),
        ([USER, call(), result(None, name="no")], "input[2].call_id", "invalid_value"),
        ([USER, {"type": "function_call", "name": "ls"}], "input[1].call_id", "missing_required_parameter"),
        ([USER, call(call_id="")], "input[1].call_id", "empty_string"),
        ([USER, call(arguments={})], "input[1].arguments", "invalid_type"),
        ([USER, call(), result(output={"a": 1})], "input[2].output", "invalid_type"),
        ([USER, call(), result(output=["a"])], "input[2].output[0]", "invalid_type"),
        ([{"type": "compaction", "encrypted_content": "x"}], "input", "empty_array"),
    ],
)
async def test_items_that_make_no_conversation(
    all_shown: Path, items: list[dict[str, Any]], param: str, code: str
) -> None:
    async with gateway(all_shown, features=UNGUIDED, max_seq_len=4096) as running:
        answer = await post(running, input=items)
        error = rejected(answer, 400, param, code)
        assert "messages" not in error["message"]


async def test_a_turn_of_many_calls_is_refused_by_the_item_that_is_too_many(folder: Path) -> None:
    """Reasoning before each call, and tools to look each up in: what takes time for each pair would take minutes."""
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "a" * 500}]}
    calls = [{"type": "function_call", "call_id": f"c{place}", "name": "f", "arguments": "{}"} for place in range(1025)]
    items = [each for call in calls for each in (thought, call)]
    async with gateway(folder) as running:
        rejected = await post(running, input=items)
        assert (rejected.status_code, rejected.json()["error"]["param"]) == (400, "input[2049]")
        assert "at most 1024 tool calls" in rejected.json()["error"]["message"]


def update(**settings: Any) -> dict[str, Any]:
    return {"type": "configuration_update", **settings}


async def test_a_configuration_update_holds_until_the_next(all_shown: Path) -> None:
    """In place of the request's own settings: the form of the answer is enforced."""
    form = {"type": "json_schema", "name": "n", "schema": CITY, "strict": True}
    high, low = update(reasoning={"effort": "high"}), update(reasoning={"effort": "low"}, text={"format": form})
    async with gateway(all_shown, says(all_shown, '{"city": "Rome"}'), features=GUIDED, max_seq_len=4096) as running:
        own = {"reasoning": {"effort": "medium"}, "text": {"format": {"type": "text"}}}
        body = await whole(running, input=[low, USER, high], **own)
        assert body.text is not None
        assert body.text.format is not None
        assert body.text.format.type == "json_schema"
        request = running.engine.requests[-1]
        assert request.params.guide is not None
        assert "city" in request.params.guide.text
        await whole(running, input=[low, USER, update(text={"format": {"type": "text"}})])
        assert running.engine.requests[-1].params.guide is None


async def test_what_an_update_cannot_set_is_named(all_shown: Path) -> None:
    async with gateway(all_shown, features=GUIDED, max_seq_len=4096) as running:
        answer = await post(running, input=[update(text={"format": {"type": "text"}, "verbosity": "low"}), USER])
        assert "input.configuration_update.text.verbosity" in answer.headers["x-ignored-parameters"]
        bad = {"type": "json_schema", "name": "n", "schema": {"type": "strange"}}
        for given, path in (
            ({"text": {"format": bad}}, "input[1].text.format.schema"),
            ({"text": {"format": {"type": "strange"}}}, "input[1].text.format"),
            ({"text": {}}, "input[1].text.format"),
            ({"reasoning": 1}, "input[1].reasoning"),
        ):
            rejected = await post(running, input=[USER, update(**given)])
            assert rejected.status_code == 400
            assert rejected.json()["error"]["param"].startswith(path)


TOOLS: list[dict[str, Any]] = [
    *of_responses([tool(name) for name in NAMES]),
    {"type": "custom", "name": "note"},
    {"type": "namespace", "name": "home", "description": "The house.", "tools": of_responses([tool("open")])},
]
NUMBER = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 2**70}}}  # exact, though kept as JSON
LATER = {
    "type": "additional_tools",
    "role": "developer",
    "tools": [{**each, "parameters": NUMBER} for each in of_responses([tool("later")])],
}


@pytest.fixture(scope="module")
def thinks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("chain"), SHOWS_TOOLS + "{# <think> #}")


@st.composite
def turns(draw: st.DrawFn) -> tuple[str, list[dict[str, Any]] | str, dict[str, Any]]:
    """What the model says, what the user says before it, and further fields."""
    more = st.sampled_from(
        ["", call_text("note", '{"input": "é\\n"}'), call_text("home__open", '{"city": "x"}'), call_text("later", "{}")]
    )
    said = draw(answers()) + draw(more)
    message = st.builds(
        lambda role, text: {"role": role, "content": text}, st.sampled_from(["user", "developer", "assistant"]), TEXTS
    )
    parts = st.builds(
        lambda texts: {
            "type": "message", "role": "user", "content": [{"type": "input_text", "text": text} for text in texts],
        },
        st.lists(TEXTS, max_size=2),
    )  # fmt: skip
    thought = st.builds(
        lambda text: {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}, TEXTS
    )
    items = st.lists(st.one_of(message, parts, thought, st.just(LATER)), max_size=3)
    asked: Any = draw(st.one_of(TEXTS, items))
    fields: dict[str, Any] = draw(st.sampled_from([{}, {"instructions": "Be terse."}, {"max_output_tokens": 30}]))
    return said, asked if isinstance(asked, str) else [*asked, {"role": "user", "content": "Go on."}], fields


def results(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """An answer to each call."""
    return [
        {"type": f"{item['type']}_output", "call_id": item["call_id"], "output": f"done {place}"}
        for place, item in enumerate(output)
        if item["type"] in {"function_call", "custom_tool_call"}
    ]


def test_a_chain_is_the_whole_conversation(thinks: Path) -> None:
    with running(thinks, UNGUIDED) as (engine, asked):

        @EXAMPLES
        @given(conversation=st.lists(turns(), min_size=1, max_size=4), sizes=st.lists(st.integers(1, 9), min_size=1))
        def check(conversation: list[Any], sizes: list[int]) -> None:
            async def ask() -> None:
                previous: str | None = None
                sent: list[Any] = []
                called: list[Any] = []
                for place, (said, given_input, fields) in enumerate(conversation):
                    engine.say(said, sizes)
                    items = [{"role": "user", "content": given_input}] if isinstance(given_input, str) else given_input
                    sent += [*called, *items]
                    way = streamed if place % 2 else whole
                    own = [*called, *items] if called else given_input
                    response = await way(asked, input=own, tools=TOOLS, previous_response_id=previous, **fields)
                    other = await whole(asked, input=sent, tools=TOOLS, store=False, **fields)
                    chained, at_once = (request.prompt.ids for request in asked.engine.requests[-2:])
                    assert chained == at_once
                    assert response.usage == other.usage
                    output = [item.to_dict() for item in response.output]
                    sent += output
                    called, previous = results(output), response.id

            engine.loop.run_until_complete(ask())

        check()
