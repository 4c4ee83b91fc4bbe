"""The plots of README.md."""

from __future__ import annotations

from typing import Any

from . import store
from .processes import ROOT
from .svg import Axis, Points, chart

_FOLDER = ROOT / "benchmarks" / "plots"
_STREAMS = Axis("streams, one token every 20 ms", log=True)


def write_plots() -> None:
    """Draw the plots of stored results."""
    _FOLDER.mkdir(exist_ok=True)
    relay, memory = store.load("relay"), store.load("memory")
    if relay is not None:
        for file, text in _relay(relay["sweep"]).items():
            (_FOLDER / file).write_text(text)
    if memory is not None:
        (_FOLDER / "memory.svg").write_text(_memory(memory["rows"]))


def _relay(sweep: dict[str, Any]) -> dict[str, str]:
    def lines(figure: str, scale: float = 1.0) -> dict[str, Points]:
        found: dict[str, list[tuple[float, float]]] = {}
        for streams, named in sweep.items():
            for name, result in named.items():
                if result[figure] is not None:
                    found.setdefault(name, []).append((float(streams), result[figure] * scale))
        return dict(found)

    delays = {f"{name}, {share}": points for share in ("p50", "p99") for name, points in
              lines(f"delay_{share}", 1e-3).items()}  # fmt: skip
    return {
        "cpu.svg": chart("CPU per relayed token", _STREAMS, Axis("us"), lines("cpu_us")),
        "tokens.svg": chart("Tokens per second", _STREAMS, Axis("tokens/s"), lines("tokens_s")),
        "delay.svg": chart("Delay of a token, from Triton to the client", _STREAMS, Axis("ms", log=True), delays),
    }


def _memory(rows: list[dict[str, Any]]) -> str:
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if "flow_bytes" in row:
            found.setdefault(row["subject"], []).append((float(row["streams"]), row["flow_bytes"] / 1e6))
    return chart("Resident memory", Axis("streams, one token a second", log=True), Axis("MB"), found)
