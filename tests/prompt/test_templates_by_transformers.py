"""What our templates make of a conversation is what transformers' ``apply_chat_template`` makes of it.

Two differences are on purpose. A template that refuses or fails is an error in our words, or in those of its author.
And transformers drops the keys of messages without a value and gives reasoning all of its names, whatever the template,
while ``history`` does what the template needs. So both get messages here as transformers leaves them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import TemplateError as JinjaError

from gateway.text.prompt import ChatTemplate, TemplateError, history
from tests.chat_templates.conversation import ANSWER, MESSAGES, THANKS
from tests.chat_templates.conversation import TOOLS as WHOLE_TOOLS
from tests.lazy_module import LazyModule
from tests.prompt.conversations import TOOLS, conversations
from tests.prompt.traits import TRAITS, template
from tests.rings import examples
from tests.tokens.build import FIXED, byte_level

if TYPE_CHECKING:
    import transformers
else:
    transformers = LazyModule("transformers")

QUICK = settings(FIXED, max_examples=examples(25))
EXPRESSIONS = (
    "{{ messages | tojson }}",
    "{{ messages | tojson(indent=2) }}",
    "{{ {'b': 1, 'a': 'é<&\\''} | tojson(ensure_ascii=True, sort_keys=True, separators=(',', ':')) }}",
    "{% for m in messages %}\n  {% if loop.index > 1 %}\n    {% break %}\n  {% endif %}\n{{ m.content }}\n{% endfor %}",
    "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% endfor %}",
    "{% generation %}{{ messages[0].content }}{% endgeneration %}",
    "{{ strftime_now('%d %b %Y') }} {{ bos_token }} {{ eos_token }} {{ mood }} {{ unknown }}",
    "{{ raise_exception('No.') if messages | length > 2 }}{{ add_generation_prompt }}{{ documents }}{{ tools }}",
    "{{ messages.append(1) }}",
    "{{ ''.__class__.__mro__ }}",
    "{{ messages[0]['content'].nothing() }}",
)


@pytest.fixture(scope="module")
def theirs() -> transformers.PreTrainedTokenizerFast:
    tokenizer = byte_level()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend, **tokenizer.special_tokens)


def as_transformers_leaves(message: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in message.items() if value is not None}
    reasoning = next((found[key] for key in ("reasoning_content", "thinking", "reasoning") if key in found), None)
    return found if reasoning is None else {"thinking": reasoning, **found, "reasoning_content": reasoning}


def check(
    ours: ChatTemplate,
    theirs: transformers.PreTrainedTokenizerFast,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
    *,
    opened: bool = True,
    **variables: Any,
) -> None:
    """Both render the same text, or both refuse."""
    told = [as_transformers_leaves(message) for message in messages]

    def expected() -> str:
        return theirs.apply_chat_template(
            told, tools=tools, chat_template=ours.source, add_generation_prompt=opened, tokenize=False, **variables
        )

    refusal = None
    try:
        text = ours.render(told, tools=tools, add_generation_prompt=opened, variables=variables)
    except TemplateError as error:
        refusal = error
    if refusal is None:
        assert text == expected()
        return
    with pytest.raises((JinjaError, AttributeError, TypeError, ValueError)) as failure:
        expected()
    assert not refusal.by_author or refusal.message == str(failure.value)


@pytest.mark.parametrize("name", TRAITS)
def test_a_conversation_in_its_terms(name: str, theirs: transformers.PreTrainedTokenizerFast) -> None:
    ours = template(name)

    @QUICK
    @given(conversations(), st.booleans(), st.booleans())
    def compare(messages: list[dict[str, Any]], with_tools: bool, opened: bool) -> None:
        tools = TOOLS if with_tools and ours.shows_tools else None
        try:
            told = history(messages, ours.abilities(tools=tools is not None))
        except TemplateError:
            return
        check(ours, theirs, told, tools, opened=opened)

    compare()


@pytest.mark.parametrize("name", TRAITS)
def test_a_conversation_with_everything(name: str, theirs: transformers.PreTrainedTokenizerFast) -> None:
    for messages in (MESSAGES, [*MESSAGES, ANSWER, THANKS], MESSAGES[1:2]):
        check(template(name), theirs, messages, WHOLE_TOOLS)
        check(template(name), theirs, messages, opened=False)


@pytest.mark.parametrize("source", EXPRESSIONS)
def test_what_the_environment_gives(source: str, theirs: transformers.PreTrainedTokenizerFast) -> None:
    for messages in (MESSAGES, MESSAGES[1:2]):
        check(ChatTemplate(source, byte_level()), theirs, messages, mood="calm")
