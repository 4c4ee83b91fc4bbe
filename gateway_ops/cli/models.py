"""``gateway models``: lists the models of a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from gateway.text.harmless import one_line
from gateway_ops.cli.console import echo_json, fail
from gateway_ops.cli.fitted_table import Column, fitted
from gateway_ops.cli.shared_options import LOCAL_URL, ApiKey, Json, ServerUrl

_LIST_TIMEOUT_S = 10.0
_LENGTHS = ("max_model_len", "context_length", "context_window", "max_context_length")
_OWN = (
    "ready",
    "state",
    "reason",
    "task",
    "path",
    "triton_model",
    "family",
    "max_top_logprobs",
    "guide_types",
    "streams",
    "endpoints",
)
_COLUMNS = ("model", "state", "context", "task", "path", "family", "log-probs", "guides", "streams", "endpoints")
_NOT_READY = "not ready"
_ELIDED = {"model", "state"}
_SPARE = {"task": 7, "guides": 6, "streams": 5, "endpoints": 4, "log-probs": 3, "family": 2, "path": 1}  # drops 7 first


def models(
    url: ServerUrl = LOCAL_URL,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """List the models of a server with their status; `gateway check URL` shows the features of each model."""
    from gateway_ops.chat.chat_server import ChatServer  # noqa: PLC0415 - the other commands need none of it
    from gateway_ops.chat.streamed_answer import ChatError  # noqa: PLC0415

    try:
        server = ChatServer(url, api_key, _LIST_TIMEOUT_S)
        listed, health = server.models(), server.health()
        rows = [_row(each, health) for each in listed]
    except ChatError as error:
        raise fail(one_line(str(error))) from None
    if as_json:
        echo_json({"models": rows})
        return
    cells = [{name: one_line(text) for name, text in zip(_COLUMNS, _cells(row), strict=True)} for row in rows]
    known = [name for name in _COLUMNS if name == "model" or any(cell[name] for cell in cells)]
    console = Console(highlight=False)
    if console.is_terminal:
        _show_table(console, known, cells)
        return
    for line in (known, *([cell[name] for name in known] for cell in cells)):
        typer.echo("\t".join(line))


def _show_table(console: Console, known: list[str], cells: list[dict[str, str]]) -> None:
    """Print the columns that fit into the terminal, and below in full why models are not ready."""
    reasons = [f"{cell['model']} is {cell['state']}" for cell in cells if cell["state"].startswith(_NOT_READY)]
    for cell in cells:
        cell["state"] = _NOT_READY if cell["state"].startswith(_NOT_READY) else cell["state"]
    columns = [Column(name, name=name in _ELIDED, spare=_SPARE.get(name, 0)) for name in known]
    table, left_out = fitted(columns, [[Text(cell[name] or "-") for name in known] for cell in cells], console.width)
    console.print(table)
    for reason in reasons:
        console.print(Text(reason, "red"))
    if left_out:
        console.print(Text(f"columns that do not fit: {', '.join(left_out)}", "dim"))


def _row(model: dict[str, Any], health: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Make the row of a model from its entry and its server's health; unknown fields are null."""
    own = model.get("gateway")
    own = own if isinstance(own, dict) else {}
    known = {
        key: value for key, value in health.get(str(own.get("model", "")), {}).items() if key in {"state", "reason"}
    }
    own = {**own, **known} if own.get("ready") is False else own
    return {
        "id": model["id"],
        "alias_of": own.get("model") if own.get("model") != model["id"] else None,
        "owned_by": model.get("owned_by"),
        "context": next((model[name] for name in _LENGTHS if isinstance(model.get(name), int)), None),
        **{name: own.get(name) for name in _OWN},
    }


def _cells(row: dict[str, Any]) -> Iterator[str]:
    """The row of the table, empty where nothing is known."""
    yield row["id"]
    state = "" if row["ready"] is None else "ready"
    if row["ready"] is False:
        what = f"{row['state']}: " if row["state"] else ""
        state = f"{_NOT_READY}: {what}{row['reason'] or 'the gateway gives no reason'}"
    yield f"{state} (another name of {row['alias_of']})" if row["alias_of"] else state
    yield "" if row["context"] is None else f"{row['context']:,}"
    yield str(row["task"] or "")
    yield str(row["path"] or "")
    yield str(row["family"] or "")
    alternatives = row["max_top_logprobs"]
    yield "" if alternatives is None else (f"{alternatives} alternatives" if alternatives else "none")
    yield _listed(row["guide_types"])
    yield str(row["streams"] or "")
    yield _listed(row["endpoints"])


def _listed(value: Any) -> str:
    if not isinstance(value, list):
        return ""
    return ", ".join(str(each.get("state") if isinstance(each, dict) else each) for each in value) or "none"
