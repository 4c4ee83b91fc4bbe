from __future__ import annotations

import random
from collections import Counter

import pytest

from gateway.serving.fleet.policies import Candidate, LeastInFlight, Policy, PowerOfTwo, PrefixAffinity
from gateway.serving.fleet.shared_counts import SharedCounts

ENDPOINTS = (11, 22, 33, 44)


@pytest.mark.parametrize("policy", [LeastInFlight(), PowerOfTwo()])
def test_load_is_spread_evenly(policy: Policy) -> None:
    loads = Counter(dict.fromkeys(ENDPOINTS, 0))
    for _ in range(400):
        loads[policy.choose([Candidate(key, loads[key]) for key in ENDPOINTS], (), None).key] += 1
    assert max(loads.values()) - min(loads.values()) <= (1 if isinstance(policy, LeastInFlight) else 12)


@pytest.mark.parametrize("policy", [LeastInFlight(), PowerOfTwo()])
def test_one_that_starts_slowly_takes_its_part(policy: Policy) -> None:
    loads = Counter({1: 0, 2: 0})
    for _ in range(110):
        loads[policy.choose([Candidate(1, loads[1]), Candidate(2, loads[2], 0.1)], (), None).key] += 1
    assert 5 <= loads[2] <= 15


def test_one_that_starts_slowly_is_not_filled_by_its_conversations() -> None:
    policy = PrefixAffinity(SharedCounts())
    loads = Counter({11: 0, 22: 0})
    for number in range(100):
        candidates = [Candidate(11, loads[11]), Candidate(22, loads[22], 0.1)]
        loads[policy.choose(candidates, (), f"conversation {number}").key] += 1
    assert 1 <= loads[22] <= 15


class Trace:
    """Conversations of several turns that begin with one of two system prompts, and are asked side by side."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        shared = [self.draw.randrange(50_000) for _ in range(20_000)]
        self.conversations = [
            [*(shared if number < 400 else []), *(self.draw.randrange(50_000) for _ in range(300))]
            for number in range(500)
        ]
        turns = [number for number in range(500) for _ in range(self.draw.randint(4, 8))]
        self.draw.shuffle(turns)
        self.turns = turns

    def grow(self, conversation: int) -> None:
        """The answer, and the next question."""
        self.conversations[conversation] += [self.draw.randrange(50_000) for _ in range(200)]


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.long), 4])
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_turns_of_a_conversation_meet_their_endpoint(workers: int, seed: int) -> None:
    """64 in flight over four endpoints; processes share the loads and what they know of prefixes."""
    trace = Trace(seed)
    counts = SharedCounts()
    policies = [PrefixAffinity(counts) for _ in range(workers)]
    loads: Counter[int] = Counter(dict.fromkeys(ENDPOINTS, 0))
    running: list[int] = []
    homes: dict[int, int] = {}
    met = total = 0
    taken: Counter[int] = Counter()
    peaks: list[float] = []
    for conversation in trace.turns:
        if len(running) == 64:
            loads[running.pop(trace.draw.randrange(64))] -= 1
        candidates = [Candidate(key, loads[key]) for key in ENDPOINTS]
        policy = trace.draw.choice(policies)
        chosen = policy.choose(candidates, trace.conversations[conversation], f"conversation-{conversation}").key
        loads[chosen] += 1
        running.append(chosen)
        taken[chosen] += 1
        if len(running) == 64:
            peaks.append(max(loads.values()) / (64 / 4))
        if conversation in homes:
            total += 1
            met += homes[conversation] == chosen
        homes[conversation] = chosen
        trace.grow(conversation)
    assert met / total >= 0.85
    assert max(taken.values()) / (len(trace.turns) / 4) <= 1.25
    assert max(peaks) <= 1.25


def test_without_a_name_the_prompt_s_beginning_decides() -> None:
    policy = PrefixAffinity(SharedCounts())
    free = [Candidate(key, 0) for key in ENDPOINTS]
    homes = {tuple(ids): policy.choose(free, ids, None).key for ids in ([n] * 40 for n in range(100))}
    assert len(set(homes.values())) == 4
    assert all(policy.choose(free, ids, None).key == home for ids, home in homes.items())


def test_what_is_known_is_bounded_and_never_wrong_for_long() -> None:
    counts = SharedCounts()
    for block in range(1 << 18):
        counts.learn(block * 7919 + 1, 1)
    assert sum(counts.endpoints_with_prefix(block * 7919 + 1) for block in range(1 << 18)) <= 1 << 16
