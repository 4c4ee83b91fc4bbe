"""The work of the mirror process: sends copies to the second models, compares the answers, and reports."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from gateway.serving.comparison.answer_forms import Failure, Outcome, WholeAnswer, outcome_of
from gateway.serving.comparison.report import ComparisonReport
from gateway.serving.comparison.verdict import ComparisonRules, OutcomeKind
from gateway.serving.mirror.link import MirrorFrame, pack, read_frame
from gateway.settings import ModelSettings
from gateway.settings.model_settings import MirrorSettings
from gateway.telemetry.slim_page import escaped

_log = logging.getLogger(__name__)
_MOST_ROWS: Final = 1000
_MOST_ROWS_WITH_TEXT: Final = 100
_MOST_BYTES: Final = 64 * 2**20  # of all copies that wait
_LOG_S: Final = 60.0

Ask = Callable[[str, bytes, float], Awaitable[Outcome]]
"""Asks a path for a response to a body, for so many seconds at most."""


class Mirror:
    """The copies of one model's requests, and their report.

    Attributes:
        settings: settings of the model.
        report: report on the comparison.
        dropped: copies that were not made or not sent, by reason.
        drawn: copies with sampled answers, of which only the parts without chance were compared.
        waiting_bytes: bytes of waiting copies.
    """

    def __init__(self, settings: ModelSettings, mirror: MirrorSettings) -> None:
        """Begin with nothing.

        Args:
            settings: of the model.
            mirror: its section of them.
        """
        self.settings = settings
        most = _MOST_ROWS_WITH_TEXT if mirror.show_text else _MOST_ROWS
        self.report = ComparisonReport(
            ComparisonRules(mirror.ignore, mirror.tolerance), show_text=mirror.show_text, most_rows=most
        )
        self.dropped: Counter[str] = Counter()
        self.drawn = 0
        self.waiting_bytes = 0
        self._mirror = mirror
        self._since = int(time.time())
        self._number = 0
        self._running: set[asyncio.Task[None]] = set()
        self._waiting: deque[MirrorFrame] = deque()
        self._logged = 0

    @property
    def to(self) -> str:
        """The name of the second model."""
        return self._mirror.to

    def take(self, frame: MirrorFrame, ask: Ask, waiting_bytes: int) -> None:
        """Send a copy, now or in its turn; drops it where too many wait.

        Args:
            frame: request and response.
            ask: asks the second model.
            waiting_bytes: bytes of all waiting copies, of other mirrors too.
        """
        if len(self._running) < self._mirror.at_once:
            self._start(frame, ask)
        elif waiting_bytes >= _MOST_BYTES or len(self._waiting) >= self._mirror.waiting:
            self.drop("too_many_wait")
        else:
            self._waiting.append(frame)
            self.waiting_bytes += _size(frame)

    def drop(self, reason: str, count: int = 1) -> None:
        """Count copies that are not compared."""
        self.dropped[reason] += count

    def _start(self, frame: MirrorFrame, ask: Ask) -> None:
        task = asyncio.create_task(self._compare(frame, ask))
        self._running.add(task)
        task.add_done_callback(lambda ended: self._ended(ended, ask))

    def _ended(self, task: asyncio.Task[None], ask: Ask) -> None:
        self._running.discard(task)
        if self._waiting and not task.cancelled():
            frame = self._waiting.popleft()
            self.waiting_bytes -= _size(frame)
            self._start(frame, ask)

    async def _compare(self, frame: MirrorFrame, ask: Ask) -> None:
        said = frame.message["copy"]
        path = said["path"]
        body = _as_asked(frame.request, path, self.to)
        drawn = body is not None and is_drawn(body, self.settings.defaults.given)
        if drawn and not self._mirror.drawn:
            self.drop("drawn")
            return
        a = outcome_of(path, 200, frame.answer, streamed=said["streamed"])
        if isinstance(a, WholeAnswer):
            a.first_s, a.whole_s = said["first_s"], said["whole_s"]
        b: Outcome = Failure("a request whose copy cannot be parsed")
        if body is not None:
            b = await ask(path, orjson.dumps(body), self._mirror.timeout_s)
        self._number += 1
        self.drawn += drawn
        rules = ComparisonRules(self._mirror.ignore, self._mirror.tolerance, drawn)
        self.report.take({"request": self._number, "name": said["id"], "endpoint": path}, a, b, rules=rules)

    def as_json(self, processes: int) -> dict[str, Any]:
        """The report, with an object ``mirror``.

        Args:
            processes: processes of the gateway that send copies now.
        """
        own = {
            "processes": processes,
            "share": self._mirror.share,
            "since": self._since,
            "running": len(self._running),
            "waiting": len(self._waiting),
            "drawn": self.drawn,
            "dropped": dict(self.dropped),
        }
        return {**self.report.as_json(), "mirror": own}

    def log(self) -> None:
        """Log the results, if there are new ones."""
        counts, dropped = self.report.counts, self.dropped.total()
        if (news := counts.total() + dropped) == self._logged:
            return
        self._logged = news
        found = {kind.value: counts[kind] for kind in OutcomeKind if counts[kind]}
        about = {
            "event": "mirror_report",
            "model": self.settings.name,
            "to": self.to,
            "dropped": dropped,
            "differs_in": dict(self.report.aspects),
        }
        _log.info("mirror", extra={**about, **found})

    async def close(self) -> None:
        """Cancel running copies."""
        self._waiting.clear()
        for task in (running := list(self._running)):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class MirrorReceiver:
    """Receives copies and questions on a socket.

    Args:
        ask: sends a request to a second model.
        models: returns the current settings of all models, by their names.
    """

    def __init__(self, ask: Ask, models: Callable[[], Mapping[str, ModelSettings]]) -> None:
        self._ask = ask
        self._models = models
        self._mirrors: dict[str, Mirror] = {}
        self._connections: set[asyncio.StreamWriter] = set()
        self._processes: set[asyncio.StreamWriter] = set()  # those of them by which copies come

    async def serve(self, path: Path) -> None:
        """Serve until cancelled.

        Args:
            path: of the socket.
        """
        with contextlib.suppress(FileNotFoundError):  # the socket of an earlier process
            os.unlink(path)  # noqa: PTH108 - a moment's work, whatever it is called
        server = await asyncio.start_unix_server(self._read, str(path))
        try:
            while True:
                await asyncio.sleep(_LOG_S)
                for mirror in self._mirrors.values():
                    mirror.log()
        finally:
            server.close()
            for each in list(self._connections):
                each.close()
            for mirror in self._mirrors.values():
                mirror.log()
                await mirror.close()

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            with contextlib.suppress(ConnectionError):
                while True:
                    self._take(await read_frame(reader), writer)
        finally:
            self._connections.discard(writer)
            self._processes.discard(writer)
            writer.close()

    def _take(self, frame: MirrorFrame, writer: asyncio.StreamWriter) -> None:
        for model, reason, count in frame.message.get("dropped", ()):
            if (mirror := self._mirror(model)) is not None:
                mirror.drop(reason, count)
        if "copy" in frame.message:
            mirror = self._mirror(frame.message["copy"]["model"])
            if mirror is not None:
                mirror.take(frame, self._ask, sum(each.waiting_bytes for each in self._mirrors.values()))
        elif "report" in frame.message:
            mirror = self._mirror(frame.message["report"])
            writer.write(pack({} if mirror is None else mirror.as_json(len(self._processes))))
        elif "stays" in frame.message:
            self._processes.add(writer)
        elif "metrics" in frame.message:
            writer.write(pack({"page": metrics_page(self._known())}))

    def _known(self) -> list[Mirror]:
        found = [self._mirror(name) for name in self._models()]
        return [each for each in found if each is not None]

    def _mirror(self, name: str) -> Mirror | None:
        """Return the mirror of a model, a new mirror where its settings have changed.

        The figures of two second models must not be added up.
        """
        settings, known = self._models().get(name), self._mirrors.get(name)
        if settings is None or settings.mirror is None:
            return None
        if known is None or known.settings.mirror != settings.mirror:
            known = self._mirrors[name] = Mirror(settings, settings.mirror)
        return known


def _size(frame: MirrorFrame) -> int:
    return len(frame.request) + len(frame.answer)


def is_drawn(body: Mapping[str, Any], defaults: Mapping[str, Any]) -> bool:
    """Tell whether the answer to a request is sampled: neither greedy nor by a seed.

    Args:
        body: of the request.
        defaults: the model's defaults for missing fields.
    """
    temperature, top_k = (
        defaults.get(name) if body.get(name) is None else body[name] for name in ("temperature", "top_k")
    )
    return body.get("seed") is None and temperature != 0 and top_k != 1


def _as_asked(request: bytes, path: str, model: str) -> dict[str, Any] | None:
    """Return a request as it is sent to the second model; None where it is not a readable object."""
    try:
        body = orjson.loads(request)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(body, dict):
        return None
    return {**body, "model": model, **({"store": False} if path == "/v1/responses" else {})}


_FAMILIES: Final = {
    "gateway_mirror_requests_total": "Mirrored requests, by outcome.",
    "gateway_mirror_differences_total": "Mirrored requests whose responses differ, by the kind of difference.",
    "gateway_mirror_dropped_total": "Mirrored requests that were not copied or not sent, by reason.",
}


def metrics_page(mirrors: list[Mirror]) -> str:
    """Write the metrics of mirrors in Prometheus' text format."""
    samples: tuple[list[str], ...] = ([], [], [])
    for mirror in mirrors:
        labels = f'model="{escaped(mirror.settings.name)}",to="{escaped(mirror.to)}"'
        counts = {kind.value: mirror.report.counts[kind] for kind in OutcomeKind if kind is not OutcomeKind.UNSTEADY}
        groups: tuple[tuple[str, Mapping[str, int]], ...] = (
            ("outcome", counts),
            ("aspect", mirror.report.aspects),
            ("reason", mirror.dropped),
        )
        for (family, (label, values)), lines in zip(zip(_FAMILIES, groups, strict=True), samples, strict=True):
            lines += [f'{family}{{{labels},{label}="{key}"}} {count}' for key, count in values.items()]
    pages = []
    for (family, text), lines in zip(_FAMILIES.items(), samples, strict=True):
        pages += [f"# HELP {family} {text}", f"# TYPE {family} counter", *lines]
    return "\n".join(pages) + "\n"
