"""The chat page in headless Chromium, with clicks and keys, before gateways on the real Triton."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clients.page.browser import Browser, Page
from tests.clients.page.conftest import AWAY, SPOKEN, TINY, Serve, write
from tests.scripted_engine.replay import ScriptedServer, turn
from tests.stack import GatewayProcess

pytestmark = pytest.mark.long

COMPLETE = "The answer is complete."
KEY = "a-key-for-the-page"
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call><|im_end|>'


@pytest.fixture
def play(scripted_triton: ScriptedServer) -> Any:
    return scripted_triton.play


def choose(page: Page, model: str) -> None:
    page.call("selectOption", "#model", model)


def chat_with_tiny(page: Page, **values: str) -> None:
    """A greedy answer of six tokens with log-probs."""
    choose(page, TINY)
    page.says(f"{TINY} is ready.")
    page.call("check", "#logprobs")
    for name, value in {"max_tokens": "6", "temperature": "0", **values}.items():
        page.fill(f"#p-{name}", value)
    page.send("Hi")
    page.says(COMPLETE)


def test_a_chat_streams_and_goes_on(page: Page, scripted_triton: ScriptedServer) -> None:
    hostile = '<img src="x" onerror="document.title=1"><b>bold</b> & \U0001f600'
    scripted_triton.play(turn("First", text=f"{hostile}<|im_end|>"), turn("Second", text="And more.<|im_end|>"))
    page.send("First\nline")
    page.says(COMPLETE)
    assert page.all(".turn.user .text") == ["First\nline"]
    assert page.all(".turn.model .text") == [hostile]
    assert page.value("document.querySelectorAll('#turns img, #turns b').length") == 0
    assert page.text("#said") == f"{SPOKEN}: {hostile}"  # to screen readers once, as a whole
    figures = page.text(".figures")
    for part in (" prompt tokens", " completion tokens", "first token after ", " s total", "ended by: stop"):
        assert part in figures
    page.fill("#draft", "Second")
    page.press("Enter")
    page.until("document.querySelectorAll('.figures').length === 2")
    first, second = scripted_triton.requests()
    assert first["prompt"] == "<|im_start|>user\nFirst\nline<|im_end|>\n<|im_start|>assistant\n"
    assert f"assistant\n{hostile}<|im_end|>\n<|im_start|>user\nSecond<|im_end|>" in second["prompt"]
    page.click("#fresh")
    assert page.all(".turn") == []


def test_a_long_answer_is_laid_out_once_a_frame(page: Page, scripted_triton: ScriptedServer) -> None:
    """Once a token, the browser would stand still: each look costs the more the longer the answer."""
    scripted_triton.play(turn("Much", text=" word" * 1500 + "<|im_end|>"))
    page.value("""(() => {
      const own = Object.getOwnPropertyDescriptor(Element.prototype, "scrollHeight").get;
      window.looks = window.frames_seen = 0;
      const get = function () { looks += 1; return own.call(this); };
      Object.defineProperty(document.querySelector("#turns"), "scrollHeight", { get });
      const frame = () => { frames_seen += 1; requestAnimationFrame(frame); };
      requestAnimationFrame(frame);
    })()""")
    page.send("Much")
    page.says(COMPLETE)
    assert page.text(".turn.model .text").count("word") == 1500
    looks, frames = page.value("[looks, frames_seen]")
    assert looks <= 2 * frames + 10
    page.until("(({ scrollHeight: all, scrollTop: top, clientHeight: seen }) => all - top - seen < 2)(turns)")


def test_stop(page: Page, scripted_triton: ScriptedServer, page_gateway: GatewayProcess) -> None:
    asked = r"go on<\|im_end\|>\n<\|im_start\|>assistant\n$"
    scripted_triton.play(turn("Then", text="Done.<|im_end|>"), turn(asked, text="It begins and", hold=True))
    before = page_gateway.metric("gateway_requests_cancelled_total")
    page.send("go on")
    page.says("It begins and", "#turns")
    assert page.value("document.querySelector('#send').disabled")
    page.click("#stop")
    page.says("Stopped.")
    page.says("ended by: you", ".figures")
    assert page.value("document.activeElement.id") == "draft"
    deadline = time.monotonic() + 10
    while page_gateway.metric("gateway_requests_cancelled_total") == before:
        assert time.monotonic() < deadline
    page.send("Then")  # what was said stays part of the conversation
    page.says(COMPLETE)
    assert "assistant\nIt begins and<|im_end|>" in scripted_triton.requests()[-1]["prompt"]
    page.send("go on")
    page.says("It begins and", ".turn:last-child")
    page.click("#fresh")  # which ends it, too
    page.until("!document.querySelector('#send').disabled")
    page.send("Then")
    page.says(COMPLETE)
    assert "begins" not in scripted_triton.requests()[-1]["prompt"]
    scripted_triton.play(turn("go on", text="", hold=True))
    page.send("go on")  # before the first token
    page.says("Waiting for the first token.")
    page.press("Escape")
    page.says("Stopped.")
    assert page.value("document.querySelector('#draft').value") == "go on"


def test_tools_by_example(page: Page, scripted_triton: ScriptedServer) -> None:
    scripted_triton.play(turn(text=CALL), turn("<tool_response>22 degrees", text="It is warm.<|im_end|>"))
    page.open_panel("Tools")
    page.click("#tools-example")
    page.send("The weather in Paris?")
    page.says(COMPLETE)
    assert page.all(".turn.model pre") == ['get_weather({"city": "Paris"})']
    page.fill('label:has-text("Result of get_weather") textarea', "22 degrees")
    page.click('button:has-text("Send the results")')
    page.until("document.querySelectorAll('.figures').length === 2")
    assert page.all(".turn.model .text")[-1] == "It is warm."
    asked = scripted_triton.requests()
    assert "A city" not in asked[0]["prompt"]
    assert '"name": "get_weather"' in asked[0]["prompt"]
    page.fill("#tools", '[{"type": ')
    page.send("again")
    page.says("tools is not valid JSON:", "#alert")
    assert page.call("getAttribute", "#tools", "aria-invalid") == "true"
    assert len(scripted_triton.requests()) == len(asked)


def test_a_schema_by_example(page: Page, scripted_triton: ScriptedServer) -> None:
    scripted_triton.play(turn(text='{"city": "Paris", "population": 2}<|im_end|>'))
    page.open_panel("JSON schema")
    page.click("#response_format-example")
    page.send("Which city?")
    page.says(COMPLETE)
    (asked,) = scripted_triton.requests()
    assert asked["guide"]["kind"] == "json_schema"
    assert set(json.loads(asked["guide"]["text"])["properties"]) == {"city", "population"}


def test_tokens_are_seen(page: Page) -> None:
    chat_with_tiny(page)
    assert "6 completion tokens" in page.text(".figures")
    tints = page.value("[...document.querySelectorAll('.token')].map((one) => getComputedStyle(one).backgroundColor)")
    shares = page.value(
        "[...document.querySelectorAll('.token')].map((one) => Number(one.style.getPropertyValue('--p')))"
    )
    assert len(tints) == len(shares) == 6
    likely, unlikely = tints[shares.index(max(shares))], tints[shares.index(min(shares))]
    assert float(likely.split()[-1].rstrip(")")) < float(unlikely.split()[-1].rstrip(")"))
    page.call("hover", ".token:nth-child(2)")
    page.says("id ", "#tip")
    assert len(page.all("#tip tr")) == 5
    assert page.text("#tip").count("✓") == 1  # greedy: the token is one of the alternatives
    assert page.value("document.querySelector('.token:nth-child(2)').getAttribute('aria-describedby')") == "tip"
    page.call("hover", "h1")
    page.until("document.querySelector('#tip').hidden")
    page.call("focus", ".token:nth-child(1)")
    first = page.text("#tip p")
    page.press("ArrowRight")
    page.until("document.activeElement === document.querySelector('.token:nth-child(2)')")
    assert page.text("#tip p") != first
    assert page.value("document.querySelectorAll('.token[tabindex=\"0\"]').length") == 1
    page.press("Escape")
    assert page.value("document.querySelector('#tip').hidden")


def test_special_tokens_are_marked(page: Page) -> None:
    choose(page, TINY)
    page.says(f"{TINY} is ready.")
    page.call("check", "#special")
    page.open_panel("More parameters")
    page.fill("#p-logit_bias", '{"1": 100}')  # <|im_start|>, which ends nothing
    chat_with_tiny(page, max_tokens="64")
    assert "64 completion tokens" in page.text(".figures")
    assert " tokens/s" in page.text(".figures")
    assert page.all(".token.special") == ["<|im_start|>"] * 64
    page.call("hover", ".token.special")
    assert "id 1, special" in page.text("#tip p")


def test_parameters_follow_the_capability_map(page: Page, page_gateway: GatewayProcess) -> None:
    choose(page, TINY)
    page.says(f"{TINY} is ready.")
    described = httpx.get(f"{page_gateway.url}/v1/models/{TINY}").json()["capabilities"]
    known = {name: about for name, about in described.items() if "." not in name and about["class"] != "output"}
    enabled = set(
        page.value("[...document.querySelectorAll('#settings [data-name]:enabled')].map((one) => one.dataset.name)")
    )
    rejected = dict(zip(page.all("#rejected dt"), page.all("#rejected dd"), strict=True))
    own = {"model", "messages", "stream", "stream_options", "logprobs", "top_logprobs", "return_token_ids"}
    own |= {"skip_special_tokens", "tools", "tool_choice", "response_format", "prompt", "suffix"}  # places of their own
    assert enabled == {name for name, about in known.items() if about["how"] != "impossible"} - own
    impossible = {name: about["note"] for name, about in known.items() if about["how"] == "impossible"}
    assert rejected == {name: note for name, note in impossible.items() if name not in own}
    assert rejected["verbosity"] == described["verbosity"]["note"]
    choose(page, SPOKEN)
    page.says(f"{SPOKEN} is ready.")


def test_a_parameter_at_fault_is_named(page: Page) -> None:
    chat_with_tiny(page)
    page.open_panel("More parameters")
    page.fill("#p-user", "7")  # JSON: a number, which no user is
    page.send("Hi")
    page.says("user", "#alert")
    assert page.call("getAttribute", "#p-user", "aria-invalid") == "true"
    assert page.value("document.querySelector('#draft').value") == "Hi"  # to be sent again
    page.fill("#p-user", "")
    page.fill("#p-seed", "18446744073709551615")
    page.click("#send")
    page.says("A browser cannot send the number 18446744073709551615 exactly", "#alert")
    assert ["400" in problem for problem in page.problems()] == [True]  # which the browser itself logs


def test_the_exact_prompt_and_its_tensors(page: Page, page_gateway: GatewayProcess) -> None:
    choose(page, TINY)
    page.says(f"{TINY} is ready.")
    page.fill("#draft", "Hello")
    page.fill("#p-seed", "3")
    page.click("#render")
    page.says("assistant", "#dialog pre")
    body = {"model": TINY, "messages": [{"role": "user", "content": "Hello"}], "seed": 3, "stream": True}
    rendered = httpx.post(f"{page_gateway.url}/v1/chat/completions/render", json=body).json()
    shown = page.all("#dialog pre")
    assert shown == [rendered["prompt"], " ".join(map(str, rendered["prompt_token_ids"]))]
    assert page.all("#dialog td:first-child") == [tensor["name"] for tensor in rendered["tensors"]]
    page.press("Escape")
    assert page.value("document.querySelector('#dialog').open") is False
    assert page.value("document.activeElement.id") == "render"


def test_a_request_as_a_program(page: Page, scripted_triton: ScriptedServer, tmp_path: Path) -> None:
    scripted_triton.play(turn(text='It\'s "so".<|im_end|>'))
    page.open_panel("System message")
    page.fill("#system", "Don't say `$HOME` or \\n.")
    page.fill("#p-top_k", "4")
    page.send("What's 'that'?\n\"Yes\" é")
    page.says(COMPLETE)
    (meant,) = scripted_triton.requests()
    programs = {"curl": ["sh"], "Python": [sys.executable], "JS": ["node"]}
    for name, command in programs.items():
        page.click(f'button:has-text("Copy as {name}")')
        file = tmp_path / f"program.{ {'curl': 'sh', 'Python': 'py', 'JS': 'mjs'}[name] }"
        file.write_text(page.text("#dialog pre"), encoding="utf-8")
        page.click("#close")
        done = subprocess.run([*command, file], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        assert "so" in done.stdout
    asked = scripted_triton.requests()
    assert [one["prompt"] for one in asked] == [meant["prompt"]] * 4


def test_a_whole_answer(page: Page, scripted_triton: ScriptedServer) -> None:
    scripted_triton.play(turn(text="All at once.<|im_end|>"))
    page.call("uncheck", "#stream")
    page.fill("#p-n", "2")
    page.send("Say it")
    page.says(COMPLETE)
    assert page.all(".turn.model .text") == ["All at once."] * 2
    assert "first token" not in page.text(".figures")  # nothing tells
    page.click('button:has-text("Raw answer")')
    assert json.loads(page.text("#dialog pre"))["object"] == "chat.completion"
    page.click("#close")


def test_keys(browser: Browser, serve: Serve, scripted_triton: ScriptedServer) -> None:
    scripted_triton.play(turn(text="Welcome.<|im_end|>"))
    gateway = serve(server={"api_keys": [KEY], "reload_s": 0.05})
    gateway.wait("/health/ready", 200)
    page = browser.open(gateway.url)
    page.says("This gateway requires an API key.")
    assert page.value("document.activeElement.id") == "key"
    for given, where, said in (
        ("ключ", "#alert", "A key may contain only printable ASCII characters."),
        ("wrong", "#alert", "The gateway does not accept this key."),
        (KEY, "#status", "is ready."),
    ):
        page.fill("#key", given)
        page.press("Enter")
        page.says(said, where)
        if given == "wrong":
            assert page.text("#status") == ""
    assert page.text("#alert") == ""
    assert page.value("document.activeElement.id") == "draft"
    page.send("Hello")
    page.says(COMPLETE)
    page.click('button:has-text("Copy as curl")')
    assert "$GATEWAY_API_KEY" in page.text("#dialog pre")
    assert KEY not in page.value("document.documentElement.outerHTML")
    page.click("#close")
    assert page.value("[sessionStorage.length, localStorage.length, document.cookie]") == [1, 0, ""]
    page.call("reload")
    page.says("is ready.")
    page.click("#forget")
    page.says("This gateway requires an API key.")
    assert page.value("sessionStorage.length") == 0
    assert all("401" in problem for problem in page.problems())


def test_a_model_that_is_away_and_comes(
    browser: Browser, page: Page, serve: Serve, tmp_path: Path, spoken: dict[str, Any]
) -> None:
    choose(page, AWAY)
    page.says(f"{AWAY} cannot be served now: ", "#alert")
    page.send("Hi")
    page.says("not", "#alert")
    assert page.all(".turn") == []
    assert all("503" in problem for problem in page.problems())
    nowhere = spoken | {"triton": {"url": "127.0.0.1:1"}}
    gateway = serve(models=[nowhere])
    page = browser.open(gateway.url)
    page.says(f"{SPOKEN} cannot be served now: ", "#alert")
    write(tmp_path / "gateway.yaml", {"models": [spoken]})
    page.says(f"{SPOKEN} is ready.")
    assert page.text("#alert") == ""


def test_replies_that_fail(browser: Browser, serve: Serve, scripted_triton: ScriptedServer) -> None:
    scripted_triton.play(
        turn("give up", text="half an ans", finish="timed_out"), turn("hang", text="It begins and", hold=True)
    )
    gateway = serve()
    gateway.wait("/health/ready", 200)
    page = browser.open(gateway.url)
    page.says("is ready.")
    page.send("give up")
    page.says("The gateway ended the response with an error: ", "#alert")
    assert page.all(".turn.model .text") == ["half an ans"]
    assert page.all(".note") == ["This answer is incomplete, and is not part of the conversation."]
    page.send("hang")
    page.says("It begins and", "#turns")
    gateway.signal(9)
    page.says("The response ended early", "#alert")
    assert len(page.all(".note")) == 2
    page.click("#send")
    page.says("The gateway is unreachable.", "#alert")
    assert page.value("document.querySelector('#draft').value") == "hang"
    assert all("net::ERR_" in problem for problem in page.problems())


@pytest.mark.parametrize(("scheme", "width", "height"), [("light", 1280, 800), ("dark", 360, 640)])
def test_it_is_accessible(browser: Browser, page_gateway: GatewayProcess, scheme: str, width: int, height: int) -> None:
    page = browser.open(page_gateway.url, colorScheme=scheme, viewport={"width": width, "height": height})
    page.says("is ready.")
    chat_with_tiny(page)
    for title in ("System", "Tools", "JSON schema", "More", "Not supported"):
        page.open_panel(title)
    page.call("focus", ".token")
    page.says("log-prob", "#tip")
    assert page.serious() == []
    page.press("Escape")
    page.click('button:has-text("Exact prompt")')
    page.says("Tensors", "#dialog")
    assert page.serious() == []
    assert page.value("document.documentElement.scrollWidth") <= width  # nothing lies beside the screen
    luminance = page.value("getComputedStyle(document.body).backgroundColor")
    assert (luminance == "rgb(255, 255, 255)") == (scheme == "light")
    assert page.problems() == []


def test_by_keyboard_alone(page: Page, scripted_triton: ScriptedServer) -> None:
    scripted_triton.play(turn(text="Heard.<|im_end|>"))
    order = []
    for key in ("Escape", *["Shift+Tab"] * 4, *["Tab"] * 5):
        page.press(key)
        order.append(page.value("document.activeElement.id || document.activeElement.className"))
    assert order[:5] == ["draft", "turns", "fresh", "model", "skip"]  # who opens the page can type at once
    assert order[5:] == ["model", "fresh", "turns", "draft", "send"]
    page.press("Shift+Tab")
    page.call("keyboard.type", "Hi")
    page.press("Enter")
    page.says(COMPLETE)
    assert page.value("document.activeElement.id") == "draft"
    assert page.all(".turn.model .text") == ["Heard."]
