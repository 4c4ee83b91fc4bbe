"""The output of ``gateway check``: problems first, then each model in short or with every parameter."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gateway.text.harmless import harmless, harmless_values
from gateway_ops.cli.fitted_table import packed

# Each in the order in which the command prints it.
_STYLES = {"error": "bold red", "warning": "yellow", "info": "dim"}
_HOW = {"impossible": "red", "emulated": "cyan", "native": "green"}
_UNLIMITED = 10_000  # letters of a line where no terminal sets a limit

# What a model is chosen for, by the parameter that stands for it.
_FEATURES = {
    "stream": "streams",
    "tools": "tools",
    "tool_choice": "guaranteed tool calls",
    "json_schema": "JSON schemas",
    "grammar": "grammars",
    "top_logprobs": "log-probs",
    "prompt_logprobs": "log-probs of prompts",
    "n": "several answers",
    "seed": "seeds",
    "stop": "stop strings",
    "presence_penalty": "penalties",
    "logit_bias": "logit_bias",
    "return_token_ids": "token ids",
    "lora": "LoRA",
    "use_beam_search": "beam search",
    "num_draft_tokens": "draft models",
}


def show(values: dict[str, Any], *, verbose: bool) -> None:
    """Print a report for a terminal, or in lines for programs.

    Args:
        values: as of ``Report.as_json``.
        verbose: whether to print how each parameter is served.
    """
    shown = harmless_values(values)
    for model, given in zip(shown["models"].values(), values["models"].values(), strict=True):
        model["settings"] = [harmless(line) for line in given["settings"]]  # indentation is part of YAML
    console = Console(highlight=False)
    if console.is_terminal:
        _show_on_terminal(console, shown, verbose)
    else:
        _print_lines(shown, verbose)


def _print_lines(values: dict[str, Any], verbose: bool) -> None:
    """Print one line for each finding, as compilers do, the gravest first; then what each model can do."""
    for finding in _gravest_first(values["findings"]):
        typer.echo(f"{finding['where']}: {finding['severity']}: {finding['what']} {finding['fix']}".rstrip())
    for name, model in values["models"].items():
        typer.echo(_headline(name, model))
        if verbose:
            for how, parameters, note in _abilities(model["capabilities"]):
                typer.echo(f"  {how}: {parameters}{note and f': {note}'}")
        else:
            for line in _in_short(model, _UNLIMITED):
                typer.echo(line)
    if not verbose and (hint := _hint(values)):
        typer.echo(hint)
    typer.echo(_summary(values))
    if values["traffic"]:
        typer.echo(f"ready for traffic: {values['traffic']}")


def _show_on_terminal(console: Console, values: dict[str, Any], verbose: bool) -> None:
    for severity, findings in groupby(_gravest_first(values["findings"]), key=lambda each: each["severity"]):
        console.print(Text(severity, _STYLES[severity]))
        for where, there in groupby(findings, key=lambda each: each["where"]):
            console.print(Padding(Text(where, "bold"), (0, 0, 0, 2), expand=False))
            for finding in there:
                said = f"{finding['what']} {finding['fix']}".rstrip()
                console.print(Padding(Text(said), (0, 0, 0, 4), expand=False))
        console.print()
    for name, model in values["models"].items():
        console.print(Text(_headline(name, model), "bold"))
        if verbose and model["capabilities"]:
            table = Table("served", "parameters", "how", show_edge=False)
            for how, parameters, note in _abilities(model["capabilities"]):
                table.add_row(Text(how, _HOW[how]), Text(parameters), Text(note))
            console.print(table)
        elif not verbose:
            for line in _in_short(model, console.width):
                console.print(Text(line))
        console.print()
    if not verbose and (hint := _hint(values)):
        console.print(Text(hint, "dim"))
    console.print(Text(_summary(values), "green" if values["ok"] else "bold red"))
    _show_traffic(console, values["traffic"])


def _show_traffic(console: Console, traffic: str | None) -> None:
    if traffic:
        console.print(Text(f"ready for traffic: {traffic}", "green" if traffic == "yes" else "bold red"))


def _gravest_first(findings: list[dict[str, str]]) -> list[dict[str, str]]:
    return sorted(findings, key=lambda finding: list(_STYLES).index(finding["severity"]))


def _in_short(model: dict[str, Any], width: int) -> Iterator[str]:
    """The features that a model is chosen for: those that it has, those that it has not, and those that are open.

    Behind them come the settings that were found out.
    """
    capabilities = model["capabilities"]
    known = {name: capabilities[name] for name in _FEATURES if name in capabilities}
    for word, wanted in (("can", True), ("cannot", False)):
        features = [
            f"{_FEATURES[name]}{_limit(capability)}"
            for name, capability in known.items()
            if (capability["how"] != "impossible") is wanted
        ]
        if features:
            yield packed([f"  {word}: {features[0]}", *features[1:]], width, indent="    ")
    if known and "tools" not in known:  # a Triton was asked, which has no chat template
        yield "  up to the chat template: tools that the model chooses"
    yield from model["settings"]


def _abilities(capabilities: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """A model's abilities: missing ones, those of the gateway, and its own.

    Yields:
        how parameters are served, those that have this and the note in common, and the note; native ones have none.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for parameter, capability in sorted(capabilities.items()):
        how = capability["how"]
        note = "" if how == "native" else capability["note"]
        groups.setdefault((how, note), []).append(f"{parameter}{_limit(capability)}")
    for (how, note), parameters in sorted(groups.items(), key=lambda group: list(_HOW).index(group[0][0])):
        yield how, ", ".join(parameters), note


def _headline(name: str, model: dict[str, Any]) -> str:
    path = f"the {model['path']} path" if model["path"] else "not discovered yet"
    context = f", {model['max_seq_len']} tokens of context" if model["max_seq_len"] else ""
    return f"{name}: {path} to {model['triton_model']}{context}: {model['reason']}"


def _limit(capability: dict[str, Any]) -> str:
    return "" if capability["limit"] is None else f" up to {capability['limit']}"


def _hint(values: dict[str, Any]) -> str:
    """Name the option that shows the omitted capabilities; empty where nothing is omitted."""
    if not any(model["capabilities"] for model in values["models"].values()):
        return ""
    return "How each parameter is served, and why a parameter is rejected: --verbose"


def _summary(values: dict[str, Any]) -> str:
    counts = dict.fromkeys(("error", "warning"), 0)
    for finding in values["findings"]:
        if finding["severity"] in counts:
            counts[finding["severity"]] += 1
    said = [f"{count} {severity}{'s' if count > 1 else ''}" for severity, count in counts.items() if count]
    return ", ".join(said) or "No problems found."
