"""``gateway compare`` as its users run it, between servers that answer, refuse, hang and talk nonsense."""

from __future__ import annotations

import base64
import itertools
import json
import math
import signal
import subprocess
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from gateway.settings.model_settings import Aspect
from gateway_ops.cli.compare import ComparedAspect
from gateway_ops.cli.root import app
from tests.bound_process import BoundProcess
from tests.gateway_ops.compare.other_server import OtherServer, Said, chat, stream
from tests.ports import free_port
from tests.stack import GATEWAY

SECRET = "sk-live-4242424242"
Start = Callable[..., OtherServer]


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as servers:
        yield lambda answer, **more: servers.enter_context(OtherServer(answer, **more))


def compare(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["compare", *arguments], env={"GATEWAY_API_KEY": "", "GATEWAY_API_KEY_B": ""})


def write(folder: Path, *lines: Any) -> str:
    file = folder / "requests.jsonl"
    file.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return str(file)


def asks(*texts: str) -> list[dict[str, Any]]:
    return [{"messages": [{"role": "user", "content": text}], "temperature": 0} for text in texts]


def by_text(answer: Callable[[str], Said]) -> Callable[[str, dict[str, Any]], Said]:
    """Answers by the text of the last message."""
    return lambda _path, body: answer(body["messages"][-1]["content"])


def echoed(text: str) -> Said:
    return chat(text, usage={"prompt_tokens": 3, "completion_tokens": 2})


echo = by_text(echoed)


def reported(a: OtherServer, b: OtherServer, file: str, *options: str) -> tuple[dict[str, Any], int]:
    done = compare(a.url, b.url, "--requests", file, "--json", *options)
    assert done.exit_code in {0, 1, 2}, done.output
    return json.loads(done.stdout), done.exit_code


def test_what_differs_is_named_by_request(start: Start, tmp_path: Path) -> None:
    def other(text: str) -> Said:
        if text == "refused":
            return Said({"error": {"message": "no", "code": "bad", "param": "messages.0.role"}}, 400)
        counts = {"prompt_tokens": 3, "completion_tokens": 4 if text == "counted" else 2}
        return chat("thin" if text == "this" else text, "length" if text == "cut" else "stop", counts)

    a, b = start(echo), start(by_text(other))
    file = write(tmp_path, *asks("same", "this", "cut", "counted", "refused"))
    found, status = reported(a, b, file)
    assert status == 1
    assert found["requests"] == {
        "sent": 5, "equal": 1, "differs": 3, "refused_by_a": 0, "refused_by_b": 1, "refused_by_both": 0,
        "unsteady": 0, "failed": 0,
    }  # fmt: skip
    assert found["differs_in"] == {"text": 1, "finish_reason": 1, "usage": 1}
    same, text, cut, counted, rejected = found["rows"]
    assert same == {"request": 1, "name": "", "endpoint": "/v1/chat/completions", "outcome": "equal"}
    assert text["differences"] == [{"in": "text", "choice": 0, "at_character": 3, "characters": {"a": 4, "b": 4}}]
    assert cut["differences"] == [{"in": "finish_reason", "choice": 0, "a": "stop", "b": "length"}]
    assert counted["differences"] == [{"in": "usage", "completion_tokens": {"a": 2, "b": 4}}]
    assert rejected["b"] == {"status": 400, "code": "bad", "param": "messages.0.role"}
    asked = [sorted((body["messages"] for body in each.asked), key=str) for each in (a, b)]
    assert asked[0] == asked[1]
    shown = compare(a.url, b.url, "--requests", file, "--ignore", "usage", "--ignore", "finish_reason").stdout
    assert "3 equal, 1 differs, 1 rejected by b" in shown
    assert "- 2: differs: text: at character 3, characters 4 / 4" in shown
    assert "- 5: rejected by b: B rejects (400 bad messages.0.role)" in shown


def test_no_secret_of_a_request_is_in_the_report_unless_it_is_asked_for(start: Start, tmp_path: Path) -> None:
    def reject(_path: str, body: dict[str, Any]) -> Said:
        error = {"message": f"No {body['messages']}", "code": f"no {SECRET}", "param": SECRET + " "}
        return chat(f"{SECRET}!") if body.get("stop") else Said({"error": error}, 400)

    a, b = start(echo), start(reject)
    bodies = asks(SECRET, f"is {SECRET}")
    lines = [bodies[0], {**bodies[1], "stop": "x"}]
    file = write(tmp_path, *({"custom_id": "c", "method": "POST", "url": "/v1/chat/completions", "body": each,
                              "headers": {"x": SECRET}} if each is lines[1] else each for each in lines))  # fmt: skip
    report = tmp_path / "report.json"
    arguments = (a.url, b.url, "--requests", file, "--output", str(report), "--api-key", "key-of-a")
    done = compare(*arguments)
    assert done.exit_code == 2
    assert "'headers'" in done.stderr
    file = write(tmp_path, *lines)
    done = compare(*arguments)
    assert done.exit_code == 1
    assert SECRET not in done.stdout + done.stderr + report.read_text()
    assert "key-of-a" not in done.stdout + done.stderr + report.read_text()
    texts = json.loads(report.read_text())["rows"][1]
    assert texts["a"]["choices"][0]["characters"] == len(f"is {SECRET}")
    assert texts["a"]["choices"][0]["digest"] != texts["b"]["choices"][0]["digest"]
    assert "key-of-a" not in compare(*arguments, "--show-text").stdout
    rows = json.loads(report.read_text())["rows"]
    assert SECRET in rows[0]["b"]["message"]
    assert rows[1]["a"]["choices"][0]["text"] == f"is {SECRET}"
    assert rows[1]["differences"][0]["around"]["b"] == f"{SECRET}!"


def test_a_key_goes_to_its_own_server(start: Start, tmp_path: Path) -> None:
    a, b = start(echo), start(echo)
    file = write(tmp_path, *asks("x"))
    assert compare(a.url, b.url, "--requests", file, "--api-key", "for-a").exit_code == 0
    assert set(a.keys) == {"Bearer for-a"}
    assert set(b.keys) == {None}
    assert compare(a.url, b.url, "--requests", file, "--api-key", "for-a", "--api-key-b", "for-b").exit_code == 0
    assert set(b.keys) == {None, "Bearer for-b"}
    both = start(echo, models=["m", "n"])
    assert compare("m", "n", "--url", both.url, "--requests", file, "--api-key", "one").exit_code == 0
    assert set(both.keys) == {"Bearer one"}


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (Said(b"<html>It works!</html>", kind="text/html"), "a response that is not JSON"),
        (Said({"choices": "none"}), "a response of another format"),
        (Said({"choices": []}), "a response without choices"),
        (Said([1]), "a response of another format"),
        (Said({"choices": [{"message": {"content": ["a"]}}]}), "a response of another format"),
        (stream({"choices": []}, end=b""), "an incomplete stream"),
        (Said(b"data: {\n\n", kind="text/event-stream"), "an event that is not JSON"),
        (stream({"error": {"code": "engine_failed"}}), "error event engine_failed"),
        (Said(b"data: ", kind="text/event-stream", hangs=True), "timeout"),
        (Said(b"data: " + b"x" * (2 * 2**20), kind="text/event-stream"), "an event of more than 1 MiB"),
        (Said(b'"' + b"x" * (17 * 2**20)), "a response of more than 16 MiB"),
        (Said({"error": {"code": "server_overloaded"}}, 503), "503 server_overloaded"),
    ],
    ids=str,
)
def test_a_server_that_fails_is_a_row(start: Start, tmp_path: Path, said: Said, kind: str) -> None:
    a, b = start(echo), start(by_text(lambda text: said if text == "odd" else echoed(text)))
    # Short only for the one that hangs: its other answers must come in time on a busy machine too.
    limit = "5" if said.hangs else "60"
    found, status = reported(a, b, write(tmp_path, *asks("first", "odd", "last")), "--timeout", limit)
    assert status == 2
    assert [row["outcome"] for row in found["rows"]] == ["equal", "failed", "equal"]
    assert found["rows"][1]["b"] == {"failed": kind}


def test_a_server_that_has_gone_is_told_in_each_row(start: Start, tmp_path: Path) -> None:
    answered = itertools.count()

    once = start(by_text(lambda text: echoed(text) if next(answered) == 0 else Said(b"", hangs=True)))
    options = ("--timeout", "3", "--at-once", "1")
    found, status = reported(start(echo), once, write(tmp_path, *asks("a", "b", "c")), *options)
    assert status == 2
    assert [row["outcome"] for row in found["rows"]] == ["equal", "failed", "failed"]


def test_what_a_differs_from_itself_in_is_not_held_against_b(start: Start, tmp_path: Path) -> None:
    turn = itertools.count()

    a = start(by_text(lambda text: chat(f"{text} {next(turn)}" if text == "noise" else text)))
    b = start(by_text(lambda text: chat("other" if text == "differs" else text)))
    file = write(tmp_path, *asks("noise", "plain", "differs"))
    found, status = reported(a, b, file, "--repeat")
    assert found["noise"] == {"asked": 3, "differed": 1, "in": {"text": 1}}
    assert [row["outcome"] for row in found["rows"]] == ["unsteady", "equal", "differs"]
    assert status == 1
    assert len(a.asked) == 2 * len(b.asked)
    shown = compare(a.url, b.url, "--requests", file, "--repeat").stdout
    assert "A differs from itself in 1 of 3 requests, 1 in text" in shown
    assert reported(a, b, write(tmp_path, *asks("noise", "plain")), "--repeat")[1] == 0
    assert reported(a, b, write(tmp_path, *asks("noise")), "--repeat")[1] == 2


def test_what_is_not_the_same_of_two_models_is_said_first(start: Start, tmp_path: Path) -> None:
    a, b, silent = start(echo, tokens=[1, 2, 3], context=4096), start(echo, tokens=[1, 2], context=8192), start(echo)
    file = write(tmp_path, *asks("x"))
    shown = compare(a.url, b.url, "--requests", file).stdout
    assert "The models differ in their tokenizer: A has 3 tokens" in shown
    assert "The models differ in their context: A has 4096 tokens, B has 8192 tokens." in shown
    assert shown.index("The models differ in their tokenizer") < shown.index("1 equal")
    found, status = reported(a, silent, file)
    facts = {fact["what"]: fact["same"] for fact in found["facts"]}
    assert facts["tokenizer"] is facts["context"] is facts["parameters"] is None
    assert not any("tokenizer" in warning for warning in found["warnings"])
    found, status = reported(a, a, file)
    assert any("A and B are the same" in warning for warning in found["warnings"])
    assert status == 0


def test_requests_by_chance_are_said_first_or_sent_greedily(start: Start, tmp_path: Path) -> None:
    a, b = start(echo), start(echo)
    file = write(tmp_path, {"messages": [{"role": "user", "content": "x"}], "temperature": 0.7}, *asks("y"))
    found, _ = reported(a, b, file)
    assert [each for each in found["warnings"] if each.startswith("1 of 2 requests do not set temperature 0")]
    assert {body["temperature"] for body in a.asked} == {0.7, 0}
    found, _ = reported(a, b, file, "--greedy")
    assert found["warnings"] == []
    assert {body["temperature"] for body in a.asked[2:]} == {0}


def test_requests_leave_no_response_behind(start: Start, tmp_path: Path) -> None:
    def response(path: str, _body: dict[str, Any]) -> Said:
        assert path == "/v1/responses"
        part = {"type": "output_text", "text": "hi"}
        return Said({"status": "completed", "output": [{"type": "message", "content": [part]}]})

    a, b = start(response), start(response)
    lines = [{"input": "x", "temperature": 0}, {"input": "y", "temperature": 0, "store": True}]
    assert compare(a.url, b.url, "--requests", write(tmp_path, *lines)).exit_code == 0
    assert sorted(body["store"] for body in a.asked) == [False, True]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"messages": [', "not JSON"),
        ("\xff\xfe", "not JSON"),
        ("[]", "not an object"),
        ('{"model": "m"}', "not a request"),
        ('{"logger": "gateway.access", "path": "/v1/completions"}', "access log"),
        ('{"id": "b", "custom_id": "c", "response": {"status_code": 200}}', "a result of a batch"),
        ('{"version": 2, "body": {"prompt": "x"}}', "an unknown form, with 'version'"),
        ('{"body": "x"}', "'body' is not an object"),
        ('{"method": "GET", "body": {"prompt": "x"}}', "'method' is not POST"),
        ('{"url": "/v1/files", "body": {"input": "x"}}', "'url' is not one of"),
        ('{"query": "x", "text_1": "y"}', "not a request"),
        ('{"url": ["/v1/completions"], "body": {"input": "x"}}', "'url' is not one of"),
        ("[" * 5000, "not JSON"),
        ('{"prompt": "x", "metadata": ' + "[" * 300 + "]" * 300 + "}", "nested too deeply to be sent"),
    ],
)
def test_a_line_that_is_no_request_is_named_before_anything_is_sent(
    start: Start, tmp_path: Path, line: str, why: str
) -> None:
    a = start(echo)
    done = compare(a.url, a.url, "--requests", write(tmp_path, "", *asks("fine"), line, "{}", *["x"] * 9))
    assert done.exit_code == 2
    assert f"requests.jsonl, line 3: {why}" in done.stderr.replace("a line of an ", "")
    assert "and 6 more" in done.stderr
    assert a.asked == []


def test_a_line_of_a_gigabyte_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    with file.open("wb") as target:
        target.write(b'{"prompt": "x"}\n{"prompt": "')
        target.truncate(2**30)
    tracemalloc.start()
    try:
        done = compare("http://127.0.0.1:1#m", "http://127.0.0.1:1#n", "--requests", str(file))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "requests.jsonl, line 2: more than 16 MiB" in done.stderr
    assert done.exit_code == 2
    assert peak < 64 * 2**20


def test_what_cannot_be_compared_is_said(start: Start, tmp_path: Path) -> None:
    two, none, wants_key = start(echo, models=["m", "n"]), start(echo, models=None), start(echo)
    wants_key._get = lambda _path: Said({"error": {"code": "invalid_api_key"}}, 401)
    gone = f"http://127.0.0.1:{free_port()}"
    file = write(tmp_path, *asks("x"))
    for target, why in {
        two.url: "lists 'm', 'n': name a model as",
        none.url: "lists no models: name a model as",
        f"{two.url}#o": "has no model 'o'; it lists 'm', 'n'",
        gone: "does not respond: cannot connect",
        wants_key.url: "responds with status 401: give its key with --api-key-b",
        "ftp://x": "is not URL#model, a URL or the name of a model",
        "http://": "is not URL#model, a URL or the name of a model",
        f"{two.url}/?key={SECRET}#m": "is not URL#model, a URL or the name of a model",
        "localhost:9#m": "is not a URL",
        "": "is not URL#model, a URL or the name of a model",
    }.items():
        done = compare(f"{two.url}#m", target, "--requests", file)
        assert (done.exit_code, why in done.stderr) == (2, True), (target, done.stderr)
        assert isinstance(done.exception, SystemExit)
    assert compare(f"{two.url}/v1/#m", f"{none.url}#any", "--requests", file).exit_code == 0
    assert compare(two.url, two.url, "--requests", file, "--sample", "3").exit_code == 2
    done = compare(f"{two.url}#m", f"{two.url}#n", "--requests", file, "--output", "/proc/no/such")
    assert done.exit_code == 2
    assert compare(two.url, two.url, "--requests", str(tmp_path / "none")).exit_code == 2
    assert "is not a regular file" in compare(two.url, two.url, "--requests", str(tmp_path)).stderr
    assert "has no requests" in compare(two.url, two.url, "--requests", write(tmp_path, "")).stderr


def test_ctrl_c_shows_what_was_found(start: Start, tmp_path: Path) -> None:
    third = threading.Event()

    def slow(text: str) -> Said:
        if text != "last":
            return echoed(text)
        third.set()
        return Said(b"", hangs=True)

    a, b = start(by_text(slow)), start(echo)
    file = write(tmp_path, *asks("first", "next", "last"))
    command = [GATEWAY, "compare", a.url, b.url, "--requests", file, "--at-once", "1"]
    with BoundProcess(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert third.wait(60)
        process.send_signal(signal.SIGINT)
        shown, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "2 requests: 2 equal" in shown
    assert "Traceback" not in errors


_VECTORS: dict[str, list[list[float]]] = {
    "same": [[3, 4], [1, 0]],
    "near": [[3, 4.01], [1, 0]],
    "longer": [[6, 8], [1, 0]],
    "swapped": [[1, 0], [3, 4]],
    "turned": [[3, 4], [0.8, 0.6]],
    "fewer": [[3, 4]],
    "wider": [[3, 4, 0], [1, 0, 0]],
    "unlike": [[3, 4], [math.nan, 0]],
}


def _embeddings(case: str, *, base64_bits: bool) -> Said:
    rows = [np.array(row, "<f4") for row in _VECTORS[case]]
    data = [
        {"index": index, "embedding": base64.b64encode(row).decode() if base64_bits else row.tolist()}
        for index, row in enumerate(rows)
    ]
    return Said({"object": "list", "data": data, "usage": {"prompt_tokens": 3, "total_tokens": 3}})


def test_vectors_are_compared_by_direction_length_and_order(start: Start, tmp_path: Path) -> None:
    """One server sends numbers, the other base64."""
    a = start(lambda _path, _body: _embeddings("same", base64_bits=False))
    b = start(lambda _path, body: _embeddings(body["input"][0], base64_bits=True))
    bodies = [{"input": [case, "x"], "encoding_format": "base64"} for case in _VECTORS]
    file = write(tmp_path, *bodies[:-1], {"url": "/v1/embeddings", "body": bodies[-1]})
    found, status = reported(a, b, file)
    assert (status, found["requests"]["equal"], found["differs_in"]) == (1, 2, {"vectors": 6})
    differences = [row.get("differences", [{}])[0] for row in found["rows"]]
    assert [each.get("vector") for each in differences] == [None, None, 0, 0, 1, None, None, 1]
    assert differences[2] == {"in": "vectors", "vector": 0, "cosine": 1.0, "length": {"a": 5.0, "b": 10.0}, "unlike": 1}
    assert (differences[3]["cosine"], differences[3]["place_in_b"], differences[3]["unlike"]) == (0.6, 1, 2)
    assert differences[4]["cosine"] == 0.8
    assert differences[5] == {"in": "vectors", "count": {"a": 2, "b": 1}}
    assert differences[6] == {"in": "vectors", "dimensions": {"a": 2, "b": 3}}
    assert reported(a, b, file, "--least-cosine", "0.5")[0]["requests"]["equal"] == 3
    assert all("store" not in body and "temperature" not in body for body in a.asked + b.asked)
    shown = compare(a.url, b.url, "--requests", file, "--greedy").stdout
    assert "temperature" not in shown
    assert "- 4: differs: vectors: vector 0, cosine 0.6" in shown
    b._get = lambda _path: Said({"data": [{"id": "e", "gateway": {"task": "embed"}}]})
    assert "samples are of chats: give its requests with --requests" in compare(a.url, b.url).stderr


def _ranked(*scores: float | None) -> dict[str, Any]:
    """Documents with these scores, the best first, in the form of Cohere; None: not among the best."""
    found = [{"index": index, "relevance_score": score} for index, score in enumerate(scores) if score is not None]
    meta = {"tokens": {"input_tokens": 3}}
    return {"results": sorted(found, key=lambda each: -float(each["relevance_score"])), "meta": meta}


_RANKED = {
    "same": _ranked(0.9, 0.5, 0.1),
    "near": _ranked(0.905, 0.5, 0.095),
    "tied": _ranked(0.9, 0.5, 0.495, 0.1),
    "other": _ranked(0.9, 0.25, 0.3),
    "fewer": _ranked(0.9, 0.5, None),
    "unsorted": {**_ranked(), "results": [*reversed(_ranked(0.9, 0.5, 0.1)["results"])]},
    "counted": {**_ranked(0.9, 0.5, 0.1), "meta": {"tokens": {"input_tokens": 4}}},
}


def test_scores_of_documents_are_compared_within_a_bound(start: Start, tmp_path: Path) -> None:
    def of_a(_path: str, body: dict[str, Any]) -> Said:
        return Said(_ranked(0.9, 0.495, 0.5, 0.1) if body["query"] == "tied" else _RANKED["same"])

    a, b = start(of_a), start(lambda _path, body: Said(_RANKED[body["query"]]))
    lines = [{"url": "/v2/rerank", "body": {"query": case, "documents": ["x", "y", "z"]}} for case in _RANKED]
    found, status = reported(a, b, file := write(tmp_path, *lines))
    assert (status, found["requests"]["equal"], found["differs_in"]) == (1, 3, {"scores": 3, "usage": 1})
    assert [row.get("differences") for row in found["rows"][3:]] == [
        [{"in": "scores", "input": 1, "a": 0.5, "b": 0.25, "unlike": 2}],
        [{"in": "scores", "input": 2, "a": 0.1, "b": None, "unlike": 1}],
        [{"in": "scores", "rank": 0, "input": {"a": 0, "b": 2}}],
        [{"in": "usage", "prompt_tokens": {"a": 3, "b": 4}}],
    ]
    assert reported(a, b, file, "--score-tolerance", "0.25")[0]["requests"]["equal"] == 4
    assert "- 4: differs: scores: A 0.5, B 0.25, input 1, unlike 2" in compare(a.url, b.url, "--requests", file).stdout
    assert all("temperature" not in body and "store" not in body for body in a.asked)


def _classes(*rows: list[float], labels: str = "ny") -> dict[str, Any]:
    data = [{"index": index, "label": labels[index], "probs": row} for index, row in enumerate(rows)]
    return {"data": data, "usage": {"prompt_tokens": 3}}


def _scored(*scores: float) -> dict[str, Any]:
    return {"data": [{"index": index, "object": "score", "score": score} for index, score in enumerate(scores)]}


_CLASSES = _classes([0.75, 0.25], [0.25, 0.75])
_OTHERS: list[tuple[str, Any, Any, Any]] = [
    ("/v1/score", _scored(0.5, -0.5), _scored(0.5, -0.5), None),
    ("/v1/score", _scored(0.5, -0.5), _scored(0.5, 0.5), {"input": 1, "a": -0.5, "b": 0.5, "unlike": 1}),
    ("/score", _scored(0.5, 0.5), _scored(0.5), {"input": 1, "a": 0.5, "b": None, "unlike": 1}),
    ("/classify", _CLASSES, _classes([0.75, 0.25], [0.2501, 0.7499]), None),
    ("/classify", _CLASSES, _classes([0.75, 0.25], [0.25, 0.5]),
     {"input": 1, "class": 1, "a": 0.75, "b": 0.5, "unlike": 1}),
    ("/v1/classify", _CLASSES, _classes([0.5, 0.25, 0.25]),
     {"input": 0, "class": 2, "a": None, "b": 0.25, "unlike": 2}),
    ("/v1/classify", _CLASSES, _classes([0.75, 0.25], [0.25, 0.75], labels="nx"),
     {"in": "label", "input": 1, "unlike": 1}),
]  # fmt: skip


def test_scores_of_pairs_and_of_classes_are_compared(start: Start, tmp_path: Path) -> None:
    a, b = (start(lambda _path, body, side=side: Said(_OTHERS[body["seed"]][side])) for side in (1, 2))
    lines = [{"url": path, "body": {"seed": place}} for place, (path, *_) in enumerate(_OTHERS)]
    found, _ = reported(a, b, write(tmp_path, *lines))
    for row, (*_, expected) in zip(found["rows"], _OTHERS, strict=True):
        assert row.get("differences", [None]) == [expected and {"in": "scores", **expected}]
    shown = compare(a.url, b.url, "--requests", write(tmp_path, *lines), "--show-text").stdout
    assert "- 7: differs: label: input 1, unlike 1, A 'y', B 'x'" in shown


def test_vectors_scores_and_labels_can_be_ignored(start: Start, tmp_path: Path) -> None:
    """Labels are compared where scores are not, but of no document that only one side has scored."""
    answers = [
        ("/v1/embeddings", [{"data": [{"index": 0, "embedding": row}]} for row in ([3, 4], [4, 3])]),
        ("/v1/classify", [_classes([0.75, 0.25]), _classes([0.25, 0.75], labels="y")]),
        ("/v1/rerank", [_ranked(0.9, 0.5, 0.1), _ranked(0.1, 0.5, None)]),
    ]
    a, b = (start(lambda _path, body, side=side: Said(answers[body["seed"]][1][side])) for side in (0, 1))
    lines = [{"url": path, "body": {"seed": place}} for place, (path, _) in enumerate(answers)]
    for ignored, left in (
        ((), {"vectors": 1, "scores": 2, "label": 1}),
        (("vectors",), {"scores": 2, "label": 1}),
        (("vectors", "scores"), {"label": 1}),
        (("vectors", "scores", "label"), {}),
    ):
        options = [each for name in ignored for each in ("--ignore", name)]
        found, status = reported(a, b, write(tmp_path, *lines), *options)
        assert (found["differs_in"], status) == (left, 1 if left else 0)


def test_pooled_vectors_are_compared_as_embeddings_are(start: Start, tmp_path: Path) -> None:
    row = np.array([3, 4], "<f4")
    listed, bits = ({"data": [{"index": 0, "data": each}]} for each in (row.tolist(), base64.b64encode(row).decode()))
    turned = {"data": [{"index": 0, "data": [4, 3]}]}
    a, b = start(lambda *_: Said(listed)), start(lambda _, body: Said(bits if body["input"] == "same" else turned))
    found, _ = reported(a, b, write(tmp_path, *({"url": "/pooling", "body": {"input": i}} for i in ("same", "other"))))
    assert [row["outcome"] for row in found["rows"]] == ["equal", "differs"]
    assert found["rows"][1]["differences"][0]["cosine"] == 0.96


def test_a_server_whose_only_model_embeds_needs_no_name(start: Start, tmp_path: Path) -> None:
    a = start(lambda *_: Said(_scored(0.5)))
    a._get = lambda _path: Said({"data": [{"id": "e", "gateway": {"task": "embed"}}]})
    file = write(tmp_path, {"text_1": "x", "text_2": "y"}, {"queries": "x", "documents": "y"})
    assert compare(a.url, a.url, "--requests", file).exit_code == 0
    assert {body["model"] for body in a.asked} == {"e"}


def test_every_aspect_can_be_ignored() -> None:
    assert {aspect.value for aspect in ComparedAspect} == {*get_args(Aspect), "vectors", "scores", "label"}


def test_names_of_a_server_cannot_play_with_the_terminal(start: Start, tmp_path: Path) -> None:
    odd = "m\x1b[31m[bold]"
    a = start(echo, models=[odd])
    shown = compare(a.url, a.url, "--requests", write(tmp_path, *asks("x"))).stdout
    assert "\x1b" not in shown
    assert "[bold]" in shown
    b = start(echo)
    entry = {"id": "m", "capabilities": {"\x1b[2J": {"how": "\x1b[31m"}}, "gateway": {"path": "\x1b[1m"}}
    a._get = lambda _path: Said({"data": [entry]})
    b._get = lambda _path: Said({"data": [{"id": "m", "capabilities": {}}]})
    shown = compare(a.url, b.url, "--requests", write(tmp_path, *asks("x"))).output
    assert "parameter" in shown
    assert "\x1b" not in shown
