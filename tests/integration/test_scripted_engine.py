"""The scripted engine: answers as recorded, over the same wire contract as the others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kserve import Kserve, answers, infer_request
from tokenizers import Tokenizer

from tests.scripted_engine.replay import ScriptedServer, turn

MODEL = "tensorrt_llm"


@pytest.fixture
def engine(scripted_triton: ScriptedServer) -> Iterator[Kserve]:
    client = Kserve(scripted_triton.grpc_url)
    yield client
    client.close()


@pytest.fixture
def tokenizer(scripted_triton: ScriptedServer) -> Tokenizer:
    return Tokenizer.from_file(str(scripted_triton.model_dir / "tokenizer.json"))


def asked(prompt: list[int], max_tokens: int = 100, **more: object) -> dict[str, object]:
    lengths = {"input_lengths": len(prompt), "request_output_len": max_tokens}
    return {"input_ids": prompt, **lengths, "streaming": True, "return_finish_reason": True, **more}


def test_turns_of_a_conversation_play_in_their_order(
    scripted_triton: ScriptedServer, engine: Kserve, tokenizer: Tokenizer
) -> None:
    call, end = tokenizer.token_to_id("<tool_call>"), tokenizer.token_to_id("<|im_end|>")
    scripted_triton.play(
        turn("weather", text='<tool_call>{"a": 1}<|im_end|> never said'), turn("22 degrees", text="warm"), chunk=[1, 4]
    )
    first = tokenizer.encode("the weather?").ids
    got = engine.stream(MODEL, **asked(first, end_id=end))
    ids = [token for answer in got for token in answer.ids]
    assert ids[0] == call
    assert tokenizer.decode(ids, skip_special_tokens=False) == '<tool_call>{"a": 1}'
    assert [len(answer.ids) for answer in got[:2]] == [1, 4]
    assert [answer.finish_reason for answer in got] == [""] * (len(got) - 1) + ["stop"]
    second = tokenizer.encode("the weather? 22 degrees").ids
    [whole] = engine.stream(MODEL, **asked(second, streaming=False, exclude_input_in_output=True))
    assert tokenizer.decode(whole.ids) == "warm"
    journal = scripted_triton.requests()
    assert [entry["prompt"] for entry in journal] == ["the weather?", "the weather? 22 degrees"]
    assert (journal[0]["end_id"], journal[0]["guide"]) == (end, None)


def test_a_held_answer_ends_by_stop_and_by_cancel(scripted_triton: ScriptedServer, engine: Kserve) -> None:
    scripted_triton.play(turn(text="ab", hold=True))
    call = engine.call(infer_request(MODEL, "held", **asked([5])))
    stream = answers(call)
    assert len([next(stream), next(stream)]) == 2
    engine.stream(MODEL, "held", stop=True, input_ids=[0], input_lengths=1, request_output_len=1)
    last = next(stream)
    assert (last.ids, last.final, last.finish_reason) == ([], True, "cancelled")
    cancelled = engine.call(infer_request(MODEL, "again", **asked([5])))
    next(answers(cancelled))
    cancelled.cancel()
    # Its id is free again once the engine has seen the cancel.
    while engine.stream(MODEL, "again", **asked([5], max_tokens=1))[0].error:
        pass


def test_what_it_cannot_do_is_refused_by_name(scripted_triton: ScriptedServer, engine: Kserve) -> None:
    with scripted_triton.without_guides(turn("known", text="x")):
        [unknown] = engine.stream(MODEL, **asked([5, 6]))
        [logits] = engine.stream(MODEL, **asked([5], return_generation_logits=True))
        [guided] = engine.stream(MODEL, **asked([5], guided_decoding_guide_type="json"))
    assert "no turn of the script" in unknown.error
    assert "logits" in logits.error
    assert "GuidedDecoder is not set up" in guided.error


def test_each_token_has_log_probs_that_follow_from_its_id(scripted_triton: ScriptedServer, engine: Kserve) -> None:
    scripted_triton.play(turn(text="one two three"), chunk=2)
    got = engine.stream(MODEL, **asked([5], return_log_probs=True, num_top_log_probs=2))
    ids = [token for answer in got for token in answer.ids]
    assert got[-1].tensors["output_log_probs"].reshape(-1).tolist() == [-(token % 16 + 1) / 8 for token in ids]
    near = [[abs(token - k) for k in range(2)] for token in got[0].ids]
    assert got[0].tensors["top_log_probs_ids"].tolist() == [near]


def test_a_guide_is_journalled(scripted_triton: ScriptedServer, engine: Kserve) -> None:
    scripted_triton.play(turn(text="{}"))
    engine.stream(MODEL, **asked([5], guided_decoding_guide_type="regex", guided_decoding_guide="a+"))
    assert scripted_triton.requests()[0]["guide"] == {"kind": "regex", "text": "a+"}
