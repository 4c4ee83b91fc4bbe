"""The doubles of the stock LLM API model: what their answers look like, version by version."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.doubles.llmapi.raw_requests import ask
from tests.doubles.llmapi.server import BOS, LlmapiServer
from tests.doubles.llmapi.versions import PERF_OUTPUTS, PREFIX
from tests.integration.kserve import Kserve
from tests.scripted_engine.replay import turn

VERSIONS = ("0.19", "1.0", "1.2", "1.3")
WHOLE_ONLY = VERSIONS[:3]
GREETING = "Hi 世界 😀\n  مرحبا"
END = "<|im_end|>"
LONG = "a" * 100


@pytest.mark.parametrize("version", VERSIONS)
def test_tensors_have_no_batch_dimension(llmapi_triton: LlmapiServer, client: Kserve, version: str) -> None:
    llmapi_triton.play(turn("first", text="one"), turn("second", text="two"))
    [two_texts] = ask(client, llmapi_triton.model(version), ["first", "second"])
    assert two_texts.text == "one"
    [rejected] = ask(client, llmapi_triton.model(version), np.array([[b"first"]], dtype=np.object_))
    assert "unexpected shape for input 'text_input'" in rejected.error


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_that_are_no_text_are_an_error(llmapi_triton: LlmapiServer, client: Kserve, version: str) -> None:
    [rejected] = ask(client, llmapi_triton.model(version), np.array([b"\xff"], dtype=np.object_))
    assert rejected.error.startswith("Error generating request: 'utf-8' codec can't decode")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["top_k_of_ours", PREFIX + "repetition_penalty", "max_tokens_"])
def test_a_tensor_that_no_version_has_is_refused(
    llmapi_triton: LlmapiServer, client: Kserve, version: str, name: str
) -> None:
    [rejected] = ask(client, llmapi_triton.model(version), **{name: 1})
    assert f"unexpected inference input '{name}'" in rejected.error


@pytest.mark.parametrize(
    ("version", "name", "value"),
    [
        ("0.19", PREFIX + "best_of", 1),
        ("1.0", PREFIX + "beam_width", 1),
        ("0.19", "stop", False),
        ("0.19", PREFIX + "return_perf_metrics", True),
        ("1.2", "lora_id", 1),
        ("1.2", "image_url", ["http://localhost/a.png"]),
    ],
)
def test_a_tensor_of_another_version_is_refused(
    llmapi_triton: LlmapiServer, client: Kserve, version: str, name: str, value: object
) -> None:
    [rejected] = ask(client, llmapi_triton.model(version), **{name: value})
    assert f"unexpected inference input '{name}'" in rejected.error


@pytest.mark.parametrize("version", WHOLE_ONLY)
def test_up_to_1_2_a_stream_is_one_response(llmapi_triton: LlmapiServer, client: Kserve, version: str) -> None:
    llmapi_triton.play(turn(text=GREETING + END))
    [only] = ask(client, llmapi_triton.model(version), streaming=True, return_finish_reason=True)
    assert (only.text, only.final, only.finish_reason) == (GREETING, True, "stop")
    assert llmapi_triton.requests()[0]["ignored"] == {"streaming": True}


def test_from_1_3_a_stream_repeats_its_text_in_each_response(llmapi_triton: LlmapiServer, client: Kserve) -> None:
    llmapi_triton.play(turn(text=GREETING + END))
    got = ask(client, llmapi_triton.model("1.3"), streaming=True, return_finish_reason=True, max_tokens=100)
    texts = [answer.text for answer in got]
    assert all(after.startswith(before) for before, after in itertools.pairwise(texts))
    assert len(texts) == len(llmapi_triton.ids(GREETING + END))
    assert any(after == before for before, after in itertools.pairwise(texts))
    assert texts[-1] == GREETING
    assert [answer.final for answer in got] == [False] * (len(got) - 1) + [True]
    assert [answer.finish_reason for answer in got] == ["None"] * (len(got) - 1) + ["stop"]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_prompt_comes_first_unless_it_is_excluded(
    llmapi_triton: LlmapiServer, client: Kserve, version: str
) -> None:
    llmapi_triton.play(turn(text=" you"))
    prompt = "<|im_start|>hello"
    model = llmapi_triton.model(version)
    [echoed] = ask(client, model, prompt, exclude_input_from_output=False)
    [alone] = ask(client, model, prompt)
    streamed = ask(client, model, prompt, streaming=True, exclude_input_from_output=False)[-1]
    assert (echoed.text, alone.text) == ("hello you", " you")
    assert streamed.text == (" you" if version == "1.3" else "hello you")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cut_character_is_lost_streamed_and_whole(llmapi_triton: LlmapiServer, client: Kserve, version: str) -> None:
    llmapi_triton.play(turn(ids=llmapi_triton.ids("Hi 世界 😀")[:-1], finish="length"))
    for streaming in (True, False):
        last = ask(client, llmapi_triton.model(version), streaming=streaming, return_finish_reason=True)[-1]
        assert (last.text, last.finish_reason) == ("Hi 世界 ", "length")


@pytest.mark.parametrize("version", VERSIONS)
def test_only_the_one_end_of_text_ends_and_special_tokens_are_not_shown(
    llmapi_triton: LlmapiServer, client: Kserve, version: str
) -> None:
    llmapi_triton.play(turn(text="<think>a<|eot_id|>b[TOOL_CALLS]c<|im_end|>never said"))
    [answer] = ask(client, llmapi_triton.model(version), return_finish_reason=True)
    assert (answer.text, answer.finish_reason) == ("<think>abc", "stop")
    assert llmapi_triton.requests()[0]["answer"]["ids"] == llmapi_triton.ids("<think>a<|eot_id|>b[TOOL_CALLS]c")


@pytest.mark.parametrize("version", VERSIONS)
def test_prompts_get_special_tokens_from_1_0_and_theirs_are_parsed(
    llmapi_triton: LlmapiServer, client: Kserve, version: str
) -> None:
    llmapi_triton.play(turn(text="x"))
    ask(client, llmapi_triton.model(version), BOS + "hello")
    added = [] if version == "0.19" else llmapi_triton.ids(BOS)
    assert llmapi_triton.requests()[0]["prompt_ids"] == added + llmapi_triton.ids(BOS) + llmapi_triton.ids("hello")


@pytest.mark.parametrize("version", VERSIONS)
def test_what_it_tells_comes_as_text_and_only_when_asked(
    llmapi_triton: LlmapiServer, client: Kserve, version: str
) -> None:
    llmapi_triton.play(turn(text="abc"))
    model = llmapi_triton.model(version)
    [plain] = ask(client, model)
    assert plain.tensors.keys() == {"text_output"}
    told = {"return_finish_reason": True, "return_stop_reason": True, "return_cumulative_logprob": True}
    got = ask(client, model, streaming=True, **told)
    for answer in got:
        assert [answer.tensors[name].tolist() for name in ("stop_reason", "cumulative_logprob")] == [[b"None"]] * 2
    assert got[-1].tensors["finish_reason"].tolist() == [b"stop"]


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_performance_comes_as_text_at_the_end(llmapi_triton: LlmapiServer, client: Kserve, version: str) -> None:
    llmapi_triton.play(turn(text="abc"))
    got = ask(client, llmapi_triton.model(version), streaming=True, return_perf_metrics=True)
    assert [answer.tensors.keys() == {"text_output", *PERF_OUTPUTS} for answer in got] == [False] * (len(got) - 1) + [
        True
    ]
    assert all(tensor.dtype == np.object_ for tensor in got[-1].tensors.values())
    assert int(got[-1].tensors["last_token_time_ns"][0]) > 0


@pytest.mark.parametrize("version", VERSIONS)
def test_the_limit_is_32_where_none_is_given(llmapi_triton: LlmapiServer, client: Kserve, version: str) -> None:
    llmapi_triton.play(turn(text=LONG))
    [answer] = ask(client, llmapi_triton.model(version), return_finish_reason=True)
    assert (answer.text, answer.finish_reason) == ("a" * 32, "length")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_limit_is_cut_to_the_context_in_silence(llmapi_triton: LlmapiServer, client: Kserve, version: str) -> None:
    llmapi_triton.play(turn(text="abc"))
    [answer] = ask(client, llmapi_triton.model(version), "hello", max_tokens=1_000_000)
    [request] = llmapi_triton.requests()
    assert answer.text == "abc"
    assert request["max_tokens"] == 12288 - len(request["prompt_ids"])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("length", "max_tokens", "told"),
    [(5, 0, "max_tokens"), (12290, 5, "default_max_tokens"), (9000, 5, "should not exceed max_num_tokens")],
)
def test_lengths_out_of_range_are_errors_from_1_0(
    llmapi_triton: LlmapiServer, client: Kserve, version: str, length: int, max_tokens: int, told: str
) -> None:
    llmapi_triton.play(turn(text="abc"))
    [answer] = ask(client, llmapi_triton.model(version), "x" * length, max_tokens=max_tokens)
    if version == "0.19":
        assert answer.text.startswith("a")
    else:
        assert answer.error.startswith("Error generating request: ")
        assert told in answer.error
        assert "answer" not in llmapi_triton.requests()[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_stop_strings_make_it_fail(llmapi_triton: LlmapiServer, client: Kserve, version: str) -> None:
    llmapi_triton.play(turn(text="abc"))
    [answer] = ask(client, llmapi_triton.model(version), **{PREFIX + "stop": ["b"]})
    assert answer.error.startswith("Error generating request: TextEncodeInput")


@pytest.mark.parametrize("version", VERSIONS)
def test_an_engine_s_failure_is_told_after_the_data(llmapi_triton: LlmapiServer, client: Kserve, version: str) -> None:
    llmapi_triton.play(turn(text="abcdef", fail_after=2, error="out of blocks"))
    *data, last = ask(client, llmapi_triton.model(version), streaming=True)
    assert last.error == "Error generating request: out of blocks"
    assert [answer.text for answer in data] == (["a", "ab"] if version == "1.3" else [])
    [request] = llmapi_triton.requests()
    assert (request["ended"], request["tokens"], request["error"]) == ("failed", 2, "out of blocks")
