"""``gateway check URL --conformance`` as users run it, on servers of all kinds."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pty
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gateway_ops.conformance import suite
from tests.bound_process import BoundProcess
from tests.gateway_ops.conformance.honest_server import KEY, MODEL, HonestServer, Lie, Reply
from tests.gateway_ops.conformance.lies import LIES, of_stream
from tests.ports import free_port
from tests.raw_server import raw_server, read_request
from tests.warm_gateways import gateway

GATEWAY = Path(sys.executable).with_name("gateway")


def check(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return gateway("check", url, "--conformance", *arguments, timeout=120, GATEWAY_API_KEY=KEY)


def checked(lie: Lie, *options: str) -> dict[str, dict[str, Any]]:
    """What is found of a server that lies, by the names of checks."""
    with HonestServer(lie) as server:
        values = json.loads(check(server.url, "--json", *options).stdout)
    return {each["name"]: each for each in values["checks"]}


def test_an_honest_server_is_green_with_its_url_alone() -> None:
    with HonestServer() as server:
        done = check(f"{server.url}/v1/", "--json")
    values = json.loads(done.stdout)
    assert [each for each in values["checks"] if each["verdict"] in {"untrue", "cannot tell"}] == []
    assert (done.returncode, values["ok"], values["model"]) == (0, True, MODEL)
    assert values["counts"]["true"] == len(values["checks"]) - 1
    first = values["checks"][0]
    assert (first["group"], first["name"], first["verdict"], first["curl"]) == ("Usage", "usage-present", "true", [])


def test_what_is_untrue_comes_first_with_lines_that_can_be_copied() -> None:
    with HonestServer(LIES["form-id"]()) as server:
        done = check(server.url, "--model", MODEL)
    lines = done.stdout.splitlines()
    assert done.returncode == 1
    assert lines[:4] == [
        "untrue: 1", "  Form of responses", "    form-id: Each response has a different `id`.",
        "      but two responses have the `id` chatcmpl-1",
    ]  # fmt: skip
    for line in lines[4:6]:
        assert line.startswith(f"      curl -sS -i -N {server.url}/v1/chat/completions -H ")
        assert line.endswith("}'")
    assert KEY not in done.stdout
    assert "usage-total" not in done.stdout  # true, and so one of those that are counted only
    assert lines[-2].endswith("--verbose")
    assert lines[-1].startswith(f"{server.url} {MODEL}: 1 untrue, 1 not offered, ")


def test_a_terminal_gets_tables() -> None:
    ours, theirs = pty.openpty()
    with HonestServer(LIES["form-id"]()) as server:
        command = [GATEWAY, "check", server.url, "--conformance", "--verbose", "--api-key", KEY]
        with BoundProcess(command, stdout=theirs, stderr=theirs) as process:
            os.close(theirs)
            shown = b""
            with contextlib.suppress(OSError):  # how a terminal says that nobody writes any more
                while data := os.read(ours, 4096):
                    shown += data
    os.close(ours)
    assert process.returncode == 1
    total = sum(len(group.checks) for group in suite.GROUPS)
    assert f"of {total} checks, about ".encode() in shown
    assert shown.index(b"untrue: 1") < shown.index(b"not offered: 1") < shown.index(b"true: 10")


def test_how_far_it_is_goes_to_standard_error() -> None:
    with HonestServer() as server:
        met, first, *lines = check(server.url, "--api-key", KEY).stderr.splitlines()
    sizes = [len(group.checks) for group in suite.GROUPS]
    assert (met, first) == ("Connecting to the server", f"{suite.GROUPS[0].title} ({sum(sizes)} checks)")
    for number, (group, line) in enumerate(zip(suite.GROUPS[1:], lines, strict=True), 1):
        told = f"{sum(sizes[:number])} of {sum(sizes)} checks, about "
        assert re.fullmatch(rf"{re.escape(f'{group.title} ({told}')}\d+ s to go\)", line)


def unfit(url: str, model: str | None = None, key: str | None = KEY, timeout_s: float = 20.0) -> str:
    """Why nothing can be checked."""
    with pytest.raises(suite.UnsuitableServerError) as caught:
        suite.meet(url, model, key, timeout_s)
    return str(caught.value)


def test_what_is_no_server() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    done = check(url)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith(f"error: {url} is unreachable (")
    assert done.stderr.endswith("): give the URL of a running server\n")
    done = check("gateway.yaml")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: --conformance needs the URL of a server: http://... or https://...\n"
    with raw_server(lambda peer: [None for _ in iter(lambda: peer.recv(4096), b"")]) as hangs:
        said = f"{hangs} is not a server of the API: the response had not ended after 1 s"
        assert unfit(hangs, timeout_s=1) == said
    assert "is not the URL of a server" in unfit("http://")
    assert "is not a URL" in unfit("http://host:port")
    with raw_server(lambda peer: peer.sendall(b"220 mail.example.com ready\r\n")) as mail:
        said = f"{mail} is not a server of the API: the server sent no HTTP response (BadStatusLine: 220 mail"
        assert unfit(mail).startswith(said)


def test_a_server_that_stops_answering_has_not_passed() -> None:
    """Nothing of it is untrue then, and most of it was not asked."""
    asked = itertools.count()

    def stop(_body: dict[str, Any], _reply: Reply) -> None:
        if next(asked) == 2:  # the requests by which it is met
            threading.Thread(target=server.http.shutdown).start()

    with HonestServer(Lie(after=stop)) as server:
        done = check(server.url, "--json", "--timeout", "1")
    values = json.loads(done.stdout)
    assert values["counts"]["untrue"] == 0
    assert (done.returncode, values["ok"]) == (1, False)


def test_a_wrong_key_and_a_model_that_is_not_served() -> None:
    with HonestServer() as server:
        assert "give a key of the server with --api-key" in unfit(server.url, key="sk-wrong")
        assert "give a key of the server with --api-key" in unfit(server.url, key=None)
        assert "a header cannot contain" in unfit(server.url, key="sk-\u00fc")
        done = check(server.url, "--model", "gpt-9")
    assert done.returncode == 1
    assert done.stderr.endswith(f"error: the model gpt-9 is not served; the server lists {MODEL}\n")


def _two_models(body: dict[str, Any], reply: Reply) -> None:
    reply.json["data"].append({**reply.json["data"][0], "id": "other\x1b[31m"})


def test_a_model_is_named_where_there_are_several() -> None:
    with HonestServer(Lie(after=_two_models, path="/v1/models")) as server:
        assert unfit(server.url) == f"name a model with --model; the server lists {MODEL}, other\\x1b[31m"


def _huge(peer: socket.socket) -> None:
    read_request(peer)
    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[")
    while True:
        peer.sendall(b"[" * 65536)


def test_a_huge_answer_is_bounded() -> None:
    began = time.monotonic()
    with raw_server(_huge) as server:
        assert "the response has more than 4 MiB or 5000 events" in unfit(server, "any")
    assert time.monotonic() - began < 60


def _endless(events: list[Any]) -> None:
    events[:] = itertools.repeat(events[1], 20_000)


def test_a_stream_without_end_is_untrue_and_bounded() -> None:
    found = checked(of_stream(_endless))
    assert found["stream-done"]["verdict"] == "untrue"
    assert found["stream-done"]["evidence"] == "the response has more than 4 MiB or 5000 events"
    assert found["usage-total"]["verdict"] == "true"


def _trickle(body: dict[str, Any], reply: Reply) -> None:
    if reply.events:
        body["max_tokens"] = 10**6  # which takes its time with each event
        reply.events = [reply.events[1]] * 2000


def test_a_stream_that_trickles_ends_by_the_clock() -> None:
    found = checked(Lie(after=_trickle), "--timeout", "1")
    assert found["stream-done"]["evidence"] == "the streamed response: the response had not ended after 1 s"
    assert found["logprobs-stream-same"]["evidence"] == "not run: 4 answers had not ended in time"
    assert found["usage-total"]["verdict"] == "true"


def _hostile_words(body: dict[str, Any], reply: Reply) -> None:
    if reply.status == 400:
        reply.json = {"error": "\x1b[2J" * 100_000}


def test_words_of_a_server_are_short_and_do_nothing_to_a_terminal() -> None:
    with HonestServer(Lie(after=_hostile_words)) as server:
        done = check(server.url)
    assert done.returncode == 1
    assert "\x1b" not in done.stdout
    assert "u001b[2J" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) < 2000


@pytest.mark.parametrize(
    "body", [b"null", b"[]", b'{"data": [{"id": 5}]}', b'{"data": {}}', b"\xff\xfe", b"[" * 100_000]
)
def test_a_list_of_models_of_any_form_ends_in_a_sentence(body: bytes) -> None:
    def serve(peer: socket.socket) -> None:
        read_request(peer)
        peer.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body)

    with raw_server(serve) as server:
        assert unfit(server, "any").startswith("the response to a plain chat request does not conform to the API: ")
