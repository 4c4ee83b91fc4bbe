"""The results of each mode as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Any


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
            *([row["error"], *[None] * 5] if "error" in row else _memory(row)),
        ]
        for row in values["rows"]
    ]
    head = ["", "streams at 1 token/s", "idle MB", "in flow MB", "most MB", "KB a stream", "tokens/s",
            "CPU us/token"]  # fmt: skip
    return table(head, rows)


def _memory(row: dict[str, Any]) -> list[object]:
    megabytes = [f"{row[name] / 1e6:.0f}" for name in ("idle_bytes", "flow_bytes", "most_bytes")]
    return [*megabytes, row["kilobytes_each"], f"{row['tokens_s']:,}", f"{row['cpu_us']:.0f}"]


def features(values: dict[str, Any]) -> str:
    """Cost factors."""
    rows = [[name, values["cpu_us"][name], factor] for name, factor in values["factors"].items()]
    said = table(["64 streams, 20 ms a token", "CPU us/token", "factor"], rows)
    said += "".join(f"\n\nNot measured, {name}: {reason}" for name, reason in values["refused"].items())
    cpu = values["cpu_us"]
    return (
        f"Medians of {values['rounds']} interleaved runs, answers of {values['tokens']} tokens; a factor is the median"
        f" of the runs' own.\n\n{said}\n\n"
        f"Long answers, 16 streams as fast as they go: {cpu['1,000 tokens']} us a token at 1,000 tokens,"
        f" {cpu['8,000 tokens']} at 8,000: factor {values['long_answer_factor']}."
    )


def requests(values: dict[str, Any]) -> str:
    """Cost of a request and of a start."""
    rows = [
        [
            name,
            row["cpu_ms"],
            f"{row['cpu_ms_least']}-{row['cpu_ms_most']}",
            row["of_naive"],
            row["references"],
            row["beyond_preparation_ms"],
            row["ready_s"],
            None if row["resident_ready_bytes"] is None else f"{row['resident_ready_bytes'] / 1e6:.0f}",
            f"{row['resident_after_bytes'] / 1e6:.0f}",
        ]
        for name, row in values["subjects"].items()
    ]
    said = table(
        ["", "CPU ms/request", "least-most", "of naive", "over reference work",
         "of it beyond template and tokenization", "ready after s", "resident MB when ready", "after requests"],
        rows,
    )  # fmt: skip
    reference = values["reference_ms"]
    return (
        f"One token, a prompt of {values['prompt_tokens']} tokens. Medians of {values['slices']} slices of"
        f" {values['requests']} requests each, the servers taking turns. Template and tokenization:"
        f" {values['preparation_ms']:.2f} ms of CPU. Reference work beside the slices: {reference['median']} ms of CPU"
        f" ({reference['least']}-{reference['most']}).\n\n{said}"
    )


def bodies(values: dict[str, Any]) -> str:
    """CPU to parse bodies."""
    rows = [[row["body"], f"{row['bytes']:,}", row["gateway"], row["jiter"], row["json"]] for row in values["rows"]]
    return table(["body", "bytes", "gateway, ms", "jiter alone, ms", "json of the standard library, ms"], rows)


def front_door(values: dict[str, Any]) -> str:
    """Cost of what stands before the engines."""
    rows = [
        [name, row["token_us"], row["factor"], row["request_ms"], f"{row['more_ms']:+.2f}"]
        for name, row in values["rows"].items()
    ]
    said = table(["", "CPU us/token", "factor", "CPU ms/request", "over off, ms"], rows)
    return (
        f"Tokens: 64 streams of {values['tokens']}, 20 ms a token, medians of {values['rounds']} rounds. Requests: one"
        f" token, a prompt of about 200, medians of {values['slices']} slices of 320, the gateways taking turns."
        f"\n\n{said}"
    )


def mirror(values: dict[str, Any]) -> str:
    """Cost of a mirror."""
    rows = [
        [
            name,
            row["off_us"],
            row["handed_us"],
            f"{row['handed_factor']} ({row['handed_range']})",
            row["on_us"],
            f"{row['on_factor']} ({row['on_range']})",
            row["on_copies_us"],
            f"{row['off_first_ms']:.0f} / {row['on_first_ms']:.0f}",
        ]
        for name, row in values["rows"].items()
    ]
    heads = [
        "CPU us/token", "off", "handed over", "factor", "and asked", "factor", "process of copies",
        "first event p99 ms, off / asked",
    ]  # fmt: skip
    copies = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in values["copies"].items())
    own = ", ".join(f"{us} us of an answer of {tokens} tokens" for tokens, us in values["own"].items())
    said = f"Medians of {values['rounds']} turns; copies: {copies}. What the clients' process does for them: {own}."
    return f"{said}\n\n{table(heads, rows)}"


def lag(values: dict[str, Any]) -> str:
    """Lag of the event loop."""
    rows = [
        [row["transport"], row["what"], row.get("prompt_tokens"), row.get("median_ms"), row["worst_ms"]]
        for row in values["rows"]
    ]
    return table(["transport", "prompt", "tokens", "median of the longest lag, ms", "worst, ms"], rows)


def turns(values: dict[str, Any]) -> str:
    """First and later turns of conversations."""
    rows = [
        [row["transport"], row["workers"], f"{row['tokens']:,.0f}", row["tokenizer_ms"], row["tokenizers_ms"],
         row["first_ms"], row["later_ms"], f"{row['later_known']:.0%}"]
        for row in values["rows"]
    ]  # fmt: skip
    head = ["transport", "workers", "tokens", "tokenizer alone, ms", "in as many processes", "first turn, CPU ms",
            "later turn, CPU ms", "known tokens of later turns"]  # fmt: skip
    return f"{values['later_turns']} later turns, each on a connection of its own.\n\n{table(head, rows)}"


def knee(values: dict[str, Any]) -> str:
    """Rates of first and later turns."""
    rows = [
        [f"{row['prompt']:,}", row["turn"], row["rate"], f"{row['first_event_p50']:.0f} / {row['first_event_p99']:.0f}",
         row["cpu_ms"], "yes" if row["held"] else "no"]
        for row in values["rows"]
    ]  # fmt: skip
    said = (
        f"{values['workers']} workers on as many cores, medians of {values['rounds']} runs of {values['seconds']} s;"
        f" held: 99 of 100 first events within {values['late_ms']:.0f} ms of the median at the lowest rate."
    )
    head = ["prompt, tokens", "turn", "requests/s", "first event ms p50 / p99", "CPU ms/request", "held"]
    return f"{said}\n\n{table(head, rows)}"


def hostile(values: dict[str, Any]) -> str:
    """Cost of hostile inputs, and the wait of other clients; large bodies stand in a table of their own."""
    head = ["input", "outcome", "grown by at most, MB", "helpers, MB", "loop held, ms",
            "/health/live at rest: worst, ms", "meanwhile: worst, ms", "ratio", "p99, ms"]  # fmt: skip
    small, large = ([_hostile_row(row) for row in values["rows"] if row["large"] == kind] for kind in (False, True))
    title = "Bodies of more than 4 MiB, or with more than 16,384 objects, arrays and keys:"
    return f"Each input {values['rounds']} times.\n\n{table(head, small)}\n\n{title}\n\n{table(head, large)}"


def _hostile_row(row: dict[str, Any]) -> list[object]:
    idle, meanwhile = row["idle"]["worst_ms"], row["meanwhile"].get("worst_ms")
    return [
        row["input"],
        row["outcome"],
        *(None if row[key] is None else f"{row[key] / 1e6:.0f}" for key in ("grown_bytes", "helpers_bytes")),
        row["loop_ms"],
        idle,
        meanwhile,
        None if meanwhile is None else f"{meanwhile / idle:.1f}",
        row["meanwhile"].get("p99_ms"),
    ]


def workers(values: dict[str, Any]) -> str:
    """Scaling."""
    gateway, others = values["gateway_cores"], values["other_cores"]
    alone = {row.get("streams_each"): row.get("tokens_s") for row in values["rows"] if row["workers"] == 1}
    rows = []
    for row in values["rows"]:
        one = alone[each] if (each := row.get("streams_each")) else None
        ratio = f"{row['tokens_s'] / row['workers'] / one:.2f}" if one and "tokens_s" in row else None
        carried, *others_figures = _carried(row)
        first = [row["transport"], row["workers"], row["load"], f"{row['offered_s']:,}", carried, ratio]
        rows.append([*first, *others_figures])
    head = ["transport", "workers", "load", "offered tokens/s", "tokens/s", "of one's, each",
            "CPU us/token", f"busy of {gateway} cores: gateway", f"of {others}: load", "limit"]  # fmt: skip
    return (
        f"The gateway on {gateway} cores, {values['generators']} load generators and {values['tritons']} synthetic"
        f" Tritons (processes, on one port) on {others} others. Medians of {values['rounds']} windows of 2 s in the"
        f" middle of answers: no request begins or ends in them.\n\n{table(head, rows)}"
    )


def scaling(values: dict[str, Any]) -> str:
    """Requests per second by workers."""
    rows = [
        [row["workers"], f"{row['requests_s']:,.0f}", f"{row['of_one']:.2f}", f"{row['apart_requests_s']:,.0f}",
         f"{row['apart_of_one']:.2f}", f"{row['over_apart']:.2f}", f"{row['cpu_ms']} / {row['apart_cpu_ms']}",
         f"{row['least_share']:.2f}-{row['most_share']:.2f}", f"{row['reference_of_one']:.2f}",
         f"{row['of_one'] * row['reference_of_one']:.2f}"]
        for row in values["rows"]
    ]  # fmt: skip
    head = ["workers", "requests/s", "of one's, each", "gateways apart", "of one's, each", "over apart",
            "CPU ms/request", "worker's CPU over even", "reference work", "times of one's, each"]  # fmt: skip
    return (
        f"Requests of one token with a prompt of about 200, transport {values['transport']}, {values['at_once']} at"
        f" once for each worker, a connection each; the gateway on {values['gateway_cores']} cores, the load on"
        f" {values['other_cores']} others. Medians of {values['rounds']} turns of all rows. Gateways apart: as many"
        " gateways of one process each, each on a port of its own, to which connections go by chance, as to workers."
        " Reference work: the CPU time of a constant piece of Python in as many processes at once, over that in one; by"
        " so much cores are slower then, and multiplied by it a worker's requests are those at the speed of one's core."
        f"\n\n{table(head, rows)}"
    )


_TIMES = ("ttft_us", "end_us")


_MOST_OF = {"tritonclient": 1.1 * 1110 / 240, "LiteLLM": 1.0}
"""Bounds of the CPU of a request for base64 over that of a program: 10 % above the first measurement, and LiteLLM's."""


def embeddings(values: dict[str, Any]) -> str:
    """CPU of a request for an embedding, and its delay by rate."""
    cpu = table(["", "CPU us/request"], [[name, f"{us:.0f}"] for name, us in values["cpu_us"].items()])
    rows = [
        [f"{int(rate):,}", f"{each['p50'] / 1e3:.1f} / {each['p99'] / 1e3:.1f}"]
        for rate, each in values["delays_us"].items()
    ]
    return (
        "One short text a request, 384 numbers, from a Triton that answers by return. Medians of"
        f" {values['rounds']} rounds. Workers of the gateway: {values['workers']}. Without a server: a program that has"
        " eight requests to Triton in flight, by gRPC, or by HTTP with LiteLLM's provider."
        f"\n\n{cpu}\n\nCPU of a request for base64: {', '.join(_held_ratios(values['cpu_us']))}."
        f"\n\n{table(['requests/s', 'base64, response ms p50 / p99'], rows)}"
    )


def _held_ratios(cpu_us: dict[str, float]) -> Iterator[str]:
    for name, us in cpu_us.items():
        program = name.partition(",")[0]
        if bound := _MOST_OF.get(program.partition(" ")[0]):
            ratio = cpu_us["gateway, base64"] / us
            yield f"{ratio:.2f} of {program} (bound {bound:.2f}: {'held' if ratio <= bound else 'missed'})"


def rates(values: dict[str, Any]) -> str:
    """Added delay by rate of requests."""
    rows = []
    for row in values["rows"]:
        direct = row["direct"]
        first, whole = (f"{direct[f'{name}_p50'] / 1e3:.1f} / {direct[f'{name}_p99'] / 1e3:.1f}" for name in _TIMES)
        rows.append([f"{row['rate']:,}", "direct (C++)", first, whole, None])
        for kind in ("streamed", "not streamed"):
            added = row[kind]
            first, whole = (f"{added[f'{name}_p50'] / 1e3:+.1f} / {added[f'{name}_p99'] / 1e3:+.1f}" for name in _TIMES)
            cpu = f"{added['cpu_ms']:.2f}"
            rows.append([f"{row['rate']:,}", kind, first if kind == "streamed" else None, whole, cpu])
    head = ["requests/s", "", "first event ms p50 / p99", "whole answer ms p50 / p99", "CPU ms/request"]
    return (
        f"Answers of {values['tokens']} tokens, one each {values['delay_ms']:g} ms. Through the gateway: prompts of"
        f" about 200 tokens, every request on a connection of its own, {values['workers']} workers on {values['cores']}"
        f" cores, the load on others. Direct: a short prompt as text, on one connection of gRPC. Medians of"
        f" {values['rounds']} runs of {values['seconds']} s in turns; with a sign: what is added to the direct client's"
        " times."
        f"\n\n{table(head, rows)}"
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
