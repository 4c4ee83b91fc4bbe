"""Results as Markdown for README.md, and the same as plain text."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from . import store
from .plots import write_plots
from .processes import ROOT

_README = ROOT / "benchmarks" / "README.md"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; None becomes an empty cell."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join("" if cell is None else str(cell) for cell in line) + " |" for line in lines)


def relay(values: dict[str, Any]) -> str:
    """CPU, throughput and delay by load."""
    parts = [f"Medians of {values['rounds']} interleaved runs."]
    for load, named in values["loads"].items():
        rows = [_relay_row(name, result, named) for name, result in named.items()]
        head = [load, "CPU us/token", "least-most", "of naive", "tokens/s", "first event ms p50 / p99",
                "token delay ms p50 / p90 / p99"]  # fmt: skip
        parts.append(table(head, rows))
    ratios = ", ".join(f"{name} {ratio:.2f}" for name, ratio in values["ratios"].items())
    parts.append(
        f"CPU per token of this gateway over the naive one's, tokens dialect, transport {values['default_transport']}:"
        f" {ratios}."
    )
    return "\n\n".join(parts)


def _relay_row(name: str, result: dict[str, Any], named: dict[str, Any]) -> list[object]:
    cpu = result["cpu_us"]
    naive = named["naive text" if "text" in name else "naive tokens"]["cpu_us"]
    delays = [result[f"delay_{share}"] for share in ("p50", "p90", "p99")]
    return [
        name,
        None if cpu is None else f"{cpu:.0f}",
        None if cpu is None else f"{result['cpu_us_least']:.0f}-{result['cpu_us_most']:.0f}",
        None if cpu is None else f"{cpu / naive:.2f}",
        f"{result['tokens_s']:,.0f}",
        f"{result['first_p50'] / 1000:.0f} / {result['first_p99'] / 1000:.0f}",
        None if delays[0] is None else " / ".join(f"{delay / 1000:.1f}" for delay in delays),
    ]


def memory(values: dict[str, Any]) -> str:
    """Memory by number of streams."""
    rows = [
        [
            row["subject"],
            f"{row['streams']:,}",
            row.get("error") or f"{row['idle_bytes'] / 1e6:.0f}",
            f"{row['peak_bytes'] / 1e6:.0f}" if "peak_bytes" in row else None,
            row.get("kilobytes_each"),
        ]
        for row in values["rows"]
    ]
    return table(["", "streams at 1 token/s", "idle MB", "peak MB", "KB a stream"], rows)


def features(values: dict[str, Any]) -> str:
    """Cost factors."""
    rows = [[name, values["cpu_us"][name], factor] for name, factor in values["factors"].items()]
    said = table(["64 streams, 20 ms a token", "CPU us/token", "factor"], rows)
    cpu = values["cpu_us"]
    return (
        f"{said}\n\nLong answers, 16 streams as fast as they go: {cpu['1,000 tokens']} us a token at 1,000 tokens,"
        f" {cpu['8,000 tokens']} at 8,000: factor {values['long_answer_factor']}."
    )


def requests(values: dict[str, Any]) -> str:
    """Cost of a request and of a start."""
    rows = [
        [
            name,
            row["cpu_ms"],
            row["beyond_preparation_ms"],
            row["ready_s"],
            None if row["resident_ready_bytes"] is None else f"{row['resident_ready_bytes'] / 1e6:.0f}",
            f"{row['resident_after_bytes'] / 1e6:.0f}",
        ]
        for name, row in values["subjects"].items()
    ]
    said = table(
        ["", "CPU ms/request", "of it beyond template and tokenization", "ready after s", "resident MB when ready",
         "after requests"],
        rows,
    )  # fmt: skip
    return f"One token, a prompt of {values['prompt_tokens']} tokens.\n\n{said}"


def lag(values: dict[str, Any]) -> str:
    """How late the event loop was."""
    rows = [
        [row["transport"], row["what"], row.get("prompt_tokens"), row.get("median_ms"), row["worst_ms"]]
        for row in values["rows"]
    ]
    return table(["transport", "prompt", "tokens", "median of the longest lag, ms", "worst, ms"], rows)


def workers(values: dict[str, Any]) -> str:
    """Scaling."""
    gateway, others = values["gateway_cores"], values["other_cores"]
    rows = [
        [row["transport"], row["workers"], row["load"], f"{row['offered_s']:,}", *_carried(row)]
        for row in values["rows"]
    ]
    head = ["transport", "workers", "load", "offered tokens/s", "tokens/s", "CPU us/token, all workers",
            f"busy of {gateway} cores: gateway", f"of {others}: load", "limit"]  # fmt: skip
    return (
        f"The gateway on {gateway} cores, {values['generators']} load generators and {values['tritons']} synthetic"
        f" Tritons (processes, on one port) on {others} others. Medians of {values['rounds']} windows of 2 s in the"
        f" middle of answers: no request begins or ends in them.\n\n{table(head, rows)}"
    )


def _carried(row: dict[str, Any]) -> list[object]:
    if "error" in row:
        return [None, None, None, None, row["error"].partition(":")[0]]
    figures = [f"{row['tokens_s']:,.0f}", f"{row['cpu_us']:.0f}", f"{row['busy']:.1f}", f"{row['others_busy']:.1f}"]
    return [*figures, row["limit"]]


def triton(values: dict[str, Any]) -> str:
    """CPU of Triton's processes; the least and the most of all of them together."""
    stubs = ("preprocessing", "tensorrt_llm", "postprocessing")
    rows = []
    for row in values["rows"]:
        cpu = row["cpu_us"]
        each = [f"{cpu['tritonserver']:.0f}", *(f"{cpu[f'stub {model}']:.0f}" for model in stubs)]
        sums = row["cpu_us_sums"]
        spread = f"{statistics.median(sums):.0f} ({sums[0]:.0f}-{sums[-1]:.0f})"
        rows.append([row["path"], row["streams"], row["repository"], *each, spread, f"{row['responses_s']:,}"])
    head = ["called", "streams", "models", "tritonserver", *(f"stub {model}" for model in stubs), "all (least-most)",
            "responses/s"]  # fmt: skip
    return f"CPU us/response, medians of {values['rounds']} interleaved runs.\n\n{table(head, rows)}"


def peers(values: dict[str, Any]) -> str:
    """Other gateways beside this one."""
    rows = [
        [name, load, None if row["cpu_us"] is None else f"{row['cpu_us']:.0f}", f"{row['tokens_s']:,.0f}", row["note"]]
        for name, loads in values["peers"].items()
        for load, row in loads.items()
    ]
    said = table(["", "load", "CPU us/token", "tokens/s", "upstream"], rows)
    left_out = [f"{name}: {reason}" for name, reason in values["left_out"].items()]
    return "\n\n".join([said, *left_out])


_MODES: dict[str, Callable[[dict[str, Any]], str]] = {
    "relay": relay,
    "memory": memory,
    "features": features,
    "requests": requests,
    "lag": lag,
    "workers": workers,
    "triton": triton,
    "peers": peers,
}


def markdown(mode: str) -> str:
    """The last results of a mode, with where and how they were measured."""
    values = store.load(mode)
    if values is None:
        return ""
    about = values["about"]
    said = f"`{about['command']}`, {about['date']}, {about['machine']}, {about['load']}; {about['versions']}."
    return f"{said}\n\n{_MODES[mode](values)}"


def plain(mode: str) -> str:
    """The same for a terminal."""
    return "\n" + markdown(mode).replace("| ", "  ").replace(" |", "") + "\n"


class _Between:
    """A replacement that keeps the two marks of a match: no text of it is a pattern."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __call__(self, match: re.Match[str]) -> str:
        return f"{match[1]}\n{self._text}\n\n{match[2]}"


def write_readme() -> None:
    """Put the results that are there between their marks in README.md, and draw the plots."""
    text = _README.read_text()
    for mode in store.modes():
        begin, end = f"<!-- results: {mode} -->", f"<!-- end: {mode} -->"
        pattern = re.compile(f"({re.escape(begin)}\n).*?({re.escape(end)})", re.DOTALL)
        found = markdown(mode)
        text = pattern.sub(_Between(found), text)
    _README.write_text(text)
    write_plots()
