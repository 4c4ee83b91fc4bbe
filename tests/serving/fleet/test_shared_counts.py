from __future__ import annotations

import os
import subprocess
import sys

from gateway.serving.fleet.shared_counts import SharedCounts, size_of
from gateway.text.shared_memory import create_memory, key_of

A, B = key_of("m", "a:1"), key_of("m", "b:1")
CHILD = """
import sys
from gateway.serving.fleet.shared_counts import SharedCounts
from gateway.text.shared_memory import key_of
counts = SharedCounts(3, 2, int(sys.argv[1]))
counts.join(key_of("m", "b:1"))
counts.join(key_of("m", "a:1"))
counts.add(key_of("m", "b:1"), 5)
counts.add(key_of("m", "a:1"), 2)
counts.out(key_of("m", "b:1"), 60)
"""


def test_processes_see_what_each_counts_until_it_dies() -> None:
    descriptor = create_memory(size_of(3))
    mine, supervisor = SharedCounts(3, 0, descriptor), SharedCounts(3, 0, descriptor)
    mine.join(A)
    mine.add(A, 1)
    subprocess.run([sys.executable, "-c", CHILD, str(descriptor)], pass_fds=[descriptor], check=True)
    known = mine.counts_of([A, B])
    assert (known[A].requests, known[A].out, known[B].requests, known[B].out) == (3, False, 5, True)
    supervisor.clear(2)
    known = mine.counts_of([A, B])
    assert (known[A].requests, known[B].requests, known[B].out) == (1, 0, False)
    os.close(descriptor)


def test_out_ends_with_its_time_and_with_a_word() -> None:
    now = 100.0
    counts = SharedCounts(clock=lambda: now)
    counts.join(A)
    counts.out(A, 5)
    assert counts.counts_of([A])[A].out
    counts.out(A, 0)
    assert not counts.counts_of([A])[A].out
    counts.out(A, 5)
    now = 105.1
    assert not counts.counts_of([A])[A].out


def test_an_endpoint_that_comes_back_before_it_has_left_counts_as_one() -> None:
    """As one whose model is reloaded, or whose address is listed again while its last requests run."""
    counts = SharedCounts()
    counts.join(A)
    counts.add(A, 3)
    counts.out(A, 1e6)
    counts.join(A)
    counts.add(A, 1)
    assert counts.counts_of([A])[A].requests == 4
    counts.add(A, -3)
    counts.out(A, 0)
    counts.leave(A)  # the former one
    known = counts.counts_of([A])[A]
    assert (known.requests, known.out) == (1, False)
    counts.add(A, 1)
    assert counts.counts_of([A])[A].requests == 2
    counts.leave(A)
    assert counts.counts_of([A])[A].requests == 0


def test_places_are_given_again() -> None:
    counts = SharedCounts()
    busy = key_of("m", "busy:1")
    counts.join(busy)
    counts.add(busy, 1)
    for number in range(1000):
        key = key_of("m", f"e{number}:1")
        counts.join(key)
        counts.add(key, 1)
        assert counts.counts_of([key, busy])[key].requests == 1
        counts.leave(key)
        counts.add(key, -1)  # of a request that outlived it
        assert counts.counts_of([key])[key].requests == 0
    assert counts.counts_of([busy])[busy].requests == 1


def test_endpoints_beyond_all_places_count_nothing() -> None:
    counts = SharedCounts()
    keys = [key_of("m", f"e{number}:1") for number in range(300)]
    for key in keys:
        counts.join(key)
        counts.add(key, 2)
    assert sorted(known.requests for known in counts.counts_of(keys).values()) == [0] * 44 + [2] * 256


def test_one_process_at_a_time_tries_what_another_has_found_out() -> None:
    """And when it is found well, all know."""
    now = 100.0
    descriptor = create_memory(size_of(3))
    one, two, three = (SharedCounts(3, row, descriptor, clock=lambda: now) for row in range(3))
    for counts in (one, two, three):
        counts.join(A)
    one.out(A, 5)
    assert two.counts_of([A])[A].out
    now = 105.1
    known = two.counts_of([A])[A]
    assert (known.out, known.doubted, known.tried) == (False, True, False)
    two.tries(A, trying=True)
    assert three.counts_of([A])[A].tried
    now = 106.0
    two.out(A, 0)
    two.tries(A, trying=False)
    for counts in (one, two, three):
        known = counts.counts_of([A])[A]
        assert (known.out, known.doubted, known.healed, known.tried) == (False, False, True, False)
    one.out(A, 10)
    known = two.counts_of([A])[A]
    assert (known.out, known.healed) == (True, False)
    os.close(descriptor)
