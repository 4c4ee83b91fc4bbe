"""The versions of docs/reference/served.md, made of the doubles, the capability maps and the expectations.

Run ``python -m tests.dialects.page`` in the root of the repository.
"""

from __future__ import annotations

import string
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from gateway.api.openai.parameters.row import Parameter
from gateway.api.openai.parameters.table import PARAMETERS, served
from gateway.generation.engine import EngineFeatures
from gateway.triton.abilities import EngineOptions
from gateway.triton.discovery import describe
from gateway.triton.inspection import read_model_file
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import assemble, called_models
from tests.dialects.dialects import DIALECTS, VLLM_SERVED, Dialect
from tests.dialects.expectations import DEVIATIONS, expected
from tests.dialects.samples import SAMPLES
from tests.doubles.llmapi.repository import LlmapiConfig, write_model
from tests.doubles.llmapi.versions import VERSIONS as LLMAPI_VERSIONS
from tests.doubles.stock.repository import BLS, TRIO, Stock, write_stock
from tests.doubles.stock.repository import VERSIONS as STOCK_VERSIONS
from tests.doubles.text.text_server import vllm_config
from tools.generated_part import replaced

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "served.md"
PART = "versions"
_HEAD = """\

## Versions

Each row is a stock repository of upstream, of which `tests/doubles/` has doubles that run on the real tritonserver.
Tests ask each of them for every parameter, and see the effect in the engine, or the error that names the parameter. The
text of an answer is the same in all rows, whole and streamed, where a stream is not rejected.

- **exact**: the engine follows the parameter with the value of the request;
- **emulated**: the gateway does it around the engine, with the same effect;
- **rejected**: 400 that names the parameter, as long as `policies` do not say otherwise.

The letters are [groups of parameters](#groups). Counts are of tokens in `usage`: those that are not exact are marked
`estimated` in the answer. Of the engine family there are doubles of {engines}; of the LLM API of
{llmapi}. The numbers in brackets are Triton's images. Of Triton's vLLM backend there are doubles of {vllm}.

| dialect | TensorRT-LLM (Triton) | a stream comes | estimated counts | exact | emulated | rejected |
|---|---|---|---|---|---|---|
"""
_GROUPS = """
### Groups

Parameters that are served alike in every row. What nothing here serves is in [parameters.md](parameters.md).

"""
_REASONS = """
### Why

What is not exact and piece by piece, where, and the reason.

"""

_IMAGES = {
    "0.12": ("24.08", "24.08"),
    "0.16": ("24.12", "24.12"),
    "0.19": ("25.05", "25.05"),
    "1.0": ("25.09", "25.11"),
    "1.2": ("26.03", "26.07"),
    "1.2.1": ("26.04", "26.07"),
}
"""Triton's first and last image with a version, by wire contract 0.1; of 1.3 none is known."""

_KINDS = {
    "tokens": "ensemble by token ids", "ensemble": "ensemble by text", "bls": "BLS",
    "bls-accumulate": "BLS, `accumulate_tokens`", "llmapi": "LLM API", "vllm": "vLLM backend",
}  # fmt: skip
_VARIANTS = {"guided": "guided decoder", "unary": "not decoupled"}
_COUNTS = {"usage": "most", "usage after stop": "cut by `stop`"}
_STREAMS = {"served": "as it grows", "one event": "in one event", "rejected": "not: 400"}


@dataclass(frozen=True)
class Row:
    """A dialect on the page; versions with the same one share a row. Outcomes are those of each sample."""

    name: str
    stream: str
    counts: str
    outcomes: tuple[tuple[str, str], ...]


def features(dialect: Dialect, folder: Path) -> EngineFeatures:
    """What the gateway makes of a dialect's configurations, which are written to an empty folder."""
    if dialect.kind == "vllm":
        return describe(assemble(ModelView.of(vllm_config(dialect.version)), {}), "auto")
    if dialect.kind == "llmapi":
        entry = "tensorrt_llm"
        write_model(folder, LlmapiConfig(dialect.version, entry), folder)
    else:
        entry = BLS if dialect.kind.startswith("bls") else "ensemble"
        write_stock(
            folder,
            Stock(dialect.version, **dialect.options),
            {model: model for model in (*TRIO, "ensemble", BLS)},
            tokenizer=folder,
            engine_dir=folder,
            accumulate=dialect.kind == "bls-accumulate",
        )
    views = {file.parent.name: read_model_file(file) for file in folder.glob("*/config.pbtxt")}
    models = assemble(views[entry], {each: views[each] for each in called_models(views[entry])})
    options = EngineOptions(
        version=tuple(map(int, dialect.version.split("."))),
        text_streaming=dialect.settings.get("text_streaming", "reject"),
    )
    return describe(models, dialect.settings.get("path", "auto"), options)


def outcomes(dialect: Dialect, found: EngineFeatures) -> dict[str, str]:
    """What becomes of the parameter of each sample, but for those without effect by nature, and those of streams."""
    words = {}
    for name in SAMPLES:
        row = find(name)
        if row.kind == "engine" and not name.startswith("stream"):
            how = "exact" if served(row, found.capabilities).how == "native" else "emulated"
            words[name] = "rejected" if expected(dialect, name) == "rejected" else how
    return words


def find(sample: str) -> Parameter:
    """The parameter of a sample."""
    endpoint, _, name = sample.rpartition(":")
    return next(row for row in PARAMETERS if row.name == name and (endpoint or "chat") in row.endpoints)


def rows() -> dict[Row, list[str]]:
    """The rows, each with its versions."""
    grouped: dict[Row, list[str]] = {}
    for dialect in DIALECTS:
        if dialect.spelling == "bytes":
            with TemporaryDirectory() as folder:
                row = _row(dialect, features(dialect, Path(folder)))
            grouped.setdefault(row, []).append(dialect.version)
    return grouped


def _row(dialect: Dialect, found: EngineFeatures) -> Row:
    whole = "`text_streaming: whole`" if dialect.settings.get("text_streaming") == "whole" else ""
    name = ", ".join(filter(None, (_KINDS[dialect.kind], _VARIANTS.get(dialect.variant, ""), whole)))
    return Row(
        name,
        _STREAMS[expected(dialect, "stream")],
        next((words for what, words in _COUNTS.items() if expected(dialect, what) == "estimated"), "none"),
        tuple(outcomes(dialect, found).items()),
    )


def render() -> str:
    """The part of the page."""
    found = rows()
    groups = _groups(list(found))
    lines = [_line(row, versions, groups) for row, versions in found.items()]
    listed = [_item(f"**{letter}**: {_names(names)}") for letter, names in groups.items()]
    head = _HEAD.format(
        engines=", ".join(STOCK_VERSIONS), llmapi=", ".join(LLMAPI_VERSIONS), vllm=", ".join(VLLM_SERVED)
    )
    return "\n".join([head + "\n".join(lines), _GROUPS + "\n".join(listed), _REASONS + "\n".join(_reasons()), ""])


def _groups(found: list[Row]) -> dict[str, tuple[str, ...]]:
    """Samples by letter: those with the same outcome in every row."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for index, (name, _) in enumerate(found[0].outcomes):
        alike.setdefault(tuple(row.outcomes[index][1] for row in found), []).append(name)
    return dict(zip(string.ascii_uppercase, map(tuple, alike.values()), strict=False))


def _line(row: Row, versions: list[str], groups: dict[str, tuple[str, ...]]) -> str:
    of = dict(row.outcomes)
    cells = {
        word: " ".join(letter for letter, names in groups.items() if of[names[0]] == word)
        for word in ("exact", "emulated", "rejected")
    }
    return f"| {' | '.join((row.name, _range(versions), row.stream, row.counts, *cells.values()))} |"


def _range(versions: list[str]) -> str:
    images = [image for version in versions for image in _IMAGES.get(version, ())]
    if versions[0] in VLLM_SERVED:
        return f"({_ends(versions)})"
    return f"{_ends(versions)} ({_ends(images) if images else 'no image known'})"


def _ends(ordered: list[str]) -> str:
    return " to ".join(dict.fromkeys((ordered[0], ordered[-1])))


def _reasons() -> Iterator[str]:
    for each in DEVIATIONS:
        yield _item(f"{_names(each.what)}: *{each.outcome}* by {each.where.name}. {each.why}")


def _names(names: tuple[str, ...]) -> str:
    """Names of parameters; those of completions alone say so."""
    words = ((name.removeprefix("completions:"), name.startswith("completions:")) for name in names)
    return ", ".join(f"`{name}`{' (completions)' if alone else ''}" for name, alone in words)


def _item(text: str) -> str:
    return textwrap.fill(
        text, 120, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), PART, render()), encoding="utf-8")
