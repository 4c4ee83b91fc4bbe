"""A gateway with a model and its mirror, before paced Tritons, and the report on it."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.app.scripted import ByteIds, write_tokenizer
from tests.doubles.paced.server import LETTERS, PacedServer
from tests.ports import free_port
from tests.stack import GatewayProcess

FIRST, SECOND = "first", "second"
ANSWER = 12  # tokens


@dataclass
class Mirrored:
    """A gateway whose model has a mirror, the URL of its internal port, and the Triton of the mirror."""

    gateway: GatewayProcess
    internal: str
    second: PacedServer
    client: httpx.Client

    def chat(self, text: str = "?", **more: Any) -> httpx.Response:
        body = {"model": FIRST, "messages": [{"role": "user", "content": text}], "max_tokens": ANSWER, **more}
        return self.client.post("/v1/chat/completions", json=body)

    def report(self) -> dict[str, Any]:
        answer = self.client.get(f"{self.internal}/mirror")
        return answer.json() if answer.status_code == 200 else {}

    def until(self, true: Callable[[dict[str, Any]], object], seconds: float = 40) -> dict[str, Any]:
        """Wait until something is so of the report; returns that."""
        end = time.monotonic() + seconds
        while not (found := self.report()) or not true(found):
            assert time.monotonic() < end, f"{found}\n{self.gateway.log.read_text()[-3000:]}"
            time.sleep(0.05)
        return found

    def copied(self, count: int) -> dict[str, Any]:
        """Wait until so many copies have been judged, and nothing is under way."""
        return self.until(lambda found: found["requests"]["sent"] >= count and not found["mirror"]["running"])

    def mirror_pid(self) -> int:
        """The process id of the copies'."""
        (found,) = [
            pid for pid in self.gateway.children()
            if b"mirror_process" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]  # fmt: skip
        return found


@contextlib.contextmanager
def mirrored(
    folder: Path,
    *,
    workers: int = 1,
    second: dict[str, Any] | None = None,
    first: dict[str, Any] | None = None,
    **mirror: Any,
) -> Iterator[Mirrored]:
    """Run it with further settings of its models and of the mirror."""
    tokenizer = write_tokenizer(folder / "tokenizer")
    letters = ByteIds(tokenizer).of(LETTERS)
    with contextlib.ExitStack() as held:
        tritons = [
            held.enter_context(PacedServer(letters, token_s=0.002, log=folder / f"{name}.log"))
            for name in (FIRST, SECOND)
        ]
        internal = free_port()
        common = {"tokenizer": str(tokenizer), "max_seq_len": 8192, "path": "tokens"}

        def model(name: str, triton: PacedServer, more: dict[str, Any]) -> dict[str, Any]:
            return {"name": name, **common, "triton": {"url": triton.url, "stall_s": 0}, **more}

        settings = {
            "server": {"internal_port": internal, "reload_s": 0},
            "models": [
                model(FIRST, tritons[0], {"mirror": {"to": SECOND, "share": 1.0, **mirror}, **(first or {})}),
                model(SECOND, tritons[1], second or {}),
            ],
        }
        file = folder / "gateway.yaml"
        file.write_text(yaml.safe_dump(settings))
        env = {"GATEWAY_CONFIG": str(file), "GATEWAY_WORKERS": str(workers), "GATEWAY_INTERNAL_PORT": str(internal)}
        gateway = held.enter_context(GatewayProcess(folder / "gateway.log", **env))
        client = held.enter_context(httpx.Client(base_url=gateway.url, verify=False, timeout=60))
        found = Mirrored(gateway, f"http://127.0.0.1:{internal}", tritons[1], client)
        found.until(lambda said: said["mirror"]["processes"] == workers)
        yield found


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    """What a stream said, without what is each answer's own."""
    said = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    return [{key: value for key, value in each.items() if key not in {"id", "created"}} for each in said]
