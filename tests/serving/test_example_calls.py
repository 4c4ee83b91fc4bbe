"""What a template writes for a call decides whether a family that has signs in it is the model's."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from gateway.serving.loading import written_call
from gateway.text.families.family_choice import FamilyChoice, ModelEvidence, choose
from gateway.text.prompt import ChatTemplate
from tests.app.harness import gateway
from tests.app.scripted import write_tokenizer
from tests.openai.tools_harness import TOOLS, UNGUIDED
from tests.tokens.build import byte_level

_HEAD = (
    "{% if tools %}Write calls in <tool_call></tool_call>.{{ tools | tojson }}{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls %}"
)
_TAIL = "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
_NAME = "{{ call.function.name }}"
_JSON = '{"name": "' + _NAME + '", "arguments": {{ call.function.arguments | tojson }}}'
_ARGUMENTS = "{% for key, value in call.function.arguments.items() %}"

FOREIGN = {
    "a list in other tags": f"<tool_uses>[{_JSON}]</tool_uses>",
    "tags behind a word of their own": (
        f']<]other[>[<tool_call>\n]<]other[>[<invoke name="{_NAME}">{_ARGUMENTS}'
        "]<]other[>[<{{ key }}>{{ value }}]<]other[>[</{{ key }}>{% endfor %}]<]other[>[</invoke>\n"
        "]<]other[>[</tool_call>"
    ),
    "attributes": f'<tool_call><invoke name="{_NAME}">{{{{ call.function.arguments | tojson }}}}</invoke></tool_call>',
}
OWN = {
    "minimax_m3": (
        f']<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="{_NAME}">{_ARGUMENTS}'
        "]<]minimax[>[<{{ key }}>{{ value }}]<]minimax[>[</{{ key }}>{% endfor %}]<]minimax[>[</invoke>\n"
        "]<]minimax[>[</tool_call>"
    ),
    "hermes": f"<tool_call>\n{_JSON}\n</tool_call>",
    "qwen3_coder": (
        f"<tool_call>\n<function={_NAME}>\n{_ARGUMENTS}<parameter={{{{ key }}}}>\n{{{{ value }}}}\n</parameter>\n"
        "{% endfor %}</function>\n</tool_call>"
    ),
    "glm": (
        f"<tool_call>{_NAME}\n{_ARGUMENTS}<arg_key>{{{{ key }}}}</arg_key>\n<arg_value>{{{{ value }}}}</arg_value>\n"
        "{% endfor %}</tool_call>"
    ),
    "kimi": (
        "<|tool_calls_section_begin|><|tool_call_begin|>{{ call.id }}<|tool_call_argument_begin|>"
        "{{ call.function.arguments }}<|tool_call_end|><|tool_calls_section_end|>"
    ),
    "mistral": (
        "{% if call.id | length != 9 %}{{ raise_exception('nine letters') }}{% endif %}"
        '[TOOL_CALLS] [{"name": "' + _NAME + '", "arguments": {{ call.function.arguments | tojson }}}]'
    ),
    "phi4": "{# functools[ #}" + _JSON,  # as bare JSON, without the word that it asks the model for
}


def chosen(source: str, architecture: str = "") -> FamilyChoice:
    written = written_call(ChatTemplate(source, byte_level()))
    return choose(ModelEvidence(architectures=[architecture], template=source, written=written), None)


def family(source: str, architecture: str = "") -> str:
    return chosen(source, architecture).family.name


@pytest.mark.parametrize("call", FOREIGN.values(), ids=list(FOREIGN))
def test_a_call_that_no_family_reads_belongs_to_none(call: str) -> None:
    assert family(_HEAD + call + _TAIL) == "plain"
    assert family(_HEAD + call + _TAIL, "Qwen2ForCausalLM") == "plain"
    assert family(_HEAD + call + _TAIL + "{# <think></think> #}", "Qwen3ForCausalLM") == "think"


@pytest.mark.parametrize("name", OWN)
def test_a_family_reads_its_own(name: str) -> None:
    assert family(_HEAD.replace("<tool_call></tool_call>", "tags") + OWN[name] + _TAIL) == name


def test_what_is_written_goes_before_an_architecture() -> None:
    assert family(_HEAD + OWN["hermes"] + _TAIL, "Lfm2ForCausalLM") == "hermes"
    assert family("{{ tools }}{% for message in messages %}{{ message.content }}{% endfor %}", "Lfm2ForCausalLM") == (
        "lfm2"
    )


async def test_the_operator_and_the_client_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_tokenizer(tmp_path / "foreign", _HEAD + next(iter(FOREIGN.values())) + _TAIL)
    with caplog.at_level(logging.WARNING):
        async with gateway(folder, features=UNGUIDED, max_seq_len=4096) as running:
            assert (await running.client.get("/v1/models/scripted")).json()["gateway"]["family"] == "plain"
            rejected = (await running.chat(tools=TOOLS)).json()["error"]
    assert (rejected["param"], rejected["code"]) == ("tools", "unsupported_parameter")
    assert "the format of this model's tool calls is unknown" in rejected["message"]
    assert "which no known model family reads: Set `family`" in caplog.text
    caplog.clear()
    async with gateway(folder, features=UNGUIDED, max_seq_len=4096, family="hermes") as running:
        assert (await running.client.get("/v1/models/scripted")).json()["gateway"]["family"] == "hermes"
    assert "by the setting `family`, but its chat template writes tool calls as <tool_uses>" in caplog.text
    assert "which hermes does not read: Set `template`" in caplog.text
