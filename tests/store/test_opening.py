"""From settings to a store: where it is made, and what is said when it cannot be."""

from __future__ import annotations

import contextlib
import logging
import re
import sqlite3
import stat
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError

from gateway.serving.store import Store, StoredDocument, StoreUnavailableError, check_state, open_store
from gateway.settings import ConfigError, StateSettings, load_settings
from gateway.settings.extras import pip_install
from tests.app.harness import Gateway, gateway
from tests.app.scripted import write_tokenizer
from tests.ports import free_port
from tests.store.places import SqlitePlace
from tests.store.redis_server import RedisServer

KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="


@contextlib.asynccontextmanager
async def opened(**settings: Any) -> AsyncIterator[Store | None]:
    store = await open_store(StateSettings(**settings))
    yield store
    if store is not None:
        await store.close()


async def test_the_default_file_is_below_the_state_home_and_nobody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert check_state(StateSettings()) is None
    assert not (tmp_path / "triton-openai-gateway").exists(), "a check makes nothing"
    async with opened() as store:
        await store.put("", "resp_1", b"one")
        folder = tmp_path / "triton-openai-gateway"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
    assert modes == {"state.sqlite": 0o600, "state.sqlite-wal": 0o600, "state.sqlite-shm": 0o600}
    async with opened() as store:
        assert await store.get("", "resp_1") == StoredDocument(b"one", 1)
    assert check_state(StateSettings()) is None


async def test_without_a_place_for_the_default_file_there_is_no_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    async with opened() as store:
        assert store is None
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "responses are not stored" in caplog.text
    assert "responses are not stored" in str(check_state(StateSettings()))


async def test_a_given_file_that_cannot_be_made_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    settings = StateSettings(path=tmp_path / "file" / "state.sqlite")
    for attempt in (lambda: check_state(settings), None):
        with pytest.raises(ConfigError, match=re.escape(f"state.path: {settings.path} cannot be used")):
            attempt() if attempt else await open_store(settings)


def text(path: Path) -> None:
    path.write_text("no database at all, but a text that somebody needs" * 100)


def another_programs(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE documents (x)")


def of_tomorrow(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.executescript("PRAGMA application_id = 0x746F6777; PRAGMA user_version = 3; CREATE TABLE documents (x)")


@pytest.mark.parametrize("make", [text, another_programs, of_tomorrow])
@pytest.mark.parametrize("given", [True, False])
async def test_a_file_that_is_not_a_store_is_named_and_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None], given: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = tmp_path / "triton-openai-gateway" / "state.sqlite"
    path.parent.mkdir()
    make(path)
    before = path.read_bytes()
    settings = StateSettings(path=path if given else None)
    with pytest.raises(ConfigError, match=re.escape(f"state.path: {path} is damaged or not a store")):
        check_state(settings)
    with pytest.raises(ConfigError, match=re.escape(f"state.path: {path} is damaged or not a store")):
        await open_store(settings)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["state.sqlite"]


async def test_no_store_where_the_settings_turn_it_off() -> None:
    async with opened(store="none") as store:
        assert store is None


@pytest.mark.parametrize(
    ("package", "settings", "extra"),
    [
        ("redis", {"store": "redis", "redis_url": "redis://127.0.0.1:1"}, "redis"),
        ("cryptography", {"keys": [KEY]}, "encryption"),
    ],
)
async def test_a_missing_package_is_named_with_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, package: str, settings: dict[str, Any], extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    wanted = re.escape(pip_install(extra))
    with pytest.raises(ConfigError, match=wanted):
        await open_store(StateSettings(**settings))
    with pytest.raises(ConfigError, match=wanted):
        check_state(StateSettings(**settings))


async def test_a_redis_that_refuses_ends_the_start_and_one_that_is_away_does_not(
    own_redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    with own_redis_server.client() as client:
        client.config_set("requirepass", "right")
    url = f"redis://:%s@127.0.0.1:{own_redis_server.port}/0"
    with pytest.raises(ConfigError, match="Redis rejected the connection") as rejected:
        await open_store(StateSettings(store="redis", redis_url=url % "wrong"))
    assert "wrong" not in str(rejected.value)
    async with opened(store="redis", redis_url=url % "right") as store:
        assert await store.put("", "resp_1", b"") == 1
    away = f"redis://:secret@127.0.0.1:{free_port()}/0"
    async with opened(store="redis", redis_url=away) as store:
        with pytest.raises(StoreUnavailableError):
            await store.get("", "resp_1")
    assert "the store cannot be used" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"store": "redis"}, "requires redis_url"),
        ({"redis_url": "redis://redis"}, "requires store: redis"),
        ({"store": "redis", "redis_url": "http://redis"}, "must begin with redis://"),
        ({"keys": ["short"]}, "32 bytes in URL-safe base64"),
        ({"keys": KEY[:-4] + "----"}, "32 bytes in URL-safe base64"),
        ({"max_bytes": 1000}, "greater than or equal to 1048576"),
        ({"max_age_s": 0}, "greater than 0"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        StateSettings(**settings)


def test_a_home_is_meant_wherever_a_path_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "ada"))
    file = tmp_path / "gateway.yaml"
    model = "models: [{name: m, triton: {url: 'triton:8001'}}]\n"
    given = {"GATEWAY_STATE_PATH": "~/state.sqlite", "GATEWAY_STATE_KEYS_FILE": "~/keys"}
    for text, environment in ((model, given), (model + "state: {path: ~/state.sqlite, keys_file: ~/keys}\n", {})):
        file.write_text(text)
        settings = load_settings(file, environment=environment).state
        assert (settings.path, settings.keys_file) == (tmp_path / "ada" / "state.sqlite", tmp_path / "ada" / "keys")
    with pytest.raises(ConfigError, match="home directory does not exist"):
        load_settings(file, environment={"GATEWAY_STATE_PATH": "~nobody-is-called-so/state.sqlite"})


def test_paths_are_relative_to_the_file_that_has_them(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text("models: [{name: m, triton: {url: 'triton:8001'}}]\nstate: {path: a/state.sqlite, keys_file: k}\n")
    settings = load_settings(file, environment={"GATEWAY_STATE_KEYS": f"{KEY},{KEY}"}).state
    assert (settings.path, settings.keys_file) == (tmp_path / "a" / "state.sqlite", tmp_path / "k")
    assert [key.get_secret_value() for key in settings.keys] == [KEY, KEY]
    assert KEY not in repr(settings)
    assert load_settings(file, environment={"GATEWAY_STATE_PATH": "b"}).state.path == Path("b")


async def scraped(running: Gateway) -> dict[tuple[str, ...], float]:
    """The samples of the store, by name and values of labels; without bounds of buckets."""
    text = (await running.client.get("/metrics")).text
    return {
        (sample.name.removeprefix("gateway_store_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("gateway_store_") and "le" not in sample.labels
    }


async def test_calls_size_and_sweeps_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.serving.store.sqlite_store.LOCK_S", 0.01)
    state = {"path": tmp_path / "state.sqlite", "max_bytes": 2**20}
    async with gateway(write_tokenizer(tmp_path), state=state) as running:
        large = {"items": [{"role": "user", "content": "x" * 400_000}]}
        for _ in range(4):
            made = (await running.client.post("/v1/conversations", json=large)).json()["id"]
        assert (await running.client.get(f"/v1/conversations/{made}")).status_code == 200
        with contextlib.closing(sqlite3.connect(tmp_path / "state.sqlite", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert (await running.client.post("/v1/conversations", json={})).status_code == 503
        found = await scraped(running)
        assert found["operations_total", "put", "ok"] == 4
        assert found["operations_total", "put", "unavailable"] == 1
        assert found["operations_total", "get", "ok"] == found["operation_seconds_count", "get"] == 1
        assert found["operation_seconds_sum", "put"] > 0
        assert found["removed_documents_total",] == 2
        assert found["bytes",] == SqlitePlace(tmp_path / "state.sqlite").kept()[0]


async def test_the_file_is_made_at_the_start_and_closed_at_the_end(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "state" / "state.sqlite"
    async with gateway(folder, state={"path": path}) as running:
        assert path.exists()
        assert path.with_name("state.sqlite-wal").exists(), "it is open"
        assert (await running.chat()).status_code == 200
    assert not path.with_name("state.sqlite-wal").exists(), "the last that closes it puts all into the file"


async def test_a_given_file_that_cannot_be_used_ends_the_start(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"state\.path"):
        async with gateway(folder, state={"path": tmp_path / "file" / "state.sqlite"}):
            pass


async def test_a_locked_store_harms_no_request_that_does_without(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    async with gateway(folder, state={"path": path}) as running:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            body = {"model": "scripted", "input": "Hi", "store": False}
            assert (await running.chat()).status_code == 200
            answer = await running.client.post("/v1/responses", json=body)
            assert answer.status_code == 200, answer.text
