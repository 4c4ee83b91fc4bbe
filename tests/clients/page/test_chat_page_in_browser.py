"""The chat page in headless Chromium, with clicks and keys, before gateways on the real Triton."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.app.hostile_markdown import HOSTILE
from tests.clients.page.browser import Browser, Page
from tests.clients.page.conftest import AWAY, SPOKEN, TINY, Serve, write
from tests.ports import free_port
from tests.scripted_engine.replay import ScriptedServer, turn
from tests.stack import GatewayProcess
from tests.waiting import wait_until

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
    assert page.value("document.querySelector('#welcome').checkVisibility()") is False
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
    page.call("uncheck", "#logprobs")  # which the engine would tell anew with each token
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
    wait_until(lambda: page_gateway.metric("gateway_requests_cancelled_total") > before)
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
    tinted = page.all(".turn.model .text .tint")
    assert "".join(tinted) == page.text(".turn.model .text")
    page.call("hover", ".turn.model .tint")
    page.says("id ", "#tip")
    page.call("hover", "h1")
    page.until("document.querySelector('#tip').hidden")
    page.click('button:has-text("Tokens")')
    assert page.value("document.querySelector('.turn.model .text').hidden")
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
    page.click('button:has-text("Tokens")')
    assert page.all(".turn.model .text .tint") == tinted


def test_a_request_that_cannot_have_log_probs_goes_without(page: Page, play: Any) -> None:
    play(turn(text="Said.<|im_end|>"))
    page.value("document.querySelector('#top_logprobs').value = 50")  # not chosen by the user
    page.send("Hi")
    page.says(COMPLETE)
    assert page.all(".turn.model .text") == ["Said."]
    assert page.value("document.querySelector('#logprobs').checked") is False
    assert "top_logprobs" in page.text("#logprobs-why")
    page.call("check", "#logprobs")
    page.send("Hi")
    page.says("top_logprobs", "#alert")
    assert page.call("getAttribute", "#top_logprobs", "aria-invalid") == "true"
    assert ["400" in problem for problem in page.problems()] == [True, True]


def test_special_tokens_are_marked(page: Page) -> None:
    choose(page, TINY)
    page.says(f"{TINY} is ready.")
    page.call("check", "#special")
    page.open_panel("Penalties")
    page.fill("#p-logit_bias", '{"1": 100}')  # <|im_start|>, which ends nothing
    chat_with_tiny(page, max_tokens="64")
    assert "64 completion tokens" in page.text(".figures")
    module = page.value("document.querySelector('script[type=module]').src.replace('page.js', 'request.js')")
    times = "{first: 0.5, last: 2.5, end: 2.6}"  # those of this answer may be too near to tell a rate
    figures = page.value(f"import('{module}').then((it) => it.figures({{completion_tokens: 64}}, {times}))")
    assert "first token after 0.50 s · 31.5 tokens/s · 2.60 s total" in figures
    page.click('button:has-text("Tokens")')
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
    inputs = "[...document.querySelectorAll('#settings input[data-name]')]"
    placeholders = dict(page.value(f"{inputs}.map((one) => [one.dataset.name, one.placeholder])"))
    assert float(placeholders["temperature"]) == described["temperature"]["default"] == 1
    assert placeholders["seed"] == ""
    page.fill("#filter", "VERBO")
    rows = "[...document.querySelectorAll('#settings .row')].filter((one) => one.checkVisibility())"
    assert page.value(f"{rows}.map((one) => one.querySelector('label, dt').textContent)") == ["verbosity"]
    page.fill("#filter", "ignore_eos")  # in a group that was folded
    page.call("selectOption", "#p-ignore_eos", "true")
    page.fill("#filter", "")
    page.says("1 set", "[data-title='Length and stops'] summary")
    page.click("#reset")
    assert page.text("[data-title='Length and stops'] summary").strip() == "Length and stops"
    choose(page, SPOKEN)
    page.says(f"{SPOKEN} is ready.")


def test_a_parameter_at_fault_is_named(page: Page) -> None:
    chat_with_tiny(page)
    page.open_panel("Other parameters")
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
    page.call("uncheck", "#logprobs")
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
    page.click('summary:text-is("Request")')
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
    page.open_panel("Several answers")
    page.fill("#p-n", "2")
    page.send("Say it")
    page.says(COMPLETE)
    assert page.all(".turn.model .text") == ["All at once."] * 2
    assert "first token" not in page.text(".figures")  # nothing tells
    page.click('summary:text-is("Request")')
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
    page.click('summary:text-is("Request")')
    page.click('button:has-text("Copy as curl")')
    assert "$GATEWAY_API_KEY" in page.text("#dialog pre")
    assert KEY not in page.value("document.documentElement.outerHTML")
    page.click("#close")
    assert page.value("[sessionStorage.length, document.cookie]") == [1, ""]
    assert KEY not in page.value("JSON.stringify(Object.entries(localStorage))")
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


def test_a_model_that_is_served_in_part(browser: Browser, serve: Serve, spoken: dict[str, Any]) -> None:
    endpoints = [spoken["triton"]["url"], f"127.0.0.1:{free_port()}"]
    gateway = serve(models=[spoken | {"triton": {"endpoints": endpoints}}])
    gateway.wait("/health/ready", 200)
    page = browser.open(gateway.url)
    page.says("is ready.")
    page.says("1 of its 2 Tritons: unreachable.", "#notes")
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


def reach(page: Page, drawer: str) -> None:
    """Open a drawer where it is not a column."""
    if not page.value(f"document.querySelector('#{drawer}').checkVisibility()"):
        page.click(f"#open-{drawer}")


ANSWER = """# Ports

The **gateway** listens on `9000`, see [the page](https://x.example/page):

1. one
   - nested

| name | port |
|---|--:|
| http | 9000 |

```python
print("a very long line that does not fit the screen of any phone that was ever made, " * 3)
```
> quoted
<|im_end|>"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (768, 1024), (360, 640)])
def test_it_is_accessible(
    browser: Browser, page_gateway: GatewayProcess, play: Any, scheme: str, width: int, height: int
) -> None:
    play(turn("Show", text=ANSWER))
    page = browser.open(page_gateway.url, colorScheme=scheme, viewport={"width": width, "height": height})
    page.says(f"{SPOKEN} is ready.")
    assert page.serious() == []
    page.send("Show")
    page.says(COMPLETE)
    choose(page, TINY)
    page.says(f"{TINY} is ready.")
    reach(page, "settings")
    for name, value in {"max_tokens": "6", "temperature": "0"}.items():
        page.fill(f"#p-{name}", value)
    for title in ("System", "Tools", "JSON schema", "Other", "Not served"):
        page.open_panel(title)
    assert page.serious() == []
    page.press("Escape")
    page.send("Hi")
    page.says(COMPLETE)
    reach(page, "chats")
    assert len(page.all("#chat-list li")) == 1
    assert page.serious() == []
    page.press("Escape")
    page.click('button:has-text("Tokens")')
    page.call("focus", ".token")
    page.says("log-prob", "#tip")
    assert page.serious() == []
    page.press("Escape")
    page.click('.turn:last-child summary:text-is("Request")')
    page.click('.turn:last-child button:has-text("Exact prompt")')
    page.says("Tensors", "#dialog")
    assert page.serious() == []
    assert page.value("document.documentElement.scrollWidth") <= width  # nothing lies beside the screen
    assert page.value("document.querySelector('#turns').scrollWidth <= document.querySelector('#turns').clientWidth")
    luminance = page.value("getComputedStyle(document.body).backgroundColor")
    assert (luminance == "rgb(255, 255, 255)") == (scheme == "light")
    assert page.problems() == []


def test_markdown_is_shown_and_nothing_of_it_runs(page: Page, scripted_triton: ScriptedServer) -> None:
    scripted_triton.play(turn("Show", text=ANSWER), turn("Harm", text="\n\n".join(HOSTILE) + "<|im_end|>"))
    page.send("Show")
    page.says(COMPLETE)
    for selector in ("h3", "strong", "p code", "a", "ol ul", "td.right", ".fence pre", "blockquote"):
        assert page.value(f"document.querySelectorAll('.turn.model .text {selector}').length") == 1, selector
    page.send("Harm")
    page.until("document.querySelectorAll('.figures').length === 2")
    assert "window.ran=1" in page.text(".turn:last-child .text")
    assert page.value("window.ran") is None
    tags = set(page.value("[...document.querySelectorAll('.turn:last-child .text *')].map((one) => one.localName)"))
    assert not tags & {"script", "img", "svg", "iframe", "style", "link", "base", "meta", "form", "object", "embed"}
    links = page.value("[...document.querySelectorAll('.text a')].map((one) => [one.protocol, one.rel])")
    assert {protocol for protocol, _ in links} == {"https:"}
    assert {rel for _, rel in links} == {"noopener noreferrer"}


def test_what_was_said_is_changed(page: Page, scripted_triton: ScriptedServer) -> None:
    scripted_triton.play(
        turn("First", text="A.<|im_end|>"),
        turn("Second", text="B.<|im_end|>"),
        turn("Third", text="C.<|im_end|>"),
    )
    for count, text in enumerate(("First", "Second"), start=1):
        page.send(text)
        page.until(f"document.querySelectorAll('.figures').length === {count}")
    page.click('.turn.model:last-child button:has-text("Regenerate")')
    page.until("document.querySelectorAll('.figures').length === 2 && !document.querySelector('#send').disabled")
    prompts = [one["prompt"] for one in scripted_triton.requests()]
    assert prompts[2] == prompts[1]
    page.click('.turn.user:nth-child(4) button:has-text("Edit")')
    page.fill(".turn textarea", "Third?")
    page.click('button:has-text("Send again")')
    page.says("C.", ".turn:last-child .text")
    page.says(COMPLETE)
    asked = scripted_triton.requests()[-1]["prompt"]
    assert "First" in asked
    assert "Second" not in asked
    page.click('.turn.user:nth-child(2) button:has-text("Delete")')
    assert page.all(".turn .text") == ["Third?", "C."]
    page.send("First")
    page.says(COMPLETE)
    assert scripted_triton.requests()[-1]["prompt"].count("First") == 1
    page.value("navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }")
    page.click('.turn.model:last-child button:has-text("Copy")')
    page.until("window.copied === 'C.'")


def test_conversations_stay_in_the_browser(page: Page, scripted_triton: ScriptedServer) -> None:
    scripted_triton.play(turn("First", text="**A**.<|im_end|>"), turn("again", text="**B**.<|im_end|>"))
    page.call("setViewportSize", {"width": 1300, "height": 800})
    page.send("First")
    page.says(COMPLETE)
    page.call("reload")
    page.says(f"{SPOKEN} is ready.")
    assert page.all(".turn") == []
    page.click('#chat-list button:has-text("First")')
    assert page.all(".turn.model strong") == ["A"]
    assert page.text(".turn.model h2") == SPOKEN
    page.send("again")
    page.says(COMPLETE)
    assert "First" in scripted_triton.requests()[-1]["prompt"]
    assert len(page.all("#chat-list li")) == 1
    page.click("#fresh")
    page.call("uncheck", "#keep")
    page.send("First")
    page.says(COMPLETE)
    assert len(page.all("#chat-list li")) == 1  # that one is not stored
    page.call("check", "#keep")
    page.value("""(() => {
      const large = [{ message: { role: "user", content: "x".repeat(1_999_000) } }];
      const kept = [...JSON.parse(localStorage["gateway-chats"]), { id: "old", title: "Old", at: 0, entries: large }];
      localStorage["gateway-chats"] = JSON.stringify(kept);
    })()""")
    page.send("again")
    page.says("To make room, 1 older conversations were deleted.")
    assert len(page.all("#chat-list li")) == 2
    saved = page.value("""(async () => {
      let blob;
      const own = URL.createObjectURL;
      URL.createObjectURL = (given) => own(blob = given);
      document.querySelector("#export").click();
      return JSON.parse(await blob.text());
    })()""")
    assert [chat["title"] for chat in saved] == ["First", "First"]
    assert saved[1]["entries"][1]["message"] == {"role": "assistant", "content": "**A**."}
    page.click("#clear")
    page.until("document.querySelectorAll('#chat-list li').length === 0")
    assert "gateway-chats" not in page.value("Object.keys(localStorage)")
    assert page.problems() == []


def test_two_texts_are_compared(browser: Browser, serve: Serve, embedder: dict[str, Any]) -> None:
    gateway = serve(models=[embedder])
    gateway.wait("/health/ready", 200)
    page = browser.open(gateway.url)
    page.says("embedding is ready.")
    assert page.value("document.querySelector('#composer').checkVisibility()") is False
    page.click("#compare-example")
    page.click("#compare button.main")
    page.says("The cosine is ")
    texts = page.value("['one', 'other'].map((name) => document.querySelector(`#text-${name}`).value)")
    body = {"model": "embedding", "input": texts, "encoding_format": "float"}
    one, other = (each["embedding"] for each in httpx.post(f"{gateway.url}/v1/embeddings", json=body).json()["data"])
    cosine = sum(a * b for a, b in zip(one, other, strict=True))
    assert page.all("#compared td") == [f"{cosine:.4f}", *texts]
    page.fill("#text-other", texts[0])
    page.click("#compare button.main")
    page.until("document.querySelectorAll('#compared tr').length === 2")
    assert page.text("#compared td") == "1.0000"
    page.fill("#kind-one", "query")
    page.click("#compare button.main")
    page.until("document.querySelectorAll('#compared tr').length === 3")
    assert page.text("#compared td:nth-child(2)") == f"query: {texts[0]}"
    assert page.text("#compared td") != "1.0000"
    assert page.serious() == []
    assert page.problems() == []
    page.fill("#kind-one", "other")
    page.click("#compare button.main")
    page.says("This model does not know the input type", "#alert")


def test_an_example_begins(page: Page, scripted_triton: ScriptedServer) -> None:
    scripted_triton.play(turn(text="Of course.<|im_end|>"))
    page.click("#examples button")
    page.says(COMPLETE)
    assert page.all("#examples button")[0] in scripted_triton.requests()[0]["prompt"]
    assert page.value("document.querySelector('#api').href").endswith("/docs")
    page.until("!document.querySelector('#api').hidden")


def test_by_keyboard_alone(page: Page, scripted_triton: ScriptedServer) -> None:
    scripted_triton.play(turn(text="Heard.<|im_end|>"))
    order = []
    page.until("!document.querySelector('#api').hidden")
    for key in ("Escape", *["Shift+Tab"] * 10, "Enter", "Tab", "Tab"):
        page.press(key)
        order.append(page.value("document.activeElement.id || document.activeElement.className"))
    examples = [""] * 4
    assert order[:6] == ["draft", *examples, "turns"]  # who opens the page can type
    assert order[6:11] == ["api", "keep", "fresh", "model", "skip"]
    assert order[11:] == ["draft", "render", "send"]
    page.press("Shift+Tab")
    page.press("Shift+Tab")
    page.call("keyboard.type", "Hi")
    page.press("Enter")
    page.says(COMPLETE)
    assert page.value("document.activeElement.id") == "draft"
    assert page.all(".turn.model .text") == ["Heard."]
