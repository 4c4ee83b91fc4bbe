"""The cache of token ids: bounded, shared between processes, and never wrong."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import random
from collections.abc import Iterator
from typing import Final

import pytest

from gateway.text.tokens import Tokenizer
from gateway.text.tokens.segments import CacheScope, NoBounds
from gateway.text.tokens.token_cache import TokenCache, create_shared, own_token_cache, size_of
from gateway.text.tokens.token_ids import TokenIds, pack
from tests.tokens.build import CONTROL, byte_level
from tests.tokens.families import mistral_v3

SIZE: Final = 2**20
_FORK = multiprocessing.get_context("fork")


@pytest.fixture
def descriptor() -> Iterator[int]:
    made = create_shared(SIZE)
    yield made
    os.close(made)


def key(number: int) -> bytes:
    return random.Random(number).randbytes(16)


def ids_of(number: int) -> bytes:
    """Packed ids that tell their key."""
    return pack([number] * (number % 700 + 1))


def test_what_was_put_is_found_until_newer_takes_its_place() -> None:
    cache = TokenCache(SIZE)
    for number in range(5000):  # several times what there is room for
        cache.put([(key(number), ids_of(number))])
        assert cache.get(key(number)) == ids_of(number)
    found = [cache.get(key(number)) for number in range(5000)]
    assert all(packed in (None, ids_of(number)) for number, packed in enumerate(found))
    kept = sum(len(packed) for packed in found if packed)
    assert SIZE / 2 < kept <= SIZE
    assert found[-1] is not None
    assert found[0] is None
    assert cache.used == SIZE


def test_what_is_in_use_stays_and_what_is_too_large_is_not_kept() -> None:
    cache = TokenCache(SIZE)
    cache.put([(key(1), pack([1] * (SIZE // 8)))])
    assert (cache.get(key(1)), cache.used) == (None, 0)
    assert own_token_cache(0) is None
    cache.put([(key(0), ids_of(0))])
    for number in range(1, 5000):
        cache.put([(key(number), ids_of(number))])
        if number % 50 == 0:
            assert cache.get(key(0)) == ids_of(0)


def test_an_entry_that_is_not_whole_is_not_found(descriptor: int) -> None:
    cache = TokenCache(SIZE, descriptor)
    packed = pack(list(range(500)))
    cache.put([(key(1), packed)])
    place = os.pread(descriptor, size_of(SIZE), 0).index(packed)
    os.pwrite(descriptor, b"\xff", place + 1000)
    assert cache.get(key(1)) is None


def test_processes_find_what_others_put(descriptor: int) -> None:
    ours = TokenCache(SIZE, descriptor)
    child = _FORK.Process(target=lambda: TokenCache(SIZE, descriptor).put([(ours.hasher(b"a").digest(), b"1234")]))
    child.start()
    child.join(20)
    assert ours.get(ours.hasher(b"a").digest()) == b"1234"


def _write_and_read(descriptor: int, seed: int) -> None:
    cache = TokenCache(SIZE, descriptor)
    ways = random.Random(seed)
    for _ in range(8000):
        number = ways.randrange(3000)
        packed = cache.get(key(number))
        if packed is None:
            cache.put([(key(number), ids_of(number))])
        elif packed != ids_of(number):
            os._exit(1)
    os._exit(0)


def test_processes_that_write_at_a_time_read_nothing_wrong(descriptor: int) -> None:
    children = [_FORK.Process(target=_write_and_read, args=(descriptor, seed)) for seed in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0] * 4


def test_nobody_waits_for_a_writer_that_hangs(descriptor: int) -> None:
    def hang() -> None:
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
        ready.set()
        done.wait(60)

    ready, done = _FORK.Event(), _FORK.Event()
    child = _FORK.Process(target=hang)
    child.start()
    try:
        assert ready.wait(20)
        cache = TokenCache(SIZE, descriptor)
        cache.put([(key(1), b"1234")])
        assert cache.get(key(1)) is None
    finally:
        child.kill()
        child.join(20)
    cache.put([(key(1), b"1234")])  # its lock has ended with it
    assert cache.get(key(1)) == b"1234"


def conversation(turns: int) -> str:
    said = (f"{CONTROL[1]}user\nquestion {turn} " + "the capital of France " * 60 + CONTROL[2] for turn in range(turns))
    return "\n".join(said) + f"\n{CONTROL[1]}assistant\n"


@pytest.mark.parametrize("make", [byte_level, mistral_v3])
def test_a_later_turn_has_the_ids_of_the_whole_and_costs_what_is_new(make: type[Tokenizer]) -> None:
    tokenizer = make()
    cache = TokenCache(SIZE)
    for turn in range(1, 6):
        text = conversation(turn).replace(CONTROL[2], "</s>") if make is mistral_v3 else conversation(turn)
        recall = CacheScope(cache, tokenizer.fingerprint, b"somebody")
        ids = tokenizer.encode_known(text, NoBounds(recall))
        assert ids == tokenizer.encode(text)
        per_turn = len(ids) / turn
        assert len(ids) - recall.found < 1.5 * per_turn


def test_scopes_and_tokenizers_find_nothing_of_each_other() -> None:
    cache = TokenCache(SIZE)
    text = conversation(2)
    byte_level().encode_known(text, NoBounds(CacheScope(cache, byte_level().fingerprint, b"alice", b"")))
    for other in (
        CacheScope(cache, byte_level().fingerprint, b"bob", b""),
        CacheScope(cache, byte_level().fingerprint, b"alice", b"salt"),
        CacheScope(cache, byte_level().fingerprint, b"", b"alice"),
        CacheScope(cache, mistral_v3().fingerprint, b"alice", b""),
        CacheScope(TokenCache(SIZE), byte_level().fingerprint, b"alice", b""),
    ):
        byte_level().encode_known(text, NoBounds(other))
        assert other.found == 0


def test_text_of_control_tokens_is_kept_apart_from_them() -> None:
    cache, tokenizer = TokenCache(SIZE), byte_level()
    text = conversation(1)
    for _ in range(2):
        recall = CacheScope(cache, tokenizer.fingerprint, b"")
        assert tokenizer.literal_known(text, NoBounds(recall)) == tokenizer.encode_literal(text)
        assert tokenizer.encode_known(text, NoBounds(recall)) == tokenizer.encode(text)
    assert recall.found > 0


def test_ids_are_a_sequence_as_a_tuple_is() -> None:
    ids = TokenIds.of([5, 70000, 2])
    assert (len(ids), ids[1], list(ids), ids[1:], ids) == (3, 70000, [5, 70000, 2], (70000, 2), [5, 70000, 2])
    assert hash(ids) == hash((5, 70000, 2))
    assert ids != (5, 70000)
    assert 70000 in ids
