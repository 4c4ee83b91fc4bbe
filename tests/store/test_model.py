"""Each store against a model of one, by random calls."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from gateway.serving.store import ConflictError, DocumentWrite, StoredDocument, StoreFullError
from gateway.serving.store.interface import DOCUMENT_BYTES, ENTRY_BYTES, StoreBounds
from tests.rings import examples
from tests.store.places import Place, RedisPlace, SqlitePlace
from tests.store.redis_server import RedisServer

_T = TypeVar("_T")
AGE_S = 1000
MOST = 4000
# Few documents and a small store: most writes are about a document that is there, and many make room.
OWNERS = ("", "a")
KEYS = ("resp_1", "resp_2", "conv_1")
DATA = st.sampled_from([b"", bytes(100), bytes(300), bytes(500), bytes(MOST)]) | st.binary(max_size=20)
SHORT = settings(max_examples=12, stateful_step_count=30)
LONG = settings(max_examples=examples(200), stateful_step_count=50)
LOGS = st.lists(st.binary(max_size=9) | st.just(bytes(200)), max_size=4)


@dataclass
class Modelled:
    data: bytes
    version: int
    written: float
    entries: list[bytes] = field(default_factory=list)

    def size(self, owner: str, key: str) -> int:
        own = DOCUMENT_BYTES + len(owner) + len(key) + len(self.data)
        return own + sum(ENTRY_BYTES + len(entry) for entry in self.entries)


class StoreMachine(RuleBasedStateMachine):
    """What is in the store, in the order of its last writes; a subclass says where the store is."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.model: dict[tuple[str, str], Modelled] = {}
        self.now = 0.0

    def make_place(self) -> Place:
        raise NotImplementedError

    @initialize()
    def open(self) -> None:
        self.place = self.make_place()
        self.store = self.place.open(StoreBounds(AGE_S, MOST))

    def run(self, call: Coroutine[Any, Any, _T]) -> _T:
        return self.loop.run_until_complete(call)

    def written(self, owner: str, key: str, document: Modelled) -> None:
        document.written = self.now
        self.model.pop((owner, key), None)
        self.model[owner, key] = document
        while sum(each.size(*at) for at, each in self.model.items()) > MOST:
            del self.model[next(iter(self.model))]

    @rule(
        owner=st.sampled_from(OWNERS),
        key=st.sampled_from(KEYS),
        data=DATA,
        wrong=st.sampled_from([None, 0, 0, 0, 1, -1]),
    )
    def put(self, owner: str, key: str, data: bytes, wrong: int | None) -> None:
        before = self.model.get((owner, key), Modelled(b"", 0, 0))
        expected = None if wrong is None else max(0, before.version + wrong)
        after = Modelled(data, before.version + 1, 0, before.entries)
        if data == bytes(MOST) or (expected in (None, before.version) and after.size(owner, key) > MOST):
            with pytest.raises(StoreFullError):
                self.run(self.store.put(owner, key, data, expected=expected))
        elif expected not in (None, before.version):
            with pytest.raises(ConflictError):
                self.run(self.store.put(owner, key, data, expected=expected))
        else:
            assert self.run(self.store.put(owner, key, data, expected=expected)) == after.version
            self.written(owner, key, after)

    @rule(owner=st.sampled_from(OWNERS), data=st.sampled_from([b"", bytes(400)]), wrong=st.sampled_from([0, 0, 0, 1]))
    def put_two(self, owner: str, data: bytes, wrong: int) -> None:
        keys = KEYS[:2]
        before = [self.model.get((owner, key), Modelled(b"", 0, 0)) for key in keys]
        after = [Modelled(data, each.version + 1, 0, each.entries) for each in before]
        first, second = before[0].version, before[1].version + wrong
        writes = [DocumentWrite(keys[0], data, first), DocumentWrite(keys[1], data, second)]
        sizes = [each.size(owner, key) for key, each in zip(keys, after, strict=True)]
        if sizes[0] > MOST or (not wrong and sizes[1] > MOST):
            with pytest.raises(StoreFullError):
                self.run(self.store.put_all(owner, writes))
        elif wrong:
            with pytest.raises(ConflictError) as raised:
                self.run(self.store.put_all(owner, writes))
            assert raised.value.key == keys[1]
        else:
            assert self.run(self.store.put_all(owner, writes)) == [each.version for each in after]
            for key, each in zip(keys, after, strict=True):  # both are there before room is made
                self.model.pop((owner, key), None)
                self.model[owner, key] = each
                each.written = self.now
            self.written(owner, keys[1], after[1])

    @rule(owner=st.sampled_from(OWNERS), key=st.sampled_from(KEYS), entries=LOGS)
    def append(self, owner: str, key: str, entries: list[bytes]) -> None:
        before = self.model.get((owner, key))
        if before is None:
            with pytest.raises(ConflictError):
                self.run(self.store.append(owner, key, entries))
            return
        after = Modelled(before.data, before.version, 0, [*before.entries, *entries])
        if after.size(owner, key) > MOST:
            with pytest.raises(StoreFullError):
                self.run(self.store.append(owner, key, entries))
            return
        assert self.run(self.store.append(owner, key, entries)) == len(after.entries)
        self.written(owner, key, after)

    @rule(owner=st.sampled_from(OWNERS), key=st.sampled_from(KEYS))
    def delete(self, owner: str, key: str) -> None:
        assert self.run(self.store.delete(owner, key)) == (self.model.pop((owner, key), None) is not None)

    @rule(owner=st.sampled_from(OWNERS), key=st.sampled_from(KEYS), after=st.integers(0, 8), most=st.integers(0, 8))
    def read(self, owner: str, key: str, after: int, most: int) -> None:
        kept = self.model.get((owner, key))
        found = self.run(self.store.entries(owner, key, after, most))
        assert found == (kept.entries[after : after + most] if kept else [])

    @rule(seconds=st.sampled_from([10, 400, AGE_S + 1]))
    def wait(self, seconds: float) -> None:
        self.place.pass_time(seconds)
        self.now += seconds
        self.model = {at: each for at, each in self.model.items() if self.now - each.written <= AGE_S}

    @rule()
    def open_again(self) -> None:
        self.run(self.store.close())
        self.store = self.place.open(StoreBounds(AGE_S, MOST))

    @rule(owner=st.sampled_from(OWNERS), key=st.sampled_from(KEYS))
    def get(self, owner: str, key: str) -> None:
        kept = self.model.get((owner, key))
        assert self.run(self.store.get(owner, key)) == (StoredDocument(kept.data, kept.version) if kept else None)

    def teardown(self) -> None:
        for owner in OWNERS:
            for key in KEYS:
                self.get(owner, key)
        self.put("", "resp_1", b"", None)  # removes what is too old
        sizes = sum(each.size(*at) for at, each in self.model.items())
        assert self.place.kept() == (sizes, sizes)
        self.run(self.store.close())
        self.loop.close()


class OnFile(StoreMachine):
    """On a file of its own."""

    def make_place(self) -> Place:
        self.folder = tempfile.TemporaryDirectory()
        return SqlitePlace(Path(self.folder.name) / "state.sqlite")

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


def on_redis(server: RedisServer, client: redis.Redis) -> type[StoreMachine]:
    """A machine on an emptied Redis."""

    class OnRedis(StoreMachine):
        def make_place(self) -> Place:
            client.flushall()
            return RedisPlace(server.url, client)

    return OnRedis


AMOUNTS = pytest.mark.parametrize("amount", [SHORT, pytest.param(LONG, marks=pytest.mark.long)], ids=["short", "long"])


@AMOUNTS
def test_the_file_does_what_the_model_does(amount: settings) -> None:
    run_state_machine_as_test(OnFile, settings=amount)


@AMOUNTS
def test_redis_does_what_the_model_does(redis_server: RedisServer, amount: settings) -> None:
    with redis_server.client() as client:
        run_state_machine_as_test(on_redis(redis_server, client), settings=amount)
