from __future__ import annotations

import gc
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.text.prompt import ChatTemplate, TemplateError, load_template
from gateway.text.tokens import Tokenizer
from tests.tokens.build import byte_level, write_folder

ROOT = Path(__file__).parents[2]
USER = [{"role": "user", "content": "Hi"}]
CONVERSATION: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": None},
    {"role": "tool", "content": "42"},
    {"role": "user", "content": " Bye \n"},
]


def render(source: str, messages: list[dict[str, Any]] | None = None, **rest: Any) -> str:
    return ChatTemplate(source, byte_level()).render(USER if messages is None else messages, **rest)


def shipped(name: str) -> ChatTemplate:
    return load_template(byte_level(), ROOT / "chat_templates" / f"{name}.jinja")


def test_chatml_writes_exactly_the_format() -> None:
    named = [*CONVERSATION, {"role": "user", "name": "ann", "content": "?"}]
    assert shipped("chatml").render(named) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n<|im_end|>\n"
        "<|im_start|>tool\n42<|im_end|>\n"
        "<|im_start|>user\n Bye \n<|im_end|>\n"
        "<|im_start|>user name=ann\n?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_llama3_writes_exactly_the_format() -> None:
    assert shipped("llama3").render(CONVERSATION) == (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n<|eot_id|>"
        "<|start_header_id|>ipython<|end_header_id|>\n\n42<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


@pytest.mark.parametrize("name", ["chatml", "llama3"])
def test_shipped_templates_refuse_what_they_cannot_write(name: str) -> None:
    assert not shipped(name).render(USER, add_generation_prompt=False).endswith("assistant\n")
    with pytest.raises(TemplateError, match="no place for tools") as refusal:
        shipped(name).render(USER, tools=[{"type": "function"}])
    assert refusal.value.by_author
    with pytest.raises(TemplateError, match="no place for documents"):
        shipped(name).render(USER, documents=[{"text": "a"}])


def test_llama3_refuses_names() -> None:
    with pytest.raises(TemplateError, match="name"):
        shipped("llama3").render([{"role": "user", "name": "ann", "content": "?"}])


def test_templates_know_the_special_tokens_variables_and_the_date() -> None:
    assert render("{{ bos_token }}{{ eos_token }}{{ mood }}", variables={"mood": "!"}) == "<|begin_of_text|><|im_end|>!"
    assert render("{{ strftime_now('%Y') }}") == datetime.now().astimezone().strftime("%Y")
    assert render("{{ messages | length }}", variables={"messages": []}) == "1"


@pytest.mark.parametrize(
    "source",
    [
        "{% macro item(x) %}<{{ x }}>{% endmacro %}{% for m in messages %}{{ item(m.content) }}{% endfor %}",
        "{% macro _own(x) %}{{ x }}{% endmacro %}{% macro item(x) %}<{{ _own(x) }}>{% endmacro %}{{ item('ab') }}",
        "{% macro down(x) %}<{{ x }}>{% if x %}{{ down(x[1:]) }}{% endif %}{% endmacro %}{{ down('ab') }}",
        "{% set n = namespace(x=1) %}{% macro item() %}<{{ n.x }}>{% endmacro %}{% set n.f = item %}{{ n.f() }}",
    ],
)
def test_a_rendering_leaves_nothing_to_the_garbage_collector(source: str) -> None:
    template = ChatTemplate(source, byte_level())
    first = template.render([{"role": "user", "content": "ab"}])
    gc.collect()
    gc.disable()
    try:
        assert {template.render([{"role": "user", "content": "ab"}]) for _ in range(10)} == {first}
        assert gc.collect() == 0
    finally:
        gc.enable()
    assert "<" in first


def test_the_authors_own_words_reach_the_caller() -> None:
    with pytest.raises(TemplateError) as refusal:
        render("{{ raise_exception('Roles must alternate.') }}")
    assert refusal.value.by_author
    assert refusal.value.message == "Roles must alternate."


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.missing.deeper }}",
        "{{ messages + 1 }}",
        "{{ 1 / 0 }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ range(10 ** 9) | list }}",
        "{{ messages[0]['content'].nothing() }}",
        "{{ {}['x'].y }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_other_failures_say_no_more_than_that(source: str) -> None:
    with pytest.raises(TemplateError) as failure:
        render(source)
    assert not failure.value.by_author
    assert failure.value.message == "The model's chat template cannot render these messages."
    assert failure.value.detail


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("{% for m in messages %}{{ m.rol.x }}{% endfor %}", "UndefinedError: 'dict object' has no attribute 'rol'"),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", None),
        ("{% for m in messages %}{{ m.content[0].text }}{% endfor %}", None),  # it reads content as parts
        ("{{ raise_exception('A system message, please.') }}", None),  # its author's word to the caller
    ],
)
def test_a_template_that_can_render_nothing_says_why(source: str, fault: str | None) -> None:
    assert ChatTemplate(source, byte_level()).fault == fault


def test_a_template_that_does_not_compile_is_refused() -> None:
    with pytest.raises(TemplateError, match="does not compile"):
        render("{% if %}")


def test_the_configured_file_wins_over_the_folder(tmp_path: Path) -> None:
    (write_folder(tmp_path, byte_level()) / "chat_template.jinja").write_text("folder", encoding="utf-8")
    tokenizer = Tokenizer.from_folder(tmp_path)
    own = tmp_path / "own.jinja"
    own.write_text("configured", encoding="utf-8")
    assert load_template(tokenizer).render(USER) == "folder"
    assert load_template(tokenizer, own).render(USER) == "configured"


def test_a_missing_template_names_the_configuration_key(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match="`template`"):
        load_template(byte_level())
    with pytest.raises(TemplateError, match="`template`"):
        load_template(byte_level(), tmp_path / "none.jinja")


def test_a_named_template_of_the_folder_can_be_chosen(tmp_path: Path) -> None:
    listed = [{"name": "rag", "template": "with documents"}]
    folder = write_folder(tmp_path, byte_level(), tokenizer_config={"chat_template": listed})
    assert load_template(Tokenizer.from_folder(folder), name="rag").render(USER) == "with documents"
