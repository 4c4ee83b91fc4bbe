"""Blocks of finished sequences serve later ones, and no answer changes by it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpu_double.kv_cache import BLOCK, BlockPool
from cpu_double.llama import Chunk
from cpu_double.reference_engine import PREFILL_TOKENS, Limits, ReferenceEngine
from tests.engine.alone import drain, greedy_alone
from tests.rings import examples
from wire.request import Request
from wire.response import Perf, Response


def _text(length: int, start: int = 0) -> list[int]:
    return [(11 * (start + place)) % 250 + 5 for place in range(length)]


def _ask(engine: ReferenceEngine, prompt: list[int], count: int = 4, **more: object) -> Response:
    engine.submit(Request("", prompt, count, perf_metrics=True, **more))  # type: ignore[arg-type]
    responses = drain(engine)[""]
    assert [response.perf is not None for response in responses] == [False] * (len(responses) - 1) + [True]
    return responses[-1]


def _cached(response: Response) -> int:
    assert response.perf.cached_tokens is not None
    return response.perf.cached_tokens


@pytest.fixture
def engine(make_engine) -> ReferenceEngine:
    return make_engine(kv_reuse_blocks=32)


def test_whole_blocks_of_a_known_prefix_are_reused(engine) -> None:
    first = _ask(engine, _text(3 * BLOCK + 5))
    again = _ask(engine, _text(3 * BLOCK + 5))
    longer = _ask(engine, [*_text(3 * BLOCK - 1), 7, 8, 9])
    assert [_cached(response) for response in (first, again, longer)] == [0, 3 * BLOCK, 2 * BLOCK]
    assert again.ids == first.ids
    assert [response.perf.blocks for response in (first, again, longer) if response.perf] == [(4, 0), (4, 3), (4, 2)]
    assert engine.stats().kv_blocks_reused == 5


def test_the_last_token_of_a_prompt_is_always_computed_and_answers_are_reused(engine) -> None:
    answer = _ask(engine, _text(2 * BLOCK), count=BLOCK + 1).ids
    assert _cached(_ask(engine, _text(2 * BLOCK))) == BLOCK
    assert _cached(_ask(engine, _text(2 * BLOCK + 1))) == 2 * BLOCK
    assert _cached(_ask(engine, [*_text(2 * BLOCK), *answer, 9, 9])) == 3 * BLOCK


def test_what_is_reused_is_not_computed_and_without_room_nothing_is(engine, make_engine) -> None:
    prompt = _text(4 * PREFILL_TOKENS + 1)
    for steps in (5, 1):
        before = engine.stats().iteration
        _ask(engine, prompt, count=1)
        assert engine.stats().iteration - before == steps
    bare = make_engine()
    assert [_cached(_ask(bare, _text(100))) for _ in range(2)] == [0, 0]


def test_a_block_counts_only_behind_its_own_prefix(engine) -> None:
    _ask(engine, _text(3 * BLOCK))
    assert _cached(_ask(engine, [6, *_text(3 * BLOCK)[1:]])) == 0
    assert _cached(_ask(engine, _text(3 * BLOCK)[BLOCK:])) == 0


def test_requests_that_tell_of_their_prompt_compute_all_of_it(engine) -> None:
    prompt = _text(2 * BLOCK + 3)
    told = _ask(engine, prompt, prompt_log_probs=0)
    assert _cached(_ask(engine, prompt, prompt_log_probs=0)) == _cached(_ask(engine, prompt, context_logits=True)) == 0
    again = _ask(engine, prompt, prompt_log_probs=0)
    assert again.prompt.log_probs == pytest.approx(told.prompt.log_probs, abs=1e-4)
    assert _cached(_ask(engine, prompt)) == 2 * BLOCK  # they leave their blocks to others


def test_a_cancelled_sequence_leaves_what_it_has_computed(engine) -> None:
    prompt = _text(2 * PREFILL_TOKENS)
    engine.submit(Request("a", prompt, 5))
    engine.step()
    engine.cancel("a")
    engine.step()
    assert _cached(_ask(engine, prompt)) == PREFILL_TOKENS


def test_the_times_are_in_order_and_what_never_happened_has_none(engine, make_engine) -> None:
    perf = _ask(engine, _text(10)).perf
    assert 0 < perf.arrival_ns <= perf.first_scheduled_ns <= perf.first_token_ns < perf.last_token_ns
    busy = make_engine(max_batch_size=1)
    busy.submit(Request("a", _text(3), 2))
    busy.submit(Request("b", _text(3), 2, perf_metrics=True))
    busy.cancel("b")
    (last,) = busy.step()
    assert last.perf == Perf(last.perf.arrival_ns)


def test_the_least_recently_used_blocks_go_and_never_before_their_extension(tiny) -> None:
    pool = BlockPool(4)

    def store(text: list[int]) -> None:
        cache = tiny.new_cache()
        tiny.forward([Chunk(text, cache, 1)])
        pool.store(text, cache)

    def known(text: list[int]) -> int:
        return len(pool.match([*text, 5]))

    first, second, third = (_text(2 * BLOCK, start) for start in (0, 60, 120))
    store(first)
    store(second)
    assert (known(first), known(second), len(pool)) == (2, 2, 4)
    assert known(first) == 2  # used again: the second's go first
    store(third[:BLOCK])
    assert (known(second), known(first), known(third[:BLOCK])) == (1, 2, 1)
    store(_text(9 * BLOCK, 180))
    assert (known(_text(9 * BLOCK, 180)), known(first), len(pool)) == (4, 0, 4)


def test_those_answered_in_a_step_that_fails_are_not_forgotten(tiny, make_engine, monkeypatch) -> None:
    def fail() -> None:
        raise MemoryError("no room for a cache")

    engine = make_engine(max_batch_size=1)
    engine.submit(Request("a", _text(3), 9))
    engine.step()
    engine.submit(Request("b", _text(3), 9))
    engine.submit(Request("c", _text(3), 9))
    engine.cancel("a")
    monkeypatch.setattr(tiny, "new_cache", fail)
    with pytest.raises(MemoryError):
        engine.step()
    assert [request.id for request in engine.abort()] == ["a", "b", "c"]


_PROMPTS = st.lists(
    st.tuples(st.sampled_from([0, 60]), st.integers(1, 5 * BLOCK), st.integers(0, 3), st.integers(1, 40)),
    min_size=2,
    max_size=6,
)


@settings(max_examples=examples(30))
@given(prompts=_PROMPTS, room=st.integers(1, 12), together=st.booleans())
def test_reuse_does_not_change_greedy_tokens(tiny, prompts, room, *, together) -> None:
    engine = ReferenceEngine(tiny, Limits(max_seq_len=2048, kv_reuse_blocks=room), normalize_log_probs=False)
    answers: dict[str, list[int]] = {}
    for number, (start, length, tail, count) in enumerate(prompts):
        engine.submit(Request(str(number), _text(length, start) + [9] * tail, count))
        while engine.busy and not (together and number % 2):
            answers |= {response.request.id: response.ids for response in engine.step()}
    answers |= {number: responses[-1].ids for number, responses in drain(engine).items()}
    for number, (start, length, tail, count) in enumerate(prompts):
        expected, clear = greedy_alone(tiny, (*_text(length, start), *[9] * tail), count)
        assert answers[str(number)][:clear] == expected[:clear]
