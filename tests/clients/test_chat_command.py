"""``gateway chat`` as its users run it: on a terminal and in scripts, with the real stack and with odd servers."""

from __future__ import annotations

import json
import math
import os
import shlex
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway_ops.chat.streamed_answer import StreamedReply
from tests.raw_server import raw_server, read_request
from tests.scripted_engine.replay import ScriptedServer, turn
from tests.stack import GATEWAY, GatewayProcess
from tests.terminal import GatewayTerminal, environ
from tests.warm_gateways import WarmGateways

KEY = "sk-of-the-test"
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call><|im_end|>'
HERMES = Path(__file__).parents[2] / "chat_templates" / "hermes.jinja"


def chat(*arguments: str, stdin: str | bytes | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    given = stdin.encode() if isinstance(stdin, str) else stdin
    return WarmGateways.of_this_process().run(["chat", *arguments], environ(**more), given=given or b"")


def talk(*arguments: str, **more: str) -> GatewayTerminal:
    return GatewayTerminal(["chat", *arguments], environ(**more))


@pytest.fixture(scope="module")
def stack(scripted_triton: ScriptedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """The gateway before a model that thinks and calls, with a key."""
    with GatewayProcess.of_model(
        tmp_path_factory.mktemp("chat") / "log",
        "thinker",
        scripted_triton.grpc_url,
        scripted_triton.model_dir,
        8192,
        GATEWAY_TEMPLATE=str(HERMES),
        GATEWAY_FAMILY="qwen3",
        GATEWAY_API_KEYS=KEY,
    ) as process:
        yield process


def prompts(server: ScriptedServer) -> list[str]:
    return [request["prompt"] for request in server.requests()]


def test_a_conversation(stack: GatewayProcess, scripted_triton: ScriptedServer, tmp_path: Path) -> None:
    scripted_triton.play(
        turn("first", text="<think>\nOne thought.\n</think>\n\nAn answer.<|im_end|>"),
        turn("second line\nthird line", text="Another one.<|im_end|>"),
    )
    saved = tmp_path / "saved.json"
    with talk(f"{stack.url}/v1", "--system", "Be brief.", GATEWAY_API_KEY=KEY) as terminal:
        terminal.expect(f"thinker, at {stack.url}.")
        terminal.expect("> ")
        terminal.type("first")
        terminal.expect("One thought.\n")
        terminal.expect("An answer.\n")
        shown = terminal.expect(" out; first after ")
        terminal.type("/system", "/system Be long.", '"""second line', 'third line"""')
        terminal.expect("Be brief.")
        terminal.expect("Another one.")
        terminal.type(
            f"/save {saved}", f"/save {saved}", "/model", "/model other", "/nothing", "/clear", "/save", "/help"
        )
        terminal.expect(f"Saved to {saved}.")
        terminal.expect(f"{saved} cannot be written: File exists.")
        terminal.expect("* thinker")
        terminal.expect("Talking to other, which the server does not list.")
        terminal.expect("Unknown command /nothing; /help lists the commands.")
        terminal.expect("Forgotten.")
        terminal.expect("/save FILE: name a file.")
        terminal.expect("/quit            leave")
        terminal.type("hello")
        terminal.expect(
            "The server rejected the request (404, model_not_found, model): The model 'other' does not exist."
        )
        terminal.type("/quit")
        assert terminal.end() == 0
    assert b"\x1b[2mO\x1b[0m" in terminal.raw  # dim
    assert b"\x1b[2mA" not in terminal.raw
    first, second = prompts(scripted_triton)
    usage = json.loads(next(line for line in stack.log_lines() if '"completion_tokens"' in line))
    assert f"{usage['prompt_tokens']} tokens in, {usage['completion_tokens']} out; first after " in shown
    assert "Be brief." in first
    assert "Be long." in second
    assert "An answer." in second
    assert "One thought." not in second
    body = json.loads(saved.read_text())
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "user", "assistant"]
    assert body["messages"][3]["content"] == "second line\nthird line"
    assert httpx.post(
        f"{stack.url}/v1/chat/completions", json=body, headers={"x-api-key": KEY}, trust_env=False
    ).is_success


def test_the_user_plays_the_tools(stack: GatewayProcess, scripted_triton: ScriptedServer, tmp_path: Path) -> None:
    scripted_triton.play(turn("weather", text=CALL), turn("22 degrees", text="It is warm.<|im_end|>"))
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([TOOL]))
    with talk(stack.url, "--tools", str(tools), "--api-key", KEY) as terminal:
        terminal.expect("> ")
        terminal.type("weather")
        terminal.expect('get_weather {"city": "Rome"}')
        terminal.expect("result of get_weather> ")
        terminal.type("22 degrees")
        terminal.expect("It is warm.")
        terminal.type("/clear", "weather")
        terminal.expect("result of get_weather> ")
        terminal.interrupt()  # instead of a result
        terminal.expect("This message was removed from the conversation.")
        terminal.expect("Ctrl-C again, or /quit, leaves.")
        terminal.interrupt()
        assert terminal.end() == 130
    assert "<tool_response>\n22 degrees" in prompts(scripted_triton)[1]
    done = chat(stack.url, "--tools", str(tools), "-m", "weather", GATEWAY_API_KEY=KEY)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: the model calls get_weather; ")
    found = json.loads(chat(stack.url, "--tools", str(tools), "-m", "weather", "--json", GATEWAY_API_KEY=KEY).stdout)
    (call,) = found["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"city": "Rome"}
    assert found["tokens_per_s"] is None  # the call was held and came at once: what lies between its events is no pace


def test_a_pace_is_told_of_an_answer_that_came_in_time() -> None:
    """Eleven tokens: the first, and ten more after it."""
    slow, at_once = (
        StreamedReply(usage={"completion_tokens": 11}, began=0.0, first=1.0, last=last) for last in (1.5, 1.00002)
    )
    assert (slow.tokens_per_s, at_once.tokens_per_s) == (20.0, None)


def test_ctrl_c_stops_the_answer_and_then_the_program(stack: GatewayProcess, scripted_triton: ScriptedServer) -> None:
    scripted_triton.play(turn("endless", text="A begun answer", hold=True), turn("short", text="Done.<|im_end|>"))
    with talk(stack.url, "--api-key", KEY) as terminal:
        terminal.expect("> ")
        terminal.type("endless")
        terminal.expect("A begun answe")  # the last letter waits for its end
        terminal.interrupt()
        terminal.expect("stopped")
        terminal.expect("> ")
        terminal.type("short")
        terminal.expect("Done.")
        terminal.type("/clear", "endless")
        terminal.expect("A begun answe")
        terminal.interrupt()
        terminal.expect("stopped")
        terminal.expect("> ")
        terminal.interrupt()
        assert terminal.end() == 130
    stack.logged('"disconnected":true', count=2)  # the engine generates no more for it
    assert "A begun answe" in prompts(scripted_triton)[1]


def test_the_end_of_input_leaves(stack: GatewayProcess) -> None:
    with talk(stack.url, "--api-key", KEY) as terminal:
        terminal.expect("> ")
        os.write(terminal._ours, b"\x04")
        assert terminal.end() == 0


def test_a_script_gets_the_text_alone(stack: GatewayProcess, scripted_triton: ScriptedServer) -> None:
    scripted_triton.play(turn(None, text="<think>\nHm.\n</think>\n\nAn answer.<|im_end|>"))
    done = chat(
        stack.url, "-m", "Ask this:", "-m", "-", "--set", "temperature=0.5", stdin="a file\n", GATEWAY_API_KEY=KEY
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "An answer.\n", "")
    (request,) = scripted_triton.requests()
    assert "Ask this:\n\na file" in request["prompt"]
    assert request["temperature"] == 0.5
    assert chat(stack.url, stdin="piped", GATEWAY_API_KEY=KEY).stdout == "An answer.\n"
    cut = chat(stack.url, "-m", "x", "--set", "max_tokens=2", GATEWAY_API_KEY=KEY)
    assert (cut.returncode, cut.stderr) == (0, "note: the answer was cut off at its token limit\n")
    found = json.loads(chat(stack.url, "-m", "x", "--json", GATEWAY_API_KEY=KEY).stdout)
    assert (found["model"], found["text"], found["reasoning"]) == ("thinker", "An answer.", "Hm.")
    assert found["usage"]["completion_tokens"] > 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--api-key", "sk-wrong"], "Give a key of the server with --api-key or GATEWAY_API_KEY."),
        (
            ["--api-key", KEY, "--model", "other"],
            "The server rejected the request (404, model_not_found, model): The model 'other'",
        ),
        (
            ["--api-key", KEY, "--set", "temperature=9"],
            "The server rejected the request (400, decimal_above_max_value, temperature): Invalid",
        ),
        (["--api-key", KEY, "--set", "temperature"], "write NAME=VALUE"),
        (["--api-key", KEY, "--set", "n=2"], "n cannot be set here"),
        (["--api-key", KEY, "--tools", "missing.json"], "missing.json cannot be read: No such file or directory."),
        (["--api-key", KEY, "--logprobs"], "--logprobs needs --json"),
        (["--api-key", "ü"], "a header cannot contain"),
    ],
)
def test_what_is_refused_is_a_sentence(stack: GatewayProcess, arguments: list[str], says: str) -> None:
    done = chat(stack.url, "-m", "x", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("tiny_gateway", ["tokens"], indirect=True)
def test_tokens_are_tinted_by_their_probability(tiny_gateway: GatewayProcess) -> None:
    with talk(tiny_gateway.url, "--logprobs", "--set", "max_tokens=8", "--set", "temperature=0") as terminal:
        terminal.expect("probability of a token: 90 % and more  50 %  10 %  less")
        terminal.type("Hi")
        terminal.expect("least likely ")
        terminal.type("/quit")
        assert terminal.end() == 0
    told = json.loads(
        chat(
            tiny_gateway.url, "-m", "Hi", "--logprobs", "--json", "--set", "max_tokens=8", "--set", "temperature=0"
        ).stdout
    )
    assert len(told["logprobs"]) == told["usage"]["completion_tokens"] == 8
    letters = [entry for entry in told["logprobs"] if entry["token"].isalpha() and entry["token"].isascii()]
    assert letters
    for entry in letters:
        probability = math.exp(entry["logprob"])
        colour = 32 if probability >= 0.9 else 36 if probability >= 0.5 else 33 if probability >= 0.1 else 31
        assert f"\x1b[{colour}m{entry['token']}\x1b[0m".encode() in terminal.raw


# What follows are servers that are not this gateway.


def event(content: Any = None, finish: str | None = None, **more: Any) -> str:
    delta = {"content": content} if isinstance(content, str) else content or {}
    return "data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}) + "\n\n"


def answering(
    *parts: str, head: str = "", reject: str = "", heard: list[Any] | None = None
) -> Callable[[socket.socket], None]:
    """A server that answers every request with a stream, unless it has a word that it refuses."""

    def serve(peer: socket.socket) -> None:
        _, asked = read_request(peer)
        if heard is not None:
            heard.append(json.loads(asked))
        if reject and reject.encode() in asked:
            body = json.dumps({"detail": f"{reject} is not permitted"})
            peer.sendall(f"HTTP/1.1 422 No\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            return
        peer.sendall((head or "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n").encode())
        for part in parts:
            peer.sendall(part.encode())

    return serve


def test_a_message_is_asked_again_taken_back_and_asked_with_other_parameters() -> None:
    heard: list[Any] = []
    well = (event("Well."), event(finish="stop"), "data: [DONE]\n\n")
    with raw_server(answering(*well, reject="top_k", heard=heard)) as url, talk(url, "--model", "m") as terminal:
        terminal.type("/retry", "/undo", "/set", "one")
        for shown in ("There is no message.", "There is no message.", "No parameter is set.", "events); first"):
            terminal.expect(shown)
        terminal.type("two")
        terminal.expect("events); first")
        terminal.type("/retry")
        terminal.expect("events); first")
        terminal.type("/undo", "/set n=2", "/set top_k=5", "three")
        for shown in ("Removed: two", "n cannot be set here", "\ntop_k=5", "The server rejected the request (422)"):
            terminal.expect(shown)
        terminal.type("/set top_k", "/retry")  # of a message that met an error
        terminal.expect("events); first")
        terminal.type("/quit")
        assert terminal.end() == 0
    asked = [[message["content"] for message in body["messages"]] for body in heard]
    assert asked == [["one"], *[["one", "Well.", "two"]] * 2, *[["one", "Well.", "three"]] * 2]
    assert [body.get("top_k") for body in heard] == [None, None, None, 5, None]


HOSTILE = "a\x1b]0;title\x07\x1b[2Jb\r\x9bc\u202e\tend\ud800"


def test_escape_sequences_do_nothing() -> None:
    thought = {"reasoning_content": HOSTILE}
    call = {"tool_calls": [{"index": 0, "id": "1", "function": {"name": "f\x1b[2J", "arguments": HOSTILE}}]}
    with raw_server(answering(event(thought), event(HOSTILE), event(call, "tool_calls"), "data: [DONE]\n\n")) as url:
        done = chat(url, "-m", "x", "--model", "m\x1b[2J")
        assert done.stdout == "a\\x1b]0;title\\x07\\x1b[2Jb\\r\\x9bc\\u202e\tend\\ud800\n"
        assert "\x1b" not in done.stderr
        with talk(url, "--model", "m\x1b[2J") as terminal:
            terminal.expect("> ")
            terminal.type("x")
            terminal.expect("result of f\\x1b[2J> ")
            terminal.type("1")  # it calls for ever
            terminal.expect("result of f\\x1b[2J> ")
            terminal.interrupt()
            terminal.expect("leaves.")
            terminal.type("/quit")
            assert terminal.end() == 0
    for harm in (b"\x1b]", b"\x1b[2J", "\x9b".encode(), b"\x07", "\u202e".encode()):
        assert harm not in terminal.raw
    assert terminal.plain.count("a\\x1b]0;title\\x07\\x1b[2Jb") == 6  # thought, text and arguments, twice


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ([event("begun")], "The response was interrupted: the server closed the connection."),
        (
            [event("begun"), 'data: {"error": {"message": "Engine\\n\\u001b[2Jdied.", "code": "x"}}\n\n'],
            "The response ended with an error: Engine \\x1b[2Jdied.",
        ),
        ([event("begun"), 'data: {"error": "just words"}\n\n'], "The response ended with an error: just words"),
        (
            [event("begun"), 'data: {"object": "error", "message": "No room."}\n\n'],
            "The response ended with an error: No room.",
        ),
        ([event("begun"), "data: {{{\n\n"], "The server's response is not a response of OpenAI's API."),
    ],
)
def test_an_answer_that_breaks_off_is_no_answer(parts: list[str], says: str) -> None:
    with raw_server(answering(*parts)) as url:
        done = chat(url, "-m", "x", "--model", "m")
        assert (done.returncode, done.stdout) == (1, "begun\n")
        assert done.stderr == f"error: {says}\n"
        with talk(url, "--model", "m") as terminal:
            terminal.type("x", "/save /dev/stdout")
            terminal.expect(says)
            terminal.type("/quit")
            assert terminal.end() == 0


def test_a_cut_chunk_is_a_broken_answer() -> None:
    chunked = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    first = event("begun")
    with raw_server(answering(f"{len(first):x}\r\n{first}\r\nff\r\ndata", head=chunked)) as url:
        done = chat(url, "-m", "x", "--model", "m")
    assert (done.returncode, done.stdout) == (1, "begun\n")
    assert done.stderr == "error: The response was interrupted: the connection closed before the response ended.\n"


def test_servers_that_have_less_of_the_api_do_too() -> None:
    """No usage, no [DONE], no stream_options, no stream at all."""
    with raw_server(answering(event("Fine."), event(finish="stop"), reject="stream_options")) as url:
        found = json.loads(chat(url, "-m", "x", "--model", "m", "--json").stdout)
        assert (found["text"], found["usage"], found["tokens_per_s"]) == ("Fine.", None, None)
        with talk(url, "--model", "m") as terminal:
            terminal.expect("> ")
            terminal.type("x")
            terminal.expect("the server reports no usage (1 events)")
            terminal.type("/quit")
            assert terminal.end() == 0
    whole = json.dumps({"choices": [{"message": {"content": "Whole."}, "finish_reason": "stop"}]})
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(whole)}\r\n\r\n"
    with raw_server(answering(whole, head=head)) as url:
        assert chat(url, "-m", "x", "--model", "m").stdout == "Whole.\n"
    with raw_server(lambda peer: peer.sendall(b"220 mail.example.com ready\r\n")) as url:
        done = chat(url, "-m", "x")
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert "the server sent no HTTP response" in done.stderr


def test_odd_numbers_and_parts_are_survived() -> None:
    """A text in parts, more tokens than a float has room for, a log-prob below every float, files that cannot be."""
    odd = {"content": [{"type": "text", "text": "In "}, {"type": "text", "text": "parts."}]}
    probs = event("", logprobs=None).replace(
        '"delta"', '"logprobs": {"content": [{"token": "x", "logprob": -1e999}]}, "delta"'
    )
    usage = 'data: {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1' + "0" * 400 + "}}\n\n"
    parts = (event(odd), probs.replace("-1e999", "-Infinity"), event(finish="stop"), usage, "data: [DONE]\n\n")
    with raw_server(answering(*parts)) as url, talk(url, "--model", "m", "--logprobs") as terminal:
        terminal.type("x")
        terminal.expect("In parts.")
        terminal.type("/save ~nobody-of-this-name/x")
        terminal.expect("~nobody-of-this-name/x cannot be written: ")
        terminal.type("/quit")
        assert terminal.end() == 0


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_empty_ones(closed: str, stack: GatewayProcess) -> None:
    """A socket would get the number of a closed stream, and what is printed would be sent to the server."""
    command = f"{shlex.quote(str(GATEWAY))} models {stack.url} --api-key {KEY} {closed}"
    done = subprocess.run(
        ["bash", "-c", command], env=environ(), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert ("thinker" in done.stdout) == (">&-" not in closed.split())


def test_ctrl_c_ends_a_script_s_question(stack: GatewayProcess, scripted_triton: ScriptedServer) -> None:
    scripted_triton.play(turn(None, text="A begun answer", hold=True))
    with GatewayTerminal(["chat", stack.url, "-m", "x"], environ(GATEWAY_API_KEY=KEY)) as terminal:
        terminal.expect("A begun answe")
        terminal.interrupt()
        assert terminal.end() == 130
    assert "Traceback" not in terminal.plain
