"""The results beside other gateways as Markdown."""

from __future__ import annotations

from typing import Any

from benchmarks.harness.renderings import table


def peers(values: dict[str, Any]) -> str:
    """What each asks, its loads, ratios and long prompts, and what was left out."""
    upstream = [[name, peer["release"], peer["upstream"]] for name, peer in values["peers"].items()]
    parts = [f"Medians of {values['rounds']} interleaved runs.", table(["", "release", "asks"], upstream)]
    for load, rows in values["loads"].items():
        lines = [_row(name, row, values["peers"][name]["without"]) for name, row in rows.items()]
        head = [load, "CPU us/token", "least-most", "tokens/s", "first event ms p50 / p99", "does not"]
        parts.append(table(head, lines))
    if values["early"]:
        parts.append(f"The first event comes before any token, and without one, from: {', '.join(values['early'])}.")
    if values["ratios"]:
        parts.append(f"CPU per token of this gateway (tokens, h2) over that of: {_ratios(values['ratios'])}.")
    parts.append(_long_prompts(values["long_prompts"]))
    parts += [f"Left out, {name}: {reason.splitlines()[0]}" for name, reason in values["left_out"].items()]
    return "\n\n".join(parts)


def _row(name: str, row: dict[str, Any], without: str) -> list[object]:
    if "failed" in row:
        return [name, None, None, None, None, f"carry this load: {row['failed'].partition(':')[2].strip()[:60]}"]
    shorter = f"answers of {row['tokens']} tokens" if "tokens" in row else ""
    return [
        name,
        f"{row['cpu_us']:.0f}",
        f"{row['cpu_us_least']:.0f}-{row['cpu_us_most']:.0f}",
        f"{row['tokens_s']:,.0f}",
        f"{row['first_p50'] / 1000:.0f} / {row['first_p99'] / 1000:.0f}",
        "; ".join(filter(None, (without, shorter))),
    ]


def _ratios(named: dict[str, dict[str, float]]) -> str:
    return "; ".join(
        f"{name} {', '.join(f'{load} {ratio:.2f}' for load, ratio in loads.items())}" for name, loads in named.items()
    )


def _long_prompts(rows: list[dict[str, Any]]) -> str:
    names = list(rows[0]["peers"])
    lines = [[f"{row['prompt']:,}", *(_turns(row["peers"][name]) for name in names)] for row in rows]
    head = ["CPU ms a request, first / later turn, prompt of tokens", *names]
    return table(head, lines)


def _turns(found: dict[str, float] | None) -> str:
    return "refused" if found is None else f"{found['first_ms']:.1f} / {found['later_ms']:.1f}"
