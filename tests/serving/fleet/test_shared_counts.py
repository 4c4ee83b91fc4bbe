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
