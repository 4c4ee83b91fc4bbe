from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.serving.fleet.addresses import Addresses


def follower(*entries: str) -> tuple[Addresses, list[list[str]]]:
    told: list[list[str]] = []
    return Addresses(entries, lambda found: told.append(list(found))), told


async def test_a_list_is_told_once_and_without_doubles() -> None:
    source, told = follower("a:1", "b:2", "a:1")
    assert source.fixed
    await source.look()
    await source.look()
    assert told == [["a:1", "b:2"]]


async def test_a_file_is_read_again_and_a_bad_one_keeps_what_there_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "endpoints"
    path.write_text("a:1\n# the second rack\nb:2   # here\n\n")
    source, told = follower(f"file://{path}", "c:3")
    await source.look()
    for bad in ("", "a:1\nnonsense\n", "a:99999\n", "http://a:1\n"):
        path.write_text(bad)
        await source.look()
        await source.look()
    path.unlink()
    await source.look()
    assert told == [["a:1", "b:2", "c:3"]]
    assert len([each for each in caplog.records if each.levelno == logging.WARNING]) == 5
    path.write_text("b:2\n")
    await source.look()
    assert told[1:] == [["b:2", "c:3"]]
    assert source.complaints == {}


async def test_all_addresses_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [["10.0.0.2", "10.0.0.1", "fd00::1"], socket.gaierror("no such name"), [], ["10.0.0.1"]]

    async def look_up(host: str, port: int, **_: Any) -> Sequence[Any]:
        assert (host, port) == ("triton.local", 8001)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return [(0, 0, 0, "", (each, port)) for each in answer]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up, raising=False)
    source, told = follower("dns:///triton.local:8001")
    for _ in range(4):
        await source.look()
    assert told == [["10.0.0.1:8001", "10.0.0.2:8001", "[fd00::1]:8001"], ["10.0.0.1:8001"]]


async def test_a_name_with_thousands_of_addresses_is_cut(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "endpoints"
    path.write_text("".join(f"h{number}:1{os.linesep}" for number in range(5000)))
    source, told = follower(f"file://{path}")
    await source.look()
    assert len(told[0]) == 64
    assert "5000 addresses" in caplog.text
