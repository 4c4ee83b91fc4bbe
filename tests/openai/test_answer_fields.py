"""Fields of answers: what ended them, usage so far, padding, tokens by their ids; estimates of engines of text."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import Response
from tokenizers import processors

from gateway.generation import Capability, EngineChunk
from gateway.generation.engine import Estimate
from tests.app.harness import Gateway, gateway, says
from tests.app.scripted import MAX_SEQ_LEN, MODEL, TEMPLATE, TOKENS, ByteIds, Step
from tests.openai.completions_harness import FEATURES, complete, joined, scores
from tests.openai.responses_harness import streamed, whole
from tests.openai.tools_harness import TOOLS, call_text, tools_folder
from tests.tokens.build import byte_level, sentence_piece, write_folder


def _datas(content: bytes) -> list[bytes]:
    """The data of each event but ``[DONE]``."""
    *datas, done = [line for line in content.split(b"\n\n") if line.startswith(b"data: ")]
    assert done == b"data: [DONE]"
    return datas


def _chunks(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(data[6:]) for data in _datas(content)]


async def _both(running: Gateway, **body: Any) -> list[dict[str, Any]]:
    """The choice of a chat and of a completion, each whole, then the last chunk of each streamed."""
    found = []
    for stream in (False, True):
        for answer in (await running.chat(stream=stream, **body), await complete(running, stream=stream, **body)):
            assert answer.status_code == 200, answer.text
            found.append((_chunks(answer.content)[-1] if stream else answer.json())["choices"][0])
    return found


@pytest.mark.parametrize(
    ("body", "reason"),
    [({"stop": ["zz", "lo"]}, "lo"), ({"stop": ["zz"]}, None), ({"max_tokens": 2}, None), ({"stop_ids": "l"}, "l")],
)
async def test_the_stop_that_ended_an_answer_is_named(folder: Path, body: dict[str, Any], reason: str | None) -> None:
    ids = ByteIds(folder)
    if "stop_ids" in body:
        (wanted,) = ids.of(body["stop_ids"])
        body, expected = {"stop_token_ids": [wanted]}, wanted
    else:
        expected = reason  # type: ignore[assignment]
    async with gateway(folder, features=FEATURES) as running:
        for choice in await _both(running, **body):
            assert choice["stop_reason"] == expected
            assert choice["finish_reason"] == ("length" if "max_tokens" in body else "stop")
        answer = await running.chat(stream=True, **body)
        assert [b"stop_reason" in data for data in _datas(answer.content)][:-1].count(True) == 0


async def test_each_choice_names_its_own_stop(folder: Path) -> None:
    def script(request: Any) -> list[EngineChunk]:
        text = "a.b" if request.seed == 1 else "c!d"
        return [*(EngineChunk(ids=[index]) for index in ByteIds(folder).of(text)), EngineChunk(final=True)]

    async with gateway(folder, script) as running:
        choices = (await running.chat(n=2, seed=1, stop=[".", "!"])).json()["choices"]
        assert [choice["stop_reason"] for choice in choices] == [".", "!"]


@pytest.mark.parametrize("served", [False, True])
async def test_padded_chunks_do_not_tell_the_lengths_of_tokens(folder: Path, served: bool) -> None:
    texts = ["a", "some", " longer words", "é\u2028", '"']
    ids = ByteIds(folder)
    script = [*(EngineChunk(ids=ids.of(text)) for text in texts), EngineChunk(final=True)]
    options = {"include_usage": True, "include_obfuscation": True}
    async with gateway(folder, lambda _: script, served=served) as running:
        for answer in (
            await running.chat(stream=True, stream_options=options),
            await complete(running, stream=True, stream_options=options),
        ):
            chunks = _chunks(answer.content)
            assert all(isinstance(chunk["obfuscation"], str) for chunk in chunks)
            with_text = [len(data) for data in _datas(answer.content) if b'"finish_reason":null' in data]
            assert len(with_text) >= len(texts)
            assert max(with_text) - min(with_text) in {0, 64}
            assert {(length + 2) % 64 for length in with_text} == {0}
        assert len({chunk["obfuscation"] for chunk in chunks}) == len(chunks)
        assert joined(chunks)["text"] == "".join(texts)
        for off in ({}, {"include_obfuscation": False}):
            answer = await running.chat(stream=True, stream_options=off)
            assert b"obfuscation" not in answer.content


async def test_log_probs_name_tokens_by_their_ids_where_that_is_wanted(folder: Path) -> None:
    async with gateway(folder, scores(folder, "né"), features=FEATURES) as running:
        first = ByteIds(folder).of("n")[0]
        asked = {"logprobs": True, "top_logprobs": 2, "max_tokens": 3, "seed": 1}
        plain = (await running.chat(**asked)).json()["choices"][0]["logprobs"]["content"]
        named = (await running.chat(**asked, return_tokens_as_token_ids=True)).json()["choices"][0]["logprobs"][
            "content"
        ]
        assert (plain[0]["token"], named[0]["token"]) == ("n", f"token_id:{first}")
        assert [other["token"] for other in named[0]["top_logprobs"]] == ["token_id:0", "token_id:1"]
        assert [entry["bytes"] for entry in named] == [entry["bytes"] for entry in plain]
        answer = await running.chat(**asked, return_tokens_as_token_ids=True, stream=True)
        streamed = [
            entry
            for chunk in _chunks(answer.content)
            for entry in (chunk["choices"][0]["logprobs"] or {"content": []})["content"]
        ]
        assert streamed == named
        body = {"logprobs": 1, "max_tokens": 3, "echo": True, "return_tokens_as_token_ids": True}
        lists = (await complete(running, "n", **body)).json()["choices"][0]["logprobs"]
        assert lists["tokens"][:2] == [f"token_id:{first}"] * 2
        assert set(lists["top_logprobs"][1]) == {"token_id:0", f"token_id:{first}"}
        assert lists["text_offset"][:3] == [0, 1, 2]


async def test_every_chunk_of_calls_has_its_token_ids(tmp_path: Path) -> None:
    text = f"Let me see. {call_text('weather', '{}')}"
    shows = tools_folder(tmp_path)
    async with gateway(shows, says(shows, text), features=FEATURES, max_seq_len=4096) as running:
        answer = await running.chat(tools=TOOLS, return_token_ids=True, stream=True, max_tokens=len(text))
        choices = [choice for chunk in _chunks(answer.content) for choice in chunk["choices"]]
        assert any(choice["delta"].get("tool_calls") for choice in choices)
        assert [index for choice in choices for index in choice["token_ids"]] == ByteIds(shows).of(text)


@pytest.mark.parametrize(
    ("prompt", "body", "shown"),
    [
        ("01234", {}, "34"),
        ("01234", {"truncation_side": "right"}, "01"),
        ("<|begin_of_text|>01234", {}, "<|begin_of_text|>34"),
        ("<|begin_of_text|>01234", {"truncation_side": "right"}, "<|begin_of_text|>01"),
    ],
)
async def test_a_cut_prompt_is_echoed_without_a_bos_that_the_client_did_not_send(
    tmp_path: Path, prompt: str, body: dict[str, Any], shown: str
) -> None:
    own = write_folder(
        tmp_path,
        byte_level(),
        tokenizer_config={"bos_token": "<|begin_of_text|>", "eos_token": "<|im_end|>", "chat_template": TEMPLATE,
                          "tokenizer_class": "LlamaTokenizerFast"},
    )  # fmt: skip
    async with gateway(own, scores(own, "yo"), features=FEATURES) as running:
        answer = await complete(running, prompt, truncate_prompt_tokens=3, echo=True, logprobs=0, seed=0, **body)
        choice = answer.json()["choices"][0]
        assert choice["text"] == shown + "yo"
        lists = choice["logprobs"]
        end = len(shown)
        assert lists["text_offset"][:4] == [0, end - 2, end - 1, end]
        assert lists["tokens"][:3] == ["<|begin_of_text|>", *shown[-2:]]


async def test_a_prompt_is_cut_to_what_fits_beside_the_answer(folder: Path) -> None:
    async with gateway(folder, says(folder, "x")) as running:
        for fields, length in (({"max_tokens": 16}, MAX_SEQ_LEN - 16), ({}, MAX_SEQ_LEN - 1)):
            answer = await complete(running, "n" * 400, truncate_prompt_tokens=-1, **fields)
            assert answer.status_code == 200, answer.text
            assert len(running.engine.requests[-1].prompt.ids) == length
        for fields, param in (
            ({"max_tokens": 16, "truncate_prompt_tokens": MAX_SEQ_LEN - 15}, "truncate_prompt_tokens"),
            ({"max_tokens": MAX_SEQ_LEN, "truncate_prompt_tokens": -1}, "max_tokens"),
        ):
            error = (await complete(running, "n", **fields)).json()["error"]
            assert error["param"] == param
        asked = {"max_completion_tokens": MAX_SEQ_LEN, "truncate_prompt_tokens": -1}
        assert (await running.chat(**asked)).json()["error"]["param"] == "max_completion_tokens"


TEXT = dataclasses.replace(TOKENS, path="ensemble", token_ids=False, prompt_ids=False, logprobs=False, whole=True)
WHOLE = dataclasses.replace(TEXT, streams="whole")
REJECTED = dataclasses.replace(
    TEXT, streams="rejected", capabilities={"stream": Capability("impossible", "set path: tokens.")}
)
USAGE = {"include_usage": True, "continuous_usage_stats": True}


def events(content: bytes) -> list[dict[str, Any]]:
    """The events of a whole stream."""
    *datas, done = [line for line in content.split(b"\n\n") if line.startswith(b"data: ")]
    assert done == b"data: [DONE]"
    return [json.loads(data[6:]) for data in datas]


async def answers(running: Gateway, **body: Any) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Last choice and usage of a chat and of a completion, each whole and streamed."""
    found = []
    for ask in (running.chat, lambda **more: complete(running, **more)):
        answer = (await ask(**body)).json()
        found.append((answer["choices"][0], answer["usage"]))
        chunks = events((await ask(**body, stream=True, stream_options=USAGE)).content)
        found.append((chunks[-2]["choices"][0], chunks[-1]["usage"]))
    return found


@pytest.mark.parametrize(("most", "reason"), [(5, "length"), (6, "stop")])
async def test_what_follows_from_an_estimated_count_says_so(folder: Path, most: int, reason: str) -> None:
    async with gateway(folder, lambda _: [EngineChunk(text="Hello", final=True)], features=TEXT) as running:
        for choice, usage in await answers(running, max_tokens=most):
            assert (choice["finish_reason"], choice["finish_reason_estimated"]) == (reason, True)
            assert usage["completion_tokens"] == 5
            assert usage["completion_tokens_details"]["estimated"] is True
        for choice, usage in await answers(running, max_tokens=most, stop=["l"]):
            assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "l")
            assert "finish_reason_estimated" not in choice
            assert (usage["completion_tokens"], usage["completion_tokens_details"]["estimated"]) == (3, True)


async def test_what_the_engine_counts_is_not_estimated(folder: Path) -> None:
    script: list[Step] = [EngineChunk(text="Hel", output_tokens=2), EngineChunk(text="lo", output_tokens=2, final=True)]
    async with gateway(folder, lambda _: script, features=TEXT) as running:
        for most, reason in ((4, "length"), (5, "stop")):
            for choice, usage in await answers(running, max_tokens=most):
                assert choice["finish_reason"] == reason
                assert "finish_reason_estimated" not in choice
                assert (usage["completion_tokens"], "estimated" in usage["completion_tokens_details"]) == (4, False)


@pytest.mark.parametrize("estimates", [frozenset(), frozenset({"completion_tokens"})])
async def test_the_map_of_parameters_says_how_usage_is_counted(folder: Path, estimates: frozenset[Estimate]) -> None:
    async with gateway(folder, features=dataclasses.replace(TEXT, estimates=estimates)) as running:
        parameters = (await running.client.get(f"/v1/models/{MODEL}")).json()["capabilities"]
        for name in USAGE:
            note = parameters[f"stream_options.{name}"]["note"]
            assert ("by tokenizing the answer again" in note) == bool(estimates)
            assert "from token ids" not in note


@pytest.mark.parametrize(("told", "marks"), [(None, {"estimated": True}), (5, {})])
async def test_responses_tell_estimates_as_well(folder: Path, told: int | None, marks: dict[str, bool]) -> None:
    script: list[Step] = [EngineChunk(text="Hello", output_tokens=told, final=True)]
    async with gateway(folder, lambda _: script, features=TEXT) as running:
        for usage in ((await whole(running)).usage, (await streamed(running)).usage):
            assert usage is not None
            assert usage.output_tokens == 5
            assert (usage.output_tokens_details.model_extra or {}) == marks


def mark(response: Response) -> bool | None:
    return (response.model_extra or {}).get("status_estimated")


@pytest.mark.parametrize(("most", "status"), [(5, "incomplete"), (6, "completed")])
async def test_a_status_that_follows_from_an_estimated_count_says_so(folder: Path, most: int, status: str) -> None:
    async with gateway(folder, lambda _: [EngineChunk(text="Hello", final=True)], features=TEXT) as running:
        for answer in (whole, streamed):
            response = await answer(running, max_output_tokens=most)
            assert (response.status, mark(response)) == (status, True)
            response = await answer(running, max_output_tokens=most, stop=["l"])  # which ends it, whatever the count is
            assert (response.status, mark(response)) == ("completed", None)
            response = await answer(running, prompt_cache_options={"prewarm": True})  # whose status is certain
            assert (response.status, mark(response)) == ("completed", None)
    for told in (4, 5):
        script: list[Step] = [EngineChunk(text="Hello", output_tokens=told, final=True)]
        async with gateway(folder, lambda _, script=script: script, features=TEXT) as running:
            for answer in (whole, streamed):
                response = await answer(running, max_output_tokens=5)
                expected = "incomplete" if told == 5 else "completed"
                assert (response.status, mark(response)) == (expected, None)


async def test_one_estimated_choice_makes_the_sum_an_estimate(folder: Path) -> None:
    def script(request: Any) -> list[Step]:
        return [EngineChunk(text="ab", output_tokens=None if request.seed == 1 else 2, final=True)]

    async with gateway(folder, script, features=TEXT) as running:
        body = (await running.chat(n=2, seed=1)).json()
        assert ["finish_reason_estimated" in choice for choice in body["choices"]] == [True, False]
        assert body["usage"]["completion_tokens_details"]["estimated"] is True


@pytest.mark.parametrize("policy", ["strict", "warn", "ignore"])
async def test_a_stream_that_would_be_damaged_is_refused_whatever_the_policy(folder: Path, policy: str) -> None:
    async with gateway(folder, features=REJECTED, policies={"impossible": policy, "hints": policy}) as running:
        for answer in (await running.chat(stream=True), await complete(running, stream=True)):
            assert answer.status_code == 400
            error = answer.json()["error"]
            assert (error["param"], error["code"]) == ("stream", "unsupported_parameter")
            assert "set path: tokens" in error["message"]
        assert not running.engine.requests
        assert (await running.chat(stream=False)).status_code == 200


async def test_a_stream_of_one_response_has_every_event(folder: Path) -> None:
    chunk = EngineChunk(text="Hello 🙂", output_tokens=3, prompt_tokens=7, final=True)
    async with gateway(folder, lambda _: [chunk], features=WHOLE, served=True) as running:
        answer = await running.chat(stream=True, stream_options={"include_usage": True})
        role, text, last, usage = events(answer.content)
        assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert text["choices"][0]["delta"] == {"content": "Hello 🙂"}
        assert (last["choices"][0]["delta"], last["choices"][0]["finish_reason"]) == ({}, "stop")
        assert (usage["choices"], usage["usage"]["prompt_tokens"], usage["usage"]["completion_tokens"]) == ([], 7, 3)
        assert running.engine.requests[0].params.stream


@pytest.mark.parametrize(("features", "stream"), [(TEXT, False), (WHOLE, False), (WHOLE, True)])
async def test_a_response_that_is_the_whole_answer_has_the_time_of_an_answer(
    folder: Path, features: Any, stream: bool
) -> None:
    """Not that of a first token, which is over while the engine still generates."""
    waiting = asyncio.Event()
    asyncio.get_running_loop().call_later(0.3, waiting.set)
    script: list[Step] = [waiting, EngineChunk(text="Hello", final=True)]
    async with gateway(folder, lambda _: script, features=features, timeouts={"first_token_s": 0.05}) as running:
        assert "Hello" in (await running.chat(stream=stream)).text
    async with gateway(
        folder, lambda _: [asyncio.Event()], features=features, timeouts={"total_s": 0.05, "first_token_s": 0.01}
    ) as running:
        late = await running.chat(stream=stream)
        assert (late.status_code, late.json()["error"]["code"]) == (504, "timeout")


def framed(path: Path, style: str, **config: Any) -> Path:
    """A tokenizer whose own server puts BOS before each text."""
    backend = sentence_piece(style).backend
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    own = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": "x", **config}
    write_folder(path, sentence_piece(style), tokenizer_config=own)
    backend.post_processor = None
    return path


async def test_ids_that_the_engine_would_read_otherwise_are_refused(tmp_path: Path) -> None:
    """After BOS this tokenizer takes "hello" without the space that it puts before the same text alone."""
    own = framed(tmp_path, "mistral", add_bos_token=True)
    framing = dataclasses.replace(TEXT, path="llmapi", adds_special_tokens=True)
    async with gateway(own, lambda _: [EngineChunk(text="a", final=True)], features=framing) as running:
        given = sentence_piece("mistral").encode("<s>hello")
        rejected = await complete(running, prompt=given)
        assert rejected.status_code == 400, rejected.text
        assert rejected.json()["error"]["param"] == "prompt"
        assert not running.engine.requests
        assert (await complete(running, prompt="<s>hello")).status_code == 200
        [asked] = running.engine.requests
        assert list(asked.prompt.ids) != given
        assert asked.prompt.bare_text == "hello"
        cut = await complete(running, prompt="<s>hello hello", truncate_prompt_tokens=2)
        assert (cut.status_code, cut.json()["usage"]["prompt_tokens"]) == (200, 2)
        sent = running.engine.requests[1].prompt
        assert sentence_piece("mistral").encode(sent.bare_text) == list(sent.ids[1:])
        within = await complete(running, prompt="<s>hello 🙂", truncate_prompt_tokens=2)  # within a character
        assert within.status_code == 400, within.text
        assert within.json()["error"]["param"] == "truncate_prompt_tokens"
        assert len(running.engine.requests) == 2


@pytest.mark.parametrize("frames", [True, False])
@pytest.mark.parametrize("style", ["llama2", "mistral", "metaspace", "gemma"])
async def test_ids_of_tokenize_are_a_prompt(tmp_path: Path, style: str, frames: bool) -> None:
    """Tokenizers that put a space before a text do not put it there again behind BOS."""
    own = framed(tmp_path, style)
    features = dataclasses.replace(TEXT, path="llmapi", adds_special_tokens=frames)
    async with gateway(own, lambda _: [EngineChunk(text="a", final=True)], features=features) as running:
        for text in ("hello", " hello", "hello  hello", "é", *["🙂"] * (style != "metaspace")):  # which has no bytes
            told = await running.client.post("/tokenize", json={"prompt": text})
            ids = told.json()["tokens"]
            assert (await complete(running, prompt=ids)).status_code == 200, (text, ids)
            sent = running.engine.requests[-1].prompt
            own_ids = sentence_piece(style).encode(sent.bare_text if frames else sent.text)
            assert ([1] * frames) + own_ids == ids


async def test_bos_can_be_left_out_where_no_server_adds_it(tmp_path: Path) -> None:
    own = framed(tmp_path, "mistral")
    for frames, status in ((False, 200), (True, 400)):
        features = dataclasses.replace(TEXT, path="llmapi", adds_special_tokens=frames)
        async with gateway(own, lambda _: [EngineChunk(text="a", final=True)], features=features) as running:
            answer = await complete(running, prompt="hello", add_special_tokens=False)
            assert answer.status_code == status, answer.text
            if frames:
                assert answer.json()["error"]["param"] == "add_special_tokens"
                continue
            [asked] = running.engine.requests
            assert (asked.prompt.text, list(asked.prompt.ids)) == ("hello", sentence_piece("mistral").encode("hello"))
            assert not asked.prompt.escaped
            assert (await complete(running, prompt="hello")).status_code == 200
            assert running.engine.requests[-1].prompt.ids == tuple(sentence_piece("mistral").encode("<s>hello"))
