"""The measured costs of the gateway, and the needs of a load that follow from them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_MEASURED: Final = Path(__file__).with_name("measured_costs.json")
TRANSPORTS: Final = ("h2", "grpcio")


@dataclass(frozen=True, slots=True)
class GatewayCosts:
    """The costs of a gateway's work.

    Attributes:
        request_s: seconds of a core for a request, but for its prompt.
        prompt_token_s: seconds of a core for a token of a prompt, template and tokenization.
        token_s: seconds of a core for a token of an answer.
        worker_bytes: memory of a worker at rest.
        stream_bytes: additional memory of a running answer.
        most_streams: most simultaneous answers that one worker carried in a measurement.
        triton_token_s: seconds of a core of Triton's own, without the engine, for a token of an answer.
        sources: the source of each, as sentences.
    """

    request_s: float
    prompt_token_s: float
    token_s: float
    worker_bytes: float
    stream_bytes: float
    most_streams: int
    triton_token_s: float
    sources: tuple[str, ...]

    def per_request(self, prompt: float, answer: float) -> float:
        """Seconds of a core for a whole request."""
        return self.request_s + prompt * self.prompt_token_s + answer * self.token_s


def measured_costs(transport: str) -> GatewayCosts:
    """The measured costs of a transport; see benchmarks/README.md."""
    found = json.loads(_MEASURED.read_text(encoding="utf-8"))
    return GatewayCosts(**{**found[transport], "sources": tuple(found[transport]["sources"])})


@dataclass(frozen=True, slots=True)
class GatewayNeed:
    """The needs of a load for gateway workers.

    Attributes:
        cores: cores that the load keeps busy.
        workers: processes, each with a core of its own.
        busy: share of a worker's time that is busy.
        wait_s: mean seconds that a request or a token waits for its worker.
        memory_bytes: memory of all workers.
        streams: mean simultaneous answers of a worker.
    """

    cores: float
    workers: int
    busy: float
    wait_s: float
    memory_bytes: float
    streams: float


@dataclass(frozen=True, slots=True)
class Traffic:
    """The traffic of gateways.

    Attributes:
        rate: requests a second.
        prompt: tokens of a prompt, on the average.
        answer: tokens of an answer, on the average.
        in_flight: requests at a time, on the average.
    """

    rate: float
    prompt: float
    answer: float
    in_flight: float


def fewest_workers(costs: GatewayCosts, traffic: Traffic, most_busy: float) -> int:
    """Count the workers that stay below a busy share and a number of simultaneous answers."""
    cores = traffic.rate * costs.per_request(traffic.prompt, traffic.answer)
    return max(1, math.ceil(cores / most_busy), math.ceil(traffic.in_flight / costs.most_streams))


def gateway_need(costs: GatewayCosts, traffic: Traffic, workers: int) -> GatewayNeed:
    """Compute the needs of a load with a sufficient number of workers."""
    rate, prompt, answer, in_flight = traffic.rate, traffic.prompt, traffic.answer, traffic.in_flight
    cores = rate * costs.per_request(prompt, answer)
    begin, busy = costs.request_s + prompt * costs.prompt_token_s, cores / workers
    # Pollaczek and Khinchine: requests and tokens, each of a constant length, arriving at random at one core.
    squares = rate / workers * (begin**2 + answer * costs.token_s**2)
    return GatewayNeed(
        cores=cores,
        workers=workers,
        busy=busy,
        wait_s=squares / (2 * (1 - busy)),
        memory_bytes=workers * costs.worker_bytes + in_flight * costs.stream_bytes,
        streams=in_flight / workers,
    )
