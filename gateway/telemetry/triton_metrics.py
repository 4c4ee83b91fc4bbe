"""Relays the metrics ``nv_*`` of every Triton, with the label ``endpoint``."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import operator
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterable, Mapping

import anyio
import anyio.to_thread

from gateway.telemetry.slim_page import EngineLoad, Engines, escaped

_log = logging.getLogger(__name__)
_TIMEOUT_S = 1.0  # beyond it a scrape would be late for everything else that it asks for
_FRESH_S = 1.0
_STALE_S = 3.0
_MOST_BYTES = 4 * 1024 * 1024
_SAMPLE = re.compile(r"(nv_\w+)(?:\{(.*)\})? (\S+(?: \d+)?)")
_COMMENT = re.compile(r"# (?:HELP|TYPE) (nv_\w+) ")
_REQUESTS = "nv_trt_llm_request_metrics"
_BLOCKS = "nv_trt_llm_kv_cache_block_metrics"
_MODEL = re.compile(r'\bmodel="([^"]*)"')
_ENGINE = re.compile(r"(?:# (?:HELP|TYPE) )?nv_trt_llm_")
_UP = "gateway_triton_metrics_up"
_NO_PROXY = urllib.request.ProxyHandler({})  # Triton is never behind one
_OPENER = urllib.request.build_opener(_NO_PROXY)


class TritonMetrics:
    """Reads the metrics of several Triton servers and relays those that begin with ``nv_``.

    Each server is read at most once a second: endpoint pickers request the page every 50 ms, and wait for no slow
    Triton.

    Attributes:
        engines: engines that responded at the last reading.

    Args:
        endpoints: returns the URL of the metrics by gRPC endpoint, at every reading, as models come and go.
        clock: in seconds.
        trust: returns the TLS context for ``https`` URLs by gRPC endpoint; by default the machine's authorities.
    """

    def __init__(
        self,
        endpoints: Callable[[], Mapping[str, str]],
        clock: Callable[[], float] = time.monotonic,
        trust: Callable[[], Mapping[str, ssl.SSLContext]] = dict,
    ) -> None:
        self._endpoints = endpoints
        self._trust = trust
        self._clock = clock
        self.engines = Engines()
        self._texts: Mapping[str, str | None] = {}
        self._page: bytes | None = b""  # of the texts, once the page was requested
        self._limits: dict[str, dict[str, int]] = {}  # by endpoint and engine model
        self._read_at = -math.inf
        self._reading: asyncio.Task[None] | None = None

    async def render(self) -> bytes:
        """Return all Triton metrics in Prometheus' text format.

        ``gateway_triton_metrics_up`` says which endpoints responded. Metrics older than 1 s are read anew; the caller
        waits for new metrics only where the known metrics are older than 3 s.
        """
        await self.fresh()
        if self._page is None:
            self._page = _exposition(self._texts).encode()
        return self._page

    async def fresh(self) -> None:
        """Read metrics again where ``render`` would."""
        if self._refresh() >= _STALE_S and self._reading is not None:
            await asyncio.shield(self._reading)

    def engine_limit(self, endpoints: Collection[str], model: str) -> int | None:
        """Sum the most concurrent requests that the engines at some endpoints last reported.

        Args:
            endpoints: gRPC endpoints.
            model: Triton's name of the engine model, if known; needed where an endpoint has several.

        Returns:
            The sum; None where no engine has reported it.
        """
        self._refresh()
        total = 0
        for endpoint in endpoints:
            models = self._limits.get(endpoint, {})
            slots = models.get(model) if len(models) != 1 else next(iter(models.values()))
            total += slots or 0  # a new endpoint counts once its metrics have the value
        return total or None

    def _refresh(self) -> float:
        """Have everything read anew where that is due; the age of what was read."""
        age = self._clock() - self._read_at
        if age >= _FRESH_S and self._reading is None:
            self._reading = asyncio.create_task(self._read())
        return age

    async def close(self) -> None:
        """Wait for a reading that is under way, at most a second."""
        if self._reading is not None:
            await self._reading

    async def _read(self) -> None:
        try:
            self._texts = await self._fetched()
            self._page = None
            self._note_engines({each: _engine_lines(text or "") for each, text in self._texts.items()})
            self._read_at = self._clock()
        finally:
            self._reading = None

    async def _fetched(self) -> dict[str, str | None]:
        endpoints, trust = dict(self._endpoints()), self._trust()
        texts: dict[str, str | None] = dict.fromkeys(endpoints)

        async def fetch(endpoint: str, url: str) -> None:
            texts[endpoint] = await anyio.to_thread.run_sync(functools.partial(_fetch, url, trust.get(endpoint)))

        async with anyio.create_task_group() as tasks:
            for endpoint, url in endpoints.items():
                tasks.start_soon(fetch, endpoint, url)
        return texts

    def _note_engines(self, texts: Mapping[str, str]) -> None:
        # An endpoint that misses one response or is starting keeps its limits: else it would get all waiting requests.
        known = self._limits
        self._limits = {
            each: _engine_values(text, _REQUESTS, "max") or known.get(each, {}) for each, text in texts.items()
        }
        load = functools.reduce(operator.add, map(_engine_load, texts.values()), EngineLoad())
        self.engines = Engines(load, "".join(f"{line}\n" for line in _families(texts)))


def _engine_lines(text: str) -> str:
    """Of a page what engines say of themselves, which is a small part of it."""
    return "\n".join(line for line in text.splitlines() if _ENGINE.match(line))


def _engine_load(text: str) -> EngineLoad:
    """Sum the load of all engines of a metrics page."""
    waiting = _engine_values(text, _REQUESTS, "waiting")
    used, most = _engine_values(text, _BLOCKS, "used"), _engine_values(text, _BLOCKS, "max")
    return EngineLoad(sum(waiting.values()), sum(used.values()), sum(most.values()) if used else 0)


def _engine_values(text: str, family: str, kind: str) -> dict[str, int]:
    """The samples of a metric whose ``..._type`` label is ``kind``, by the engine's model in Triton."""
    values = {}
    for line in text.splitlines():
        if line.startswith(family) and f'_type="{kind}"' in line:
            sample, model = _SAMPLE.fullmatch(line), _MODEL.search(line)
            if sample and model:
                with contextlib.suppress(ValueError, OverflowError):  # not a number
                    values[model[1]] = int(float(sample[3].split()[0]))
    return values


def _fetch(url: str, context: ssl.SSLContext | None) -> str | None:
    opener = _OPENER
    if context is not None:
        opener = urllib.request.build_opener(_NO_PROXY, urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(url, timeout=_TIMEOUT_S) as response:
            body: bytes = response.read(_MOST_BYTES)
    except (OSError, ValueError) as error:
        _log.debug("no metrics from %s: %s", url, error, extra={"event": "triton_metrics_unread"})
        return None
    return body.decode(errors="replace")


def _exposition(texts: Mapping[str, str | None]) -> str:
    """One exposition of several, with what could be read."""
    if not texts:
        return ""
    lines = [f"# HELP {_UP} Whether the metrics of a Triton could be read.", f"# TYPE {_UP} gauge"]
    lines += [f'{_UP}{{endpoint="{escaped(name)}"}} {int(text is not None)}' for name, text in texts.items()]
    return "\n".join(lines + _families(texts)) + "\n"


def _families(texts: Mapping[str, str | None]) -> list[str]:
    """The lines of several pages as one: each family once, its samples with their endpoint."""
    comments: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for endpoint, text in texts.items():
        _collect((text or "").splitlines(), endpoint, comments, samples)
    lines: list[str] = []
    for family, head in comments.items():
        lines += head + samples.pop(family, [])
    for rest in samples.values():  # samples of histograms and summaries go by other names than their family
        lines += rest
    return lines


def _collect(
    lines: Iterable[str], endpoint: str, comments: dict[str, list[str]], samples: dict[str, list[str]]
) -> None:
    family, known = "", set(comments)
    label = f'endpoint="{escaped(endpoint)}"'
    for line in lines:
        if comment := _COMMENT.match(line):
            family = comment[1]
            if family not in known:
                comments.setdefault(family, []).append(line)
        elif sample := _SAMPLE.fullmatch(line):
            name, labels, value = sample.groups()
            home = family if family and name.startswith(family) else name
            samples.setdefault(home, []).append(f"{name}{{{label}{',' + labels if labels else ''}}} {value}")
