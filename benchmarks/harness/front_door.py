"""The cost of what stands before the engines: several Tritons, fair shares, keys with limits, TLS, traces."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from .collector import collecting
from .load import Load, Watched, run
from .processes import BUILT, ROOT, Child, SyntheticTriton, free_port
from .relay import Tell
from .subjects import KEY, PROMPT, Subject, body, launch, start, transports, write_repository
from .tls_relay import write_certificates

OFF = "off: one Triton, a flat key"
_NAMED = "sk-named-key-of-the-benchmark"
_ISSUER = "https://issuer.example"
_LIMITS = {"requests_per_minute": 10**6, "tokens_per_minute": 10**9, "in_flight": 10**4, "max_tokens": 10**4}
_PACED = Load("64x20ms", 64, 20_000, 150)
_SLICE = Load("requests", 8, 0, 1, rounds=40)
_TURNS = 6  # of slices in each round


@dataclass(frozen=True)
class Door:
    """A running gateway with some of it switched on.

    Attributes:
        gateway: that is asked.
        key: by which.
    """

    gateway: Watched
    key: str = KEY


@dataclass(frozen=True)
class Cost:
    """Of one door in one round.

    Attributes:
        token_us: CPU of a token of long answers.
        request_ms: CPU of a request of one token, of each slice.
    """

    token_us: float
    request_ms: Sequence[float]


def measure(rounds: int, tell: Tell) -> dict[str, Any]:
    """CPU per token and per request of each door, all of which are kept up and take turns.

    Raises:
        BenchmarkError: one did not start, or did not answer.
    """
    with ExitStack() as stack:
        repository = write_repository()
        tritons = [stack.enter_context(SyntheticTriton(repository)) for _ in range(2)]
        doors = _doors(stack, tritons)
        runs: list[dict[str, Cost]] = []
        _slices(doors, tritons, 0)  # a warm-up
        for number in range(rounds):
            names = _rotated(list(doors), number)
            _pace(tritons, _PACED.delay_us)
            tokens = {name: _cpu_us(doors[name], _PACED, body(_PACED.tokens)) for name in names}
            slices = [_slices(doors, tritons, number + turn) for turn in range(_TURNS)]
            runs.append({name: Cost(tokens[name], [each[name] for each in slices]) for name in doors})
            tell(f"run {number + 1} of {rounds}: {summary(runs[-1:])}")
    return {"rounds": rounds, "tokens": _PACED.tokens, "slices": rounds * _TURNS, "rows": summary(runs)}


def summary(runs: Sequence[Mapping[str, Cost]]) -> dict[str, Any]:
    """Medians over the rounds; what is put in relation was measured in the same round or turn."""
    rows = {}
    for name in runs[0]:
        pairs = [
            (one, off) for each in runs for one, off in zip(each[name].request_ms, each[OFF].request_ms, strict=True)
        ]
        rows[name] = {
            "token_us": round(statistics.median(each[name].token_us for each in runs), 1),
            "factor": round(statistics.median(each[name].token_us / each[OFF].token_us for each in runs), 2),
            "request_ms": round(statistics.median(one for one, _ in pairs), 2),
            "more_ms": round(statistics.median(one - off for one, off in pairs), 2),
        }
    return rows


def _doors(stack: ExitStack, tritons: Sequence[SyntheticTriton]) -> dict[str, Door]:
    """Start all of them."""
    subject = Subject("gateway", "tokens", transports()[0])
    fleet = {
        "triton": {"endpoints": [f"127.0.0.1:{each.port}" for each in tritons], "model": "ensemble"},
        "admission": {"max_running": 4000},
    }

    def door(label: str, key: str = KEY, **settings: Any) -> Door:
        return Door(stack.enter_context(start(subject, tritons[0], label=label, **settings)), key)

    def front(label: str, key: str, **auth: Any) -> Door:
        return door(label, key, model=fleet, sections={"auth": auth})

    named = {"name": "bench", "hash": f"sha256:{hashlib.sha256(_NAMED.encode()).hexdigest()}", "limits": _LIMITS}
    collector = stack.enter_context(collecting())
    provider, token = _provider()
    traces = {"traces": True, "endpoint": collector, "sample_ratio": 0.1}
    doors = {
        OFF: door("off"),
        "two Tritons": door("fleet", model={"triton": fleet["triton"]}),
        "two Tritons, fair shares": door("shares", model=fleet),
        "two Tritons, fair shares, a named key with limits": front("front", _NAMED, keys=[named]),
        "the same, with a JWT in place of the key": front("jwt", token, jwt=provider),
        "TLS before clients and towards Triton": Door(stack.enter_context(_by_tls(subject, tritons[0]))),
        "traces, 10 % sampled": door("traced", sections={"telemetry": traces}),
    }
    if (redis := _redis(stack)) is not None:
        doors["the same, limits in Redis"] = front("redis", _NAMED, keys=[named], redis_url=redis)
    return doors


def _provider() -> tuple[dict[str, Any], str]:
    """Settings of an identity provider with one key, and a token of it."""
    private = ec.generate_private_key(ec.SECP256R1())
    public = json.loads(ECAlgorithm.to_jwk(private.public_key()))
    file = BUILT / "jwks.json"
    file.write_text(json.dumps({"keys": [{**public, "kid": "one", "use": "sig"}]}))
    now = int(time.time())
    claims = {"iss": _ISSUER, "aud": "gateway", "sub": "bench", "iat": now, "exp": now + 36_000}
    token = jwt.encode(claims, private, algorithm="ES256", headers={"kid": "one"})
    return {"issuer": _ISSUER, "audience": "gateway", "jwks_file": str(file), "limits": _LIMITS}, token


def _slices(doors: Mapping[str, Door], tritons: Sequence[SyntheticTriton], turn: int) -> dict[str, float]:
    """CPU milliseconds of a request of each, one right after the other, beginning with another one each turn."""
    _pace(tritons, 0)
    file = body(1, PROMPT)
    return {name: _cpu_us(doors[name], _SLICE, file) / 1000 for name in _rotated(list(doors), turn)}


def _rotated(names: list[str], number: int) -> list[str]:
    first = number % len(names)
    return names[first:] + names[:first]


def _pace(tritons: Sequence[SyntheticTriton], delay_us: int) -> None:
    for triton in tritons:
        triton.pace(delay_us)


def _cpu_us(door: Door, load: Load, file: Path) -> float:
    return run(door.gateway, replace(load, key=door.key), file).cpu_us or 0.0


def _redis(stack: ExitStack) -> str | None:
    """The URL of a Redis that keeps nothing; None where there is no redis-server."""
    if shutil.which("redis-server") is None:
        return None
    port = free_port()
    command: list[str | Path] = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", ""]
    stack.enter_context(Child("redis", command, port)).wait_port()
    return f"redis://127.0.0.1:{port}/0"


class _Through:
    """A gateway that is reached by another process's port."""

    def __init__(self, gateway: Child, port: int) -> None:
        self.port = port
        self.cpu_s = gateway.cpu_s


@contextlib.contextmanager
def _by_tls(subject: Subject, triton: SyntheticTriton) -> Iterator[_Through]:
    """A gateway of this kind with TLS on both sides, and relays that take it away from the load and from Triton."""
    folder, ports = BUILT / "tls", [free_port() for _ in range(4)]
    write_certificates(folder)
    inner, gateway, outer, health = ports
    files = {"certificate": str(folder / "tls.crt"), "key": str(folder / "tls.key")}

    def relay(side: str, port: int, target: int) -> Child:
        command: list[str | Path] = [
            sys.executable, "-m", "benchmarks.harness.tls_relay", side, str(port), str(target), folder,
        ]  # fmt: skip
        return Child(f"tls-{side}", command, port, cwd=ROOT)

    with relay("triton", inner, triton.port) as before_triton, relay("clients", outer, gateway) as before_clients:
        before_triton.wait_port()
        model = {"triton": {"url": f"127.0.0.1:{inner}", "model": "ensemble", "tls": {"ca": files["certificate"]}}}
        settings = {"model": model, "label": "tls", "tls": files, "internal_port": health}
        with launch(subject, triton, gateway, **settings) as child:
            before_clients.wait_port()
            child.port = health
            child.wait_http("/health/ready")
            yield _Through(child, outer)
