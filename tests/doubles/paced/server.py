"""A Triton in a process of its own whose engine keeps a pace: so many slots, so long for a prompt, so long for a token.

Beside a real engine it can be told to go wrong: to give no token, to be slow, to answer nonsense. An answer says the
letters of the alphabet over and over, so that a token that is lost, wrong or doubled shows in its text.

Run: ``python -m tests.doubles.paced.server PORT --slots 8 --token-s 0.01``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.doubles.paced.spoiling import spoil
from tests.ports import free_port
from tests.triton.scripted_triton import ScriptedTriton, inputs_of, tokens
from tests.warm_gateways import ForkedGateway, WarmGateways

Mode = Literal[
    "well",
    "silent",
    "frozen",
    "slow",
    "corrupt",
    "spoiled",
    "failing",
    "failing in part",
    "failing but for probes",
    "leaving",
    "garbled",
]
"""Ways of the engine: as it should; new requests get no token; nobody gets a token any more; ten times as slow;
nonsense in place of every tenth token; every tenth response is spoiled; every request fails; every third does; all
but probes do; the models are unloaded, and what runs goes on; health replies cannot be decoded."""

LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SPOILED = 0.1  # of the responses
_LISTENS = "listens\n"


def text_of(count: int) -> str:
    """What an answer of so many tokens says, with a tokenizer in which every byte is a token."""
    return "".join(LETTERS[index % len(LETTERS)] for index in range(count))


class PacedTriton(ScriptedTriton):
    """Answers in the time that an engine with so many slots would take.

    Args:
        slots: requests that run at a time; the others wait for one.
        token_s: seconds from a token to the next.
        prefill_s: seconds from the beginning of a request to its first token, for each hundred tokens of the prompt.
        letters: token ids of ``LETTERS``.
    """

    def __init__(self, port: int, slots: int, token_s: float, prefill_s: float, letters: list[int]) -> None:
        super().__init__(self._pace, port=port)
        self.mode: Mode = "well"
        self._slots = asyncio.Semaphore(slots)
        self._token_s, self._prefill_s = token_s, prefill_s
        self._letters = letters
        self._draw = random.Random(port)
        self._running = self._most = 0
        self._thawed = asyncio.Event()
        self._thawed.set()

    async def ModelReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self.mode == "leaving":
            return service_pb2.ModelReadyResponse(ready=False)
        return await super().ModelReady(request, context)

    async def LogSettings(self, request: Any, _context: Any) -> Any:  # noqa: N802
        """Take a mode from whoever tests, and tell what was asked."""
        if "mode" in request.settings:
            self.mode = request.settings["mode"].string_param
            self.garbled_checks = 10**9 if self.mode == "garbled" else 0
            (self._thawed.clear if self.mode == "frozen" else self._thawed.set)()
        answer = service_pb2.LogSettingsResponse()
        ids = [each.id for each in self.requests]
        requests = [each for each in ids if not each.startswith("probe-")]
        told = {
            "requests": requests, "probes": len(ids) - len(requests), "cancelled": self.cancelled,
            "running": self._running, "most": self._most,
        }  # fmt: skip
        answer.settings["told"].string_param = json.dumps(told)
        return answer

    async def _pace(self, request: Any, context: Any) -> AsyncIterator[Any]:
        mode = self.mode
        if mode == "silent":
            await asyncio.Event().wait()
        fails = {
            "failing": True,
            "failing in part": not len(self.requests) % 3,
            "failing but for probes": not request.id.startswith("probe-"),
        }
        if fails.get(mode):
            yield service_pb2.ModelStreamInferResponse(error_message="the engine is broken")
            return
        async with self._slots:
            self._running += 1
            self._most = max(self._most, self._running)
            try:
                async for message in self._answer(request, context, 10.0 if mode == "slow" else 1.0):
                    yield message
            finally:
                self._running -= 1

    async def _answer(self, request: Any, _context: Any, slowness: float) -> AsyncIterator[Any]:
        inputs = inputs_of(request)
        limit = int.from_bytes(inputs["request_output_len"][2], "little")
        due = time.monotonic() + self._prefill_s * slowness * inputs["input_ids"][1][-1] / 100
        for index in range(limit):
            await asyncio.sleep(due - time.monotonic())
            await self._thawed.wait()
            due += self._token_s * slowness
            if self.mode == "corrupt" and index % 10 == 9:
                yield tokens()  # no token where there must be one
            message = tokens(self._letters[index % len(self._letters)], final=index == limit - 1)
            spoiled = self.mode == "spoiled" and self._draw.random() < _SPOILED
            yield spoil(message, self._draw) if spoiled else message


class PacedServer:
    """A paced Triton in a process of its own, which has the same port after a restart."""

    def __init__(
        self, letters: list[int], *, slots: int = 8, token_s: float = 0.01, prefill_s: float = 0.0, log: Path
    ) -> None:
        self.port = free_port()
        self.url = f"127.0.0.1:{self.port}"
        self._arguments = [str(self.port), f"--slots={slots}", f"--token-s={token_s}", f"--prefill-s={prefill_s}"]
        self._letters = ",".join(map(str, letters))
        self._log = log
        self._said = log.with_suffix(".out")
        self._process: ForkedGateway | None = None

    def __enter__(self) -> PacedServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, and return once it listens."""
        self._said.write_bytes(b"")
        arguments = [*self._arguments, "--letters", self._letters]
        warm = WarmGateways.of_this_process("tests.doubles.paced.server")
        self._process = warm.start(arguments, os.environ, stdout=self._said, stderr=self._log)
        while self._said.read_text() != _LISTENS:
            assert self._process.poll() is None, self._log.read_text()[-2000:]
            time.sleep(0.02)

    def signal(self, number: int) -> None:
        """Send it a signal: SIGSTOP and SIGCONT, for example."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it at once, as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def terminate(self) -> None:
        """End it as Triton ends: what runs is served to its end."""
        self.signal(signal.SIGTERM)
        assert self._process is not None
        self._process.wait(60)
        self.kill()

    def set(self, mode: Mode) -> None:
        """Tell the engine how to go on."""
        self._tell(mode)

    def told(self) -> dict[str, Any]:
        """Tell ids of ``requests`` and of those ``cancelled``, and numbers: of ``probes`` that came, of requests that
        are ``running``, and the ``most`` that were.
        """
        told: dict[str, Any] = json.loads(self._tell(None))
        return told

    def _tell(self, mode: Mode | None) -> str:
        with grpc.insecure_channel(self.url) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            request = service_pb2.LogSettingsRequest()
            if mode is not None:
                request.settings["mode"].string_param = mode
            return str(stub.LogSettings(request, timeout=20, wait_for_ready=True).settings["told"].string_param)


async def _serve(given: argparse.Namespace) -> None:
    letters = [int(each) for each in given.letters.split(",")]
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    server = PacedTriton(given.port, given.slots, given.token_s, given.prefill_s, letters)
    await server.start()
    os.write(1, _LISTENS.encode())
    await stopping.wait()
    await server.stop(grace=30)


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--token-s", type=float, default=0.01)
    parser.add_argument("--prefill-s", type=float, default=0.0)
    parser.add_argument("--letters", required=True)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
