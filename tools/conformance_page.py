"""Writes docs/reference/conformance.md from the checks themselves.

Run ``python -m tools.conformance_page [FILE]`` in the root of the repository.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from gateway_ops.conformance.suite import GROUPS

_PAGE = Path("docs/reference/conformance.md")
_HEAD = """\
# Conformance

<!-- Written by `python -m tools.conformance_page`: change the checks in gateway_ops/conformance/ instead. -->

For operators who choose or change a server, and for its developers: what a server that speaks OpenAI's API says of its
answers, and whether it is true.

    gateway check http://127.0.0.1:9000 --conformance
    gateway check https://example.com/v1 --conformance --model llama3 --json

It asks any server, this gateway or another, with nothing but its URL and the name of a model (the one that it lists,
where there is one only). A key goes with `--api-key` or `GATEWAY_API_KEY`. The requests are small: about a hundred,
most of 16 tokens, one after another, and at the end one prompt that is longer than the context (140,000 words where the
server does not tell its context). On the CPU of `make up` it takes about two minutes;
standard error shows how many checks have run and how long the others may take. `--timeout` bounds each
answer, in seconds (60); all of it ends after ten minutes, and no answer is read beyond 4 MiB.

Each check comes to one of four verdicts:

| verdict | meaning |
|---|---|
| untrue | an answer is against the promise: the evidence, and the `curl` line that shows it again |
| cannot tell | no answer shows either; the reason |
| not offered | the server rejects it and names it, which is honest |
| true | no answer was against it; these are counted, and named with `--verbose` |

The exit status is 1 where something is untrue, where nothing can be checked (no server at the URL, a wrong key, a
model that is not served), and where not all could be asked: the server has gone, or four answers or all of it took too
long. `--json` prints all of it as one object: `ok`, `counts`, and `checks` with `group`, `name`, `promise`, `source`,
`verdict`, `evidence` and `curl`.

Nothing is judged by taste, by speed or by what a model says, only by what answers say of themselves and of each other.
No tokenizer is used. Requests are greedy with a fixed seed. Where two answers that should be alike differ, both are
asked for again; a server that answers the same greedy request in two ways gets "cannot tell". So does this gateway for
`cancel-frees` where it does not relay the metrics of its engine (`metrics_url`). A `curl` line has the key as
`$GATEWAY_API_KEY`.

What is not looked at: parameters whose effect no answer proves (`presence_penalty`, `user`, `store`), the default of
`max_tokens` in completions, other endpoints, and all that an answer cannot show, such as what is logged.
"""


def render() -> str:
    """The page."""
    return "\n".join([_HEAD, *_sections()])


def _sections() -> Iterator[str]:
    pages = {check.source: None for group in GROUPS for check in group.checks}
    names = {url: url.rstrip("/").rsplit("/", 1)[-1].removesuffix(".html") for url in pages}
    for group in GROUPS:
        yield f"## {group.title}\n"
        yield "| check | promise | source |"
        yield "|---|---|---|"
        for check in group.checks:
            yield f"| `{check.name}` | {check.promise} | [{names[check.source]}] |"
        yield ""
    for url, name in names.items():
        yield f"[{name}]: {url}"
    yield ""


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else _PAGE).write_text(render(), encoding="utf-8")
