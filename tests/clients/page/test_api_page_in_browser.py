"""The page at ``/docs`` in headless Chromium, with clicks and keys, before gateways on the real Triton."""

from __future__ import annotations

import json

import pytest

from tests.clients.page.browser import Browser, Page
from tests.clients.page.conftest import SPOKEN, Serve
from tests.scripted_engine.replay import ScriptedServer, turn
from tests.stack import GatewayProcess
from tests.waiting import wait_until

pytestmark = pytest.mark.long

CHAT, READY = "#create_chat_completion", "Each operation can be tried below"
KEY = "a-key-for-the-page"


@pytest.fixture
def docs(browser: Browser, page_gateway: GatewayProcess) -> Page:
    page = browser.open(f"{page_gateway.url}/docs")
    page.says(READY)
    page.call("selectOption", "#model", SPOKEN)
    return page


def unfold(page: Page, operation: str) -> None:
    page.click(f"{operation} > summary")
    page.until(f"document.querySelector({json.dumps(f'{operation} form')}) !== null")


def ask(page: Page, operation: str, *, status: int) -> str:
    page.click(f"{operation} form button.main")
    page.says(f"{status} ", f"{operation} .figures")
    page.says(" after ", f"{operation} .figures")
    return page.text(f"{operation} form pre:last-child")


def test_an_example_is_asked_and_its_answer_shown(docs: Page, scripted_triton: ScriptedServer) -> None:
    hostile = '<img src="x" onerror="document.title=1">'
    scripted_triton.play(turn("France", text=f"{hostile}<|im_end|>"))
    unfold(docs, CHAT)
    answer = json.loads(ask(docs, CHAT, status=200))
    assert answer["choices"][0]["message"]["content"] == hostile
    assert docs.value("document.querySelectorAll('main img').length") == 0
    docs.call("selectOption", f"{CHAT}-example", "1")
    assert '"stream": true' in docs.value(f"document.querySelector('{CHAT}-body').value")
    assert "data: [DONE]" in ask(docs, CHAT, status=200)
    docs.fill(f"{CHAT}-body", '{"model": "none-such"')
    assert json.loads(ask(docs, CHAT, status=400))["error"]["type"] == "invalid_request_error"
    docs.click(f'{CHAT} form button:has-text("As curl")')
    curl = docs.text(f"{CHAT} form pre")
    assert curl.startswith("curl -sSN -X POST 'http://127.0.0.1:")
    assert "none-such" in curl
    assert all("400" in problem for problem in docs.problems())  # Chromium notes each answer that is an error


def test_a_stream_that_does_not_end_is_stopped(
    docs: Page, page_gateway: GatewayProcess, scripted_triton: ScriptedServer
) -> None:
    scripted_triton.play(turn("France", text="word and", hold=True))
    unfold(docs, CHAT)
    docs.fill(f"{CHAT}-body", json.dumps({"model": SPOKEN, "stream": True, "max_tokens": 99,
                                          "messages": [{"role": "user", "content": "France"}]}))  # fmt: skip
    docs.click(f"{CHAT} form button.main")
    docs.says('"content":', f"{CHAT} form pre:last-child")
    cancelled = page_gateway.metric("gateway_requests_cancelled_total")
    docs.click(f'{CHAT} form button:has-text("Stop")')
    docs.says("Stopped.", f"{CHAT} .figures")
    wait_until(lambda: page_gateway.metric("gateway_requests_cancelled_total") > cancelled)
    assert docs.problems() == []


def test_parameters_of_a_path_are_filled_in(docs: Page) -> None:
    unfold(docs, "#retrieve_model")
    assert json.loads(ask(docs, "#retrieve_model", status=200))["id"] == SPOKEN
    unfold(docs, "#retrieve_response")
    docs.click("#retrieve_response form button.main")
    docs.says("response_id is part of the path, and empty.", "#retrieve_response .figures")
    assert docs.problems() == []


def test_a_key_is_asked_for_and_used(browser: Browser, serve: Serve) -> None:
    gateway = serve(server={"api_keys": [KEY]})
    page = browser.open(f"{gateway.url}/docs")
    page.says("This gateway asks for a key")
    unfold(page, CHAT)
    unfold(page, "#retrieve_model")
    page.fill("#key", KEY)
    page.press("Enter")
    page.says(READY)  # and what was unfolded before names the model
    assert json.loads(page.value(f"document.querySelector('{CHAT}-body').value"))["model"] == SPOKEN
    assert json.loads(ask(page, "#retrieve_model", status=200))["id"] == SPOKEN
    assert all("401" in problem for problem in page.problems())


def test_the_api_is_shown_to_a_key_alone_where_that_is_set(browser: Browser, serve: Serve) -> None:
    gateway = serve(server={"api_keys": [KEY], "docs": "key"})
    page = browser.open(f"{gateway.url}/docs")
    page.says("This gateway shows its API to holders of a key.")
    page.fill("#key", "k\u00e9y")
    page.press("Enter")
    page.says("The key has characters that no header can carry.")
    assert page.all("details") == []
    page.fill("#key", KEY)
    page.press("Enter")
    page.says(READY)
    unfold(page, CHAT)
    assert all("401" in problem for problem in page.problems())


@pytest.mark.parametrize("options", [{}, {"colorScheme": "dark"}, {"viewport": {"width": 360, "height": 740}}], ids=str)
def test_everyone_can_use_it(browser: Browser, page_gateway: GatewayProcess, options: dict[str, object]) -> None:
    page = browser.open(f"{page_gateway.url}/docs#create_chat_completion", **options)
    page.says(READY)
    page.until(f"document.querySelector('{CHAT}').open")  # the link unfolded it
    page.until(f"document.querySelector('{CHAT} form') !== null")
    assert page.serious() == []
    assert page.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    page.until("!document.querySelector('#chat').hidden")
    assert page.value("document.querySelector('#chat').href") == f"{page_gateway.url}/"
    groups = page.all("#groups a")
    assert {"chat", "responses", "messages", "models", "bodies"} <= set(groups)
    assert page.problems() == []
