"""Requests that join, wait, leave and are cancelled."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpu_double.kv_cache import BLOCK, Floats
from cpu_double.llama import Chunk, Llama
from cpu_double.reference_engine import PREFILL_TOKENS, Limits, ReferenceEngine
from tests.engine.alone import drain, greedy_alone
from tests.rings import examples
from tests.tiny_model import write_tiny_model
from wire.request import RejectedError, Request

PROMPT = [20, 21, 22, 23]


def test_requests_join_between_steps(make_engine, generate) -> None:
    engine = make_engine()
    engine.submit(Request("a", PROMPT, 30, streaming=True))
    before = [response for _ in range(5) for response in engine.step()]
    engine.submit(Request("b", [40, 41], 3, streaming=True))
    together = engine.step()
    assert [response.request.id for response in together] == ["a", "b"]
    rest = drain(engine)
    assert len(before) + 1 + len(rest["a"]) == 30
    assert [r.final for r in rest["b"]] == [False, True]
    assert rest["a"][-1].finish == rest["b"][-1].finish == "length"


def test_a_long_prompt_does_not_stall_those_that_decode(make_engine) -> None:
    engine = make_engine()
    engine.submit(Request("decoding", PROMPT, 200, streaming=True))
    engine.step()
    engine.submit(Request("long", [30] * (10 * PREFILL_TOKENS), 1, streaming=True))
    answered = [response.request.id for response in engine.step()]
    while "long" not in answered:
        assert answered == ["decoding"]
        answered = [response.request.id for response in engine.step()]
    assert answered == ["decoding", "long"]


def _track_work(model: Llama, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The work of each pass from now on: a token costs 1, and as much again for each ``even`` tokens before it."""
    config, works, forward = model.config, [], model.forward
    attention = 2 * config.heads * config.head_dim  # products with the keys and values of one token before
    weights = attention + 2 * config.kv_heads * config.head_dim + 3 * config.ffn  # for each of the hidden values
    even = weights * config.hidden / attention

    def tracked(chunks: Sequence[Chunk]) -> Floats:
        works.append(sum(len(chunk.ids) * (1 + chunk.cache.length / even) for chunk in chunks))
        return forward(chunks)

    monkeypatch.setattr(model, "forward", tracked)
    return works


@pytest.mark.parametrize("done", [0, 3000, 6000])
def test_five_tokens_beside_a_long_prompt_cost_the_same_however_far_that_is(tmp_path, monkeypatch, done) -> None:
    write_tiny_model(tmp_path, max_position_embeddings=8192)
    model = Llama(tmp_path)
    engine = ReferenceEngine(model, Limits(max_seq_len=8192))
    engine.submit(Request("long", [30] * 7600, 1))
    while engine.stats().kv_blocks_used * BLOCK < done:
        engine.step()
    works = _track_work(model, monkeypatch)
    engine.submit(Request("short", PROMPT, 5, streaming=True))
    tokens = [response.request.id for _ in range(5) for response in engine.step()]
    assert tokens == ["short"] * 5  # a step each, as when it is alone
    assert sum(works) < 300
    assert max(works) < 100


def test_long_prompts_share_what_is_computed(make_engine) -> None:
    engine = make_engine()
    engine.submit(Request("first", [30] * 1800, 1))
    engine.step()
    engine.submit(Request("second", [31] * 60, 1))
    answered = [[response.request.id for response in engine.step()] for _ in range(2)]
    assert answered == [[], ["second"]]  # half of each step was its own
    assert list(drain(engine)) == ["first"]


@pytest.mark.parametrize(("length", "answered"), [(1000, ["short"]), (PREFILL_TOKENS - len(PROMPT), ["long", "short"])])
def test_a_short_prompt_overtakes_a_long_one_which_gets_the_rest_of_the_budget(make_engine, length, answered) -> None:
    engine = make_engine()
    engine.submit(Request("long", [30] * length, 1))
    engine.submit(Request("short", PROMPT, 1))
    assert [response.request.id for response in engine.step()] == answered


def test_what_does_not_fit_waits_and_what_exceeds_the_queue_is_refused(make_engine) -> None:
    engine = make_engine(max_batch_size=2, max_queue_size=3)
    for number in range(5):
        engine.submit(Request(f"{number}", PROMPT, 4))
    with pytest.raises(RejectedError, match="Maximum queue size of 3 has been reached") as rejected:
        engine.submit(Request("one too many", PROMPT, 4))
    assert rejected.value.queue_full
    engine.step()
    stats = engine.stats()
    assert (stats.active, stats.waiting, stats.scheduled, stats.max_active) == (2, 3, 2, 2)
    assert sorted(drain(engine)) == ["0", "1", "2", "3", "4"]
    engine.submit(Request("now there is room", PROMPT, 4))


@pytest.mark.parametrize("how", ["by id", "by the client"])
@pytest.mark.parametrize("streaming", [True, False])
def test_cancelling_frees_the_slot_within_two_steps(make_engine, how, *, streaming) -> None:
    engine = make_engine(max_batch_size=1)
    gone: list[bool] = []
    engine.submit(Request("a", PROMPT, 100, streaming=streaming, is_cancelled=lambda: bool(gone)))
    engine.submit(Request("b", PROMPT, 100, streaming=True))
    generated = sum(bool(engine.step()) for _ in range(5)) if streaming else len([engine.step() for _ in range(5)])
    assert generated == 5
    iteration = engine.stats().iteration
    if how == "by id":
        engine.cancel("a")
    else:
        gone.append(True)
    last, first = engine.step()
    assert engine.stats().iteration - iteration <= 2
    assert (last.request.id, last.final, last.finish) == ("a", True, "cancelled")
    assert len(last.ids) == (0 if streaming else 5)
    assert first.request.id == "b"


def test_hundred_cancelled_requests_leave_nothing_behind(make_engine) -> None:
    engine = make_engine(max_batch_size=4, max_queue_size=100)
    for number in range(100):
        engine.submit(Request(f"{number}", PROMPT, 100))
    engine.step()
    for number in range(100):
        engine.cancel(f"{number}")
    assert len(engine.step()) == 100
    stats = engine.stats()
    assert not engine.busy
    assert (stats.active, stats.waiting, stats.scheduled, stats.kv_blocks_used) == (0, 0, 0, 0)
    engine = make_engine(max_batch_size=1)
    engine.submit(Request("a", PROMPT, 3))
    engine.submit(Request("b", PROMPT, 3))
    engine.cancel("b")  # it waits
    responses = engine.step()
    assert [(r.request.id, r.ids, r.finish) for r in responses] == [("b", [], "cancelled")]
    assert engine.stats().waiting == 0


def test_an_id_in_flight_is_taken_and_those_without_one_do_not_clash(make_engine, generate) -> None:
    engine = make_engine()
    engine.cancel("a")  # unknown: harmless
    engine.submit(Request("a", PROMPT, 3))
    with pytest.raises(RejectedError, match="a is already in progress"):
        engine.submit(Request("a", PROMPT, 3))
    engine.submit(Request("", PROMPT, 3))
    engine.submit(Request("", PROMPT, 5))
    assert [len(response.ids) for response in drain(engine)[""]] == [3, 5]
    assert generate(Request("a", PROMPT, 3), engine)[-1].finish == "length"


def test_after_a_failure_everyone_in_flight_is_known_and_the_engine_serves_on(make_engine, generate) -> None:
    engine = make_engine(max_batch_size=1)
    engine.submit(Request("a", PROMPT, 3))
    engine.submit(Request("b", PROMPT, 3))
    engine.step()
    assert [request.id for request in engine.abort()] == ["a", "b"]
    assert not engine.busy
    assert generate(Request("a", PROMPT, 3), engine)[-1].finish == "length"


def test_kv_blocks_are_counted(make_engine) -> None:
    engine = make_engine(max_batch_size=2, max_seq_len=1000)
    engine.submit(Request("a", [30] * 65, 10))
    engine.step()
    engine.step()
    stats = engine.stats()
    assert (stats.kv_blocks_max, stats.kv_blocks_used) == (2 * 32, 3)
    assert stats.context == 0


_PLANS = st.lists(
    st.tuples(
        st.integers(0, 12),  # joins at this step
        st.integers(3, 258),  # first token of the prompt
        st.sampled_from([1, 2, 63, 64, 65, 130]),  # prompt length
        st.integers(1, 20),  # tokens
        st.booleans(),  # cancelled half-way
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=examples(40))
@given(plan=_PLANS)
def test_company_does_not_change_greedy_tokens(tiny, plan) -> None:
    engine = ReferenceEngine(tiny, Limits(max_seq_len=2048, max_batch_size=3), normalize_log_probs=False)
    answers: dict[str, list[int]] = {str(place): [] for place in range(len(plan))}
    prompts = [tuple((first + place * 7) % 256 + 3 for place in range(length)) for _, first, length, _, _ in plan]
    step = 0
    while engine.busy or any(entry[0] >= step for entry in plan):
        for place, (join, _, _, count, cancelled) in enumerate(plan):
            if join == step:
                engine.submit(Request(str(place), list(prompts[place]), count, end_id=2, streaming=True))
            if cancelled and len(answers[str(place)]) > count // 2:
                engine.cancel(str(place))
        for response in engine.step():
            answers[response.request.id] += response.ids
        step += 1
    for place, (_, _, _, count, cancelled) in enumerate(plan):
        expected, clear = greedy_alone(tiny, prompts[place], count, 2)
        got = answers[str(place)]
        assert got[:clear] == expected[: min(clear, len(got))]
        assert cancelled or clear < len(expected) or len(got) == len(expected)
