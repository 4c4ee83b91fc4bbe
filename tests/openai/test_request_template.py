"""The chat template of a request is a stranger's program: bounded in time, memory and output, and alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.text.prompt.request_template import _renderer
from tests.app.harness import USER, gateway, rejected

OWN = "{% for message in messages %}[{{ message.role }}: {{ message.content }}]{% endfor %}{{ suffix }}"
NESTED = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


async def tokenize(running: Any, template: str, **body: Any) -> Any:
    return await running.client.post("/tokenize", json={"messages": USER, "chat_template": template, **body})


async def test_it_is_rendered_as_the_models_own(folder: Path) -> None:
    async with gateway(folder, allow_request_template=True) as running:
        answer = await tokenize(running, OWN, chat_template_kwargs={"suffix": "é<|im_end|>"})
        text = (await running.client.post("/detokenize", json={"tokens": answer.json()["tokens"]})).json()
        assert text == {"prompt": "[user: Hi]é<|im_end|>"}
        assert 257 not in answer.json()["tokens"]  # a control token of the request's stays text
        assert (await running.chat(chat_template=OWN)).status_code == 200
        assert running.engine.requests[0].prompt.text == "[user: Hi]"


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{{ 'a' * 10**9 }}", "takes more than 512 MiB of memory"),
        (NESTED, "takes more than 5 seconds"),
        ("{{ 'a' * (2**23 + 1) if messages[-1].content == 'Hi' }}", "renders a prompt of more than 8388608 characters"),
        ("{% if %}", "does not compile"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "does not compile"),
        ("{{ 1 / 0 }}", "fails: ZeroDivisionError"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{{ '\\ud83d' }}", "fails: UnicodeEncodeError"),
    ],
)
async def test_one_that_goes_too_far_is_refused_and_the_next_is_served(folder: Path, template: str, says: str) -> None:
    async with gateway(folder, allow_request_template=True) as running:
        answer = await running.chat(chat_template=template)
        error = rejected(answer, 400, "chat_template", "invalid_value")
        assert says in error["message"]
        assert (await tokenize(running, OWN)).status_code == 200


async def test_tools_are_shown_or_refused_as_the_template_shows_them(folder: Path) -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
    shows = "{% for tool in tools or [] %}({{ tool.function.name }}){% endfor %}" + OWN
    async with gateway(folder, allow_request_template=True) as running:
        answer = await tokenize(running, shows, tools=tools)
        text = (await running.client.post("/detokenize", json={"tokens": answer.json()["tokens"]})).json()
        assert text == {"prompt": "(look)[user: Hi]"}
        error = (await tokenize(running, OWN, tools=tools)).json()["error"]
        assert error["param"] == "chat_template"


async def test_what_a_template_says_of_the_messages_is_about_them(folder: Path) -> None:
    async with gateway(folder, allow_request_template=True) as running:
        error = (await tokenize(running, "{{ raise_exception('Not these.') }}")).json()["error"]
        assert (error["message"], error["param"]) == ("Not these.", "messages")


async def test_nothing_is_started_where_it_is_not_allowed(folder: Path) -> None:
    _renderer.close()
    async with gateway(folder) as running:
        assert (await tokenize(running, OWN)).status_code == 400
        assert (await running.chat()).status_code == 200
        assert _renderer.pid is None
