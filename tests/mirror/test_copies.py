"""What a process of the gateway keeps for a mirror, and sends, is bounded: the rest is dropped and counted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import anyio

from gateway.generation.relay.interface import StreamOutput
from gateway.serving.mirror import copies as copies_module
from gateway.serving.mirror.copies import LONGEST_ANSWER, LONGEST_REQUEST, RequestCopies, is_chosen
from gateway.serving.mirror.link import MirrorFrame, MirrorLink, read_frame
from gateway.settings import ModelSettings
from tests.waiting import until

CHAT = "/v1/chat/completions"
COMMENT = b": waiting\n\n"


def model() -> ModelSettings:
    mirror = {"to": "b", "share": 1.0}
    return ModelSettings.model_validate({"name": "a", "triton": {"url": "t:1"}, "mirror": mirror})


class Other:
    """The other end of a link: it keeps what it reads, or reads nothing."""

    def __init__(self, *, reads: bool) -> None:
        self.reads = reads
        self.frames: list[MirrorFrame] = []
        self.closing = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while self.reads:
                self.frames.append(await read_frame(reader))
        await self.closing.wait()
        writer.close()

    def dropped(self) -> dict[str, int]:
        told = [each for frame in self.frames for each in frame.message.get("dropped", ())]
        return {reason: sum(count for _, why, count in told if why == reason) for _, reason, _ in told}

    async def until_dropped(self) -> dict[str, int]:
        await until(lambda: bool(self.dropped()))
        return self.dropped()


@contextlib.asynccontextmanager
async def linked(folder: Path, *, reads: bool = True) -> AsyncIterator[tuple[RequestCopies, Other]]:
    other, path = Other(reads=reads), folder / "s"
    server = await asyncio.start_unix_server(other.serve, str(path))
    async with MirrorLink(path) as link:
        await until(lambda: link.connected)
        yield RequestCopies(link), other
    other.closing.set()
    server.close()
    await server.wait_closed()


async def stream(copies: RequestCopies, events: list[bytes], *, ending: bool = True) -> list[bytes]:
    """What a client gets of a stream of which a copy is made."""
    output = StreamOutput()

    async def made() -> AsyncGenerator[bytes, None]:
        for event in events:
            yield event
        output.ending = ending

    copy = copies.begin(model(), CHAT, b"{}", "id")
    answer = made()
    return [data async for data in (copy.streamed(answer, output, COMMENT) if copy else answer)]


def test_a_share_is_kept_without_chance_and_in_step_with_no_pattern() -> None:
    for share in (0.05, 0.1, 0.5, 1.0):
        chosen = [number for number in range(10_000) if is_chosen(number, share)]
        assert abs(len(chosen) - share * 10_000) <= 5
        assert abs(sum(number % 2 for number in chosen) - len(chosen) / 2) <= 5
        assert abs(sum(number % 10 == 0 for number in chosen) - len(chosen) / 10) <= 5


async def test_what_is_too_large_is_dropped_and_its_client_gets_all_of_it(tmp_path: Path) -> None:
    piece = b"x" * 2**20
    many = [piece] * ((LONGEST_REQUEST + LONGEST_ANSWER) // len(piece) + 2)
    async with linked(tmp_path) as (copies, other):
        assert await stream(copies, many) == many
        assert copies.held == 0
        assert copies.begin(model(), CHAT, b"x" * (LONGEST_REQUEST + 1), "id") is None
        assert await other.until_dropped() == {"too_large": 2}


async def test_answers_that_run_hold_no_more_than_a_bound_together(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(copies_module, "_MOST_HELD", 2**18)
    async with linked(tmp_path) as (copies, other):
        running = [copies.begin(model(), CHAT, b"{}", str(index)) for index in range(8)]
        for copy in running:
            assert copy is not None
            copy.take(b"x" * 1000)
        assert copies.held <= 2**18
        assert (await other.until_dropped())["no_memory"] == 5
        running.clear()  # given up without an end: a client that left before its answer began
        del copy
        assert copies.held == 0


async def test_an_answer_that_breaks_off_is_no_copy(tmp_path: Path) -> None:
    async with linked(tmp_path) as (copies, other):
        assert await stream(copies, [b"a"], ending=False) == [b"a"]
        assert await other.until_dropped() == {"not_answered": 1}


async def test_nobody_waits_for_a_process_that_does_not_read(tmp_path: Path) -> None:
    answer = [b"x" * 2**20] * 4
    async with linked(tmp_path, reads=False) as (copies, _):
        with anyio.fail_after(20):
            for _ in range(12):
                assert await stream(copies, answer) == answer
        assert copies.link.unsaid["a", "not_taken"] >= 6


async def test_without_a_process_copies_are_counted_as_such(tmp_path: Path) -> None:
    copies = RequestCopies(MirrorLink(tmp_path / "nobody"))
    assert await stream(copies, [b"a"]) == [b"a"]
    assert copies.link.unsaid == {("a", "away"): 1}
    assert await copies.link.ask({"metrics": True}) is None
