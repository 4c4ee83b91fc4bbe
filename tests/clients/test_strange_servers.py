"""Commands for operators on servers that are not a gateway, or are one gone wrong: a sentence, and no traceback."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway_ops.cli.root import app
from tests.raw_server import raw_server, read_request

_ACTING = "m\x9b31m\x1b[2J\u202e\u2028\x85z"
_SHOWN = r"m\x9b31m\x1b[2J\u202e\u2028\x85z"
_SHOWN_IN_JSON = r"m\u009b31m\u001b[2J\u202e\u2028\u0085z"
_METRICS = '# TYPE gateway_model_ready gauge\ngateway_model_ready{{model="{0}"}} 1\n{1}\n'.format
_COMMANDS = {
    "bench": ("--requests", "1", "--warm-up", "0"),
    "chat": ("-m", "Hi"),
    "check": (),
    "compare": ("{url}#other",),
    "models": (),
    "top": ("--once", "--interval", "0.1"),
}


def _http(body: str | bytes, kind: str = "application/json") -> bytes:
    body = body if isinstance(body, bytes) else body.encode("utf-8", "surrogatepass")
    return f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def _run(command: str, answers: dict[str, bytes], *options: str) -> tuple[int, str]:
    """The exit status of a command and all that it prints, on a server that has these answers by path."""

    def serve(peer: socket.socket) -> None:
        head, _ = read_request(peer)
        path = head.split(b" ")[1].decode()
        peer.sendall(answers.get(path, answers.get("", b"")))

    with raw_server(serve) as url:
        rest = (each.format(url=url) for each in (*_COMMANDS.get(command, ()), *options))
        done = CliRunner().invoke(app, [command, url, *rest], env={"COLUMNS": "300"})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def _list(*models: Any) -> bytes:
    return _http(json.dumps({"object": "list", "data": models}))


def _stream(event: str) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + f"data: {event}\n\ndata: [DONE]\n\n".encode()


_STRANGE: dict[str, dict[str, bytes]] = {
    "closed": {},
    "HTML": {"": _http(f"<html>{_ACTING}</html>", "text/html")},
    "deep JSON": {"": _http("[" * 50_000)},
    "numbers for models": {"": _list(5)},
    "models of another form": {
        "": _list({"id": "m", "gateway": {"model": [1], "ready": False, "state": {}, "endpoints": [[1]]}})
    },
}
_LIKE_OTHERS = {"closed", "numbers for models"}  # read by the same code as another kind: in long runs alone


@pytest.mark.parametrize(
    "strange",
    [pytest.param(strange, marks=[pytest.mark.long] * (strange in _LIKE_OTHERS)) for strange in _STRANGE],
)
@pytest.mark.parametrize("command", _COMMANDS)
def test_a_strange_server_is_an_error(command: str, strange: str) -> None:
    status, told = _run(command, _STRANGE[strange])
    assert all(line.isprintable() for line in told.replace("\t", "").split("\n"))
    if "models" not in strange or command not in {"chat", "models"}:
        assert status != 0
        assert "error: " in told


@pytest.mark.parametrize(
    "lines",
    [
        'gateway_endpoint_state{model="m"} 1',
        "gateway_overload_state 1",
        "gateway_triton_metrics_up 1",
        'gateway_model_state{model="m"} 1',
        "# TYPE gateway_time_to_first_token_seconds histogram\n"
        'gateway_time_to_first_token_seconds_bucket{model="m",le="few"} 1',
        "# TYPE",
    ],
)
def test_metrics_of_another_form_end_top_with_a_sentence(lines: str) -> None:
    answers = {"/metrics": _http(_METRICS("m", lines), "text/plain"), "": _http("[]")}
    status, told = _run("top", answers)
    assert status == 1
    assert told.startswith("error: http://127.0.0.1:")
    assert told.count("\n") == 1
    assert "no metrics of this gateway" in told


@pytest.mark.parametrize("event", ["5", '{"choices": [{"delta": 5}]}', '{"usage": {"prompt_tokens": []}}'])
def test_events_of_another_form_are_failures_of_bench(event: str) -> None:
    status, told = _run("bench", {"/v1/models": _list({"id": "m"}), "": _stream(event)})
    assert status == 1
    assert "failed: 1 x an event that is not a chat completion chunk" in told


def _acting() -> dict[str, bytes]:
    entry = {"id": _ACTING, "gateway": {"model": _ACTING, "ready": False, "reason": f"{_ACTING}\n{_ACTING}"}}
    return {
        "/metrics": _http(_METRICS(_ACTING, f'gateway_endpoint_state{{model="{_ACTING}",endpoint="e",state="x"}} 1')),
        "/v1/models": _list(entry),
        "/health/ready": _http('{"models": {}}'),
        "/v1/chat/completions": _stream(json.dumps({"error": {"code": _ACTING}})),
        "": _http(json.dumps(entry)),
    }


@pytest.mark.parametrize("command", ["bench", "models", "top", "check"])
def test_names_of_a_server_do_not_act_upon_the_terminal(command: str) -> None:
    _, told = _run(command, _acting())
    assert _SHOWN in told
    assert all(line.isprintable() for line in told.replace("\t", " ").split("\n"))


@pytest.mark.parametrize("command", ["bench", "models", "top", "check"])
def test_json_of_a_command_does_not_act_upon_the_terminal(command: str) -> None:
    _, printed = _run(command, _acting(), "--json")
    assert _SHOWN_IN_JSON in printed
    assert all(line.isprintable() for line in printed.split("\n"))


def test_a_report_does_not_act_upon_the_terminal(tmp_path: Path) -> None:
    _, printed = _run("report", _acting(), "--url", "{url}", "--yes", "-o", str(tmp_path / "report.json"))
    assert _SHOWN_IN_JSON in printed
    assert all(line.isprintable() for line in printed.split("\n"))
    written = (tmp_path / "report.json").read_text(encoding="utf-8")
    assert printed.startswith(written)
    assert list(json.loads(written)["models"]) == [_ACTING]
