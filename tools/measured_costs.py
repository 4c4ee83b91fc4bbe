"""Writer of the gateway's costs that ``gateway plan-fleet`` reckons with, out of the tables of benchmarks/README.md.

Run: ``python -m tools.measured_costs`` (part of ``make docs``).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "benchmarks" / "README.md"
FILE: Final = ROOT / "gateway_ops" / "plan_fleet" / "measured_costs.json"
_PROMPT_TOKENS: Final = re.compile(r"a prompt of (\d+) tokens")
_TEMPLATE_MS: Final = re.compile(r"Template and tokenization: ([\d.]+) ms")


def section(page: str, mode: str) -> tuple[str, str]:
    """The results of a mode, and the sentence that says how and where they were measured, without versions."""
    text = page.partition(f"<!-- results: {mode} -->\n")[2].partition(f"<!-- end: {mode} -->")[0].strip()
    about = text.partition("\n")[0].partition(", load average")[0].replace("`", "")
    return text, about


def rows(text: str, first: str) -> list[dict[str, str]]:
    """The rows of the table whose first column has a heading, by column."""
    found: list[dict[str, str]] = []
    names: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            names = []
        elif cells[0] == first:
            names = cells
        elif names and not cells[0].startswith("---"):
            found.append(dict(zip(names, cells, strict=True)))
    return found


def costs(page: str, transport: str) -> dict[str, Any]:
    """The costs of a transport as ``gateway_ops.plan_fleet.gateway_costs`` reads them."""
    kind = f"gateway tokens {transport}"
    requests, requests_by = section(page, "requests")
    relay, relay_by = section(page, "relay")
    memory, memory_by = section(page, "memory")
    triton, triton_by = section(page, "triton")
    (request,) = (row for row in rows(requests, "") if row[""] == kind)
    (token,) = (row for row in rows(relay, "64x20ms") if row["64x20ms"] == kind)
    streams = [row for row in rows(memory, "") if row[""] == kind]
    most = max(streams, key=lambda row: int(row["streams at 1 token/s"].replace(",", "")))
    (called,) = (row for row in rows(triton, "called") if (row["called"], row["streams"]) == ("tokens", "64"))
    prompt, template = _PROMPT_TOKENS.search(requests), _TEMPLATE_MS.search(requests)
    if prompt is None or template is None:
        raise ValueError(f"{PAGE} no longer says what a prompt costs, or how long it was")
    beyond = float(request["of it beyond template and tokenization"])
    most_streams = int(most["streams at 1 token/s"].replace(",", ""))
    stream_kb, worker_mb = max(float(row["KB a stream"]) for row in streams), float(request["resident MB when ready"])
    token_us, triton_us = float(token["CPU us/token"]), float(called["tritonserver"])
    return {
        "request_s": round(beyond / 1000, 9),
        "prompt_token_s": round(float(template[1]) / 1000 / int(prompt[1]), 9),
        "token_s": round(token_us / 1e6, 9),
        "worker_bytes": worker_mb * 1e6,
        "stream_bytes": stream_kb * 1e3,
        "most_streams": most_streams,
        "triton_token_s": round(triton_us / 1e6, 9),
        "sources": [
            f"a request takes {beyond:g} ms of a core, and {template[1]} ms for {prompt[1]} tokens of prompt: "
            f"{requests_by}",
            f"a token takes {token_us:g} us of a core, 64 answers of 20 ms a token ({transport}): {relay_by}",
            f"a worker takes {worker_mb:g} MB, and {stream_kb:g} KB for an answer that runs, {most_streams:,} of which "
            f"it was seen to carry: {requests_by}; {memory_by}",
            f"Triton takes {triton_us:g} us of a core for a token, beside its engine: {triton_by}",
        ],
    }


def document() -> str:
    """The file's content."""
    page = PAGE.read_text(encoding="utf-8")
    return json.dumps({transport: costs(page, transport) for transport in ("h2", "grpcio")}, indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(document(), encoding="utf-8")
