from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints

import pytest

from gateway.families import registry
from gateway.families.plain import PlainFamily
from gateway.families.registry import FAMILIES, UnknownFamilyError, choose

# What the published templates of these models hold, as far as it tells them apart; and their config.json.
MODELS = {
    "hermes": [
        ("<|im_start|>{{ tools }}<tools></tools><tool_call>", "MistralForCausalLM", "mistral"),
        ("<|im_start|>{% if tools %}<tool_call>", "Qwen2ForCausalLM", "qwen2"),
        ("{% if tools %}{{ tools }}", "Qwen2ForCausalLM", "qwen2"),
    ],
    "qwen3": [
        ("{% if tools %}<tool_call>{% if enable_thinking is false %}<think>\n\n</think>", "Qwen3ForCausalLM", "qwen3")
    ],
    "qwen3_coder": [
        ("{% if tools %}<tool_call>\n<function=", "Qwen3MoeForCausalLM", "qwen3_moe"),
        ("{% if tools %}<tool_call>\n<function=", "Qwen3NextForCausalLM", "qwen3_next"),
    ],
    "qwen3_5": [("{% if tools %}<tool_call>\n<function=<think>", "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe")],
    "llama3_json": [
        ("{% if tools %}<|start_header_id|>{{ '<|python_tag|>' }}", "LlamaForCausalLM", "llama"),
        ('{% if tools %}<|start_header_id|>"parameters": ', "LlamaForCausalLM", "llama"),
    ],
    "pythonic": [
        ("{% if tools %}<|header_start|><|python_start|>", "Llama4ForConditionalGeneration", "llama4"),
        ("{% if tools %}<|start_header_id|>[func_name1(params_name1=", "LlamaForCausalLM", "llama"),
    ],
    "lfm2": [
        ("{% if tools %}<|tool_list_start|><|tool_call_start|>", "Lfm2ForCausalLM", "lfm2"),
        # LFM2.5 cuts reasoning out of earlier messages, and shows calls nowhere
        ("{% if tools %}{{ content.split('</think>')[-1] }}<think>", "Lfm2ForCausalLM", "lfm2"),
        ("{% if tools %}<|tool_list_start|>", "Lfm2MoeForCausalLM", "lfm2_moe"),
    ],
    "phi4": [("{% if tools %}functools[{{ tools }}", "Phi3ForCausalLM", "phi3")],
    "think": [("{{ content.split('</think>')[-1] }}", "Phi3ForCausalLM", "phi3")],
    "plain": [
        ("<|im_start|>{{ content }}", "LlamaForCausalLM", "llama"),
        ("", "LlamaForCausalLM", "llama"),
        ("", "", None),
    ],
}


@pytest.mark.parametrize(
    ("family", "model"), [(family, model) for family, models in MODELS.items() for model in models]
)
def test_a_model_has_its_family(family: str, model: tuple[str, str, str | None]) -> None:
    template, architecture, model_type = model
    assert choose([architecture], model_type, template).name == family


def test_settings_go_before_everything() -> None:
    for name, family in FAMILIES.items():
        assert choose(["LlamaForCausalLM"], "llama", "{{ tools }}<tool_call>", name) is family


def test_a_family_that_there_is_not_is_named_with_those_that_there_are() -> None:
    with pytest.raises(UnknownFamilyError, match=r"'lama'; there are: .*hermes.*plain"):
        choose([], None, "", "lama")


class Visitor(PlainFamily):
    """A family of another package."""

    name = "visitor"
    signs = (("<visitor>",),)


VISITOR = Visitor()


def test_other_packages_bring_families(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("visitor", f"{__name__}:VISITOR", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda group: EntryPoints([point]).select(group=group))
    registry.installed.cache_clear()
    try:
        assert choose([], None, "<tool_call><visitor>") is VISITOR
        assert choose([], None, "", "visitor") is VISITOR
        assert choose([], None, "<tool_call>").name == "hermes"
    finally:
        registry.installed.cache_clear()
