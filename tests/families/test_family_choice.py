from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints

import pytest

from gateway.text.families import family_choice
from gateway.text.families.family_choice import FamilyChoice, ModelEvidence, UnknownFamilyError, WrittenCall, choose
from gateway.text.families.family_table import FAMILIES
from gateway.text.families.json_calls import NamedCalls
from gateway.text.families.model_family import ModelFamily, writes_calls

# ruff: noqa: RUF001 - DeepSeek spells its tokens with these characters

# Published templates of models that are not in test_templates.py, reduced to the strings by which families differ, and
# the architecture and type in their config.json.
MODELS = [
    ("hermes", "<|im_start|>{{ tools }}<tools></tools><tool_call>", "MistralForCausalLM", "mistral"),
    ("plain", "{% if tools %}{{ content }}", "GPTBigCodeForCausalLM", "gpt_bigcode"),
    ("qwen3", "{{ tools }}<tool_call><think>", "JambaForCausalLM", "jamba"),  # Jamba Reasoning
    ("apriel", "{{ tools }}<tool_calls>[ [BEGIN FINAL RESPONSE]", "MistralForCausalLM", "mistral"),
    ("nemotron", "{{ tools }}<TOOLCALL>[<think>", "NemotronHForCausalLM", "nemotron_h"),
    ("nemotron", "{{ tools }}<|start_header_id|><TOOLCALL>[</think>", "LlamaForCausalLM", "llama"),
    ("nemotron", "{% if tools %}{{ tools }}", "DeciLMForCausalLM", "nemotron-nas"),
    ("plain", "<|im_start|>{{ content }}", "InternLM2ForCausalLM", "internlm2"),
    ("hermes", "<|im_start|>{{ tools }}<tool_call>", "InternLM2ForCausalLM", "internlm2"),
    ("intern_s1", "{{ tools }}<|action_start|><|plugin|><think>", "InternS1ForConditionalGeneration", "interns1"),
    ("longcat", "{{ tools }}<longcat_tool_call>", "LongcatFlashForCausalLM", "longcat_flash"),
    ("ernie", "{{ tools }}<tool_call><think><response>", "Ernie4_5_MoeForCausalLM", "ernie4_5_moe"),
    ("plain", "{{ content }}", "Ernie4_5_MoeForCausalLM", "ernie4_5_moe"),
    ("qwen3_coder", "{% if tools %}<tool_call>\n<function=", "Qwen3NextForCausalLM", "qwen3_next"),
    ("qwen3_5", "{% if tools %}<tool_call>\n<function=<think>", "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe"),
    ("functiongemma", "{{ tools }}<start_of_turn><start_function_call>call:", "Gemma3ForCausalLM", "gemma3_text"),
    ("gemma4", "<|turn>model", "Gemma4ForCausalLM", "gemma4_text"),
    ("kimi_vl", "<|im_system|>{{ content }}", "KimiVLForConditionalGeneration", "kimi_vl"),
    ("olmo3", "{{ tools }}<functions></functions><function_calls>", "Olmo3ForCausalLM", "olmo3"),
    ("olmo3", "{{ content }}<think>", "Olmo3ForCausalLM", "olmo3"),
    ("olmo3", "{{ tools }}<functions></functions><function_calls>", "OlmoHybridForCausalLM", "olmo_hybrid"),
    ("plain", "{{ content }}", "Olmo2ForCausalLM", "olmo2"),
    ("think", "{{ content.split('</think>')[-1] }}", "Phi3ForCausalLM", "phi3"),
    ("plain", "", "LlamaForCausalLM", "llama"),
    ("plain", "", "", None),
    ("mistral", "[AVAILABLE_TOOLS]{{ tools }}[TOOL_CALLS][", "Mistral3ForConditionalGeneration", "mistral3"),
    (
        "granite4",
        "{{ tools }}<|start_of_role|>system<tools><tool_call>",
        "GraniteMoeHybridForCausalLM",
        "granitemoehybrid",
    ),
    ("deepseek_v32", "", "DeepseekV32ForCausalLM", "deepseek_v32"),  # no template: it is a program
    ("deepseek_v4", "", "DeepseekV4ForCausalLM", "deepseek_v4"),
    ("gigachat35", "{{ tools }}<｜GCML｜tool_calls><think>", "DeepseekV3ForCausalLM", "deepseek_v3"),
    ("longcat2", "{{ tools }}<longcat_tool_call><longcat_arg_key>", "LongcatFlashForCausalLM", "longcat_flash"),
    ("dots", "{{ tools }}<dots_function_call><invoke name=", "Dots1ForCausalLM", "dots1"),
    ("step3", "{{ tools }}<｜tool_calls_begin｜><steptml:invoke name=", "Step3VLForConditionalGeneration", "step3_vl"),
    ("hunyuan3", "{{ tools }}<tool_calls><tool_sep><arg_key><arg_value><think>", "HYV3ForCausalLM", "hy_v3"),
    (
        "hunyuan3_open",
        "{% set s = ':opensource' %}{{ '<tool_sep' + s + '><arg_key' + s + '><arg_value' + s + '><think' }}",
        "HYV3ForCausalLM",
        "hy_v3",
    ),
    ("solar_open2", "{{ tools }}<|tool_call:start|><|tool_arg:start|>", "SolarOpen2ForCausalLM", "solar_open2"),
    ("mimo", "{% if tools %}<tool_call>\n<function=<think>", "MiMoV2FlashForCausalLM", "mimo_v2_flash"),
    ("kimi_k3", "{{ tools }}{{ '<|open|>' + tag + '<|sep|>' }}<|close|>", "KimiK3ForConditionalGeneration", "kimi_k3"),
    ("kimi_k3", "", "KimiK3ForConditionalGeneration", "kimi_k3"),
    (
        "cohere",
        "{{ tools }}<|START_ACTION|>[]<|END_ACTION|>",
        "Cohere2VisionForConditionalGeneration",
        "cohere2_vision",
    ),
    ("cohere", "", "Cohere2ForCausalLM", "cohere2"),
]


@pytest.mark.parametrize(("family", "template", "architecture", "model_type"), MODELS)
def test_a_model_has_its_family(family: str, template: str, architecture: str, model_type: str) -> None:
    evidence = ModelEvidence(architectures=[architecture], model_type=model_type, template=template)
    assert choose(evidence).family.name == family


def test_settings_go_before_everything() -> None:
    for name, family in FAMILIES.items():
        evidence = ModelEvidence(
            architectures=["LlamaForCausalLM"], model_type="llama", template="{{ tools }}<tool_call>"
        )
        assert choose(evidence, name).family is family


def test_a_family_that_there_is_not_is_named_with_those_that_there_are() -> None:
    with pytest.raises(UnknownFamilyError, match=r"'lama'; known families: .*hermes.*plain"):
        choose(ModelEvidence(), "lama")


HERMES = WrittenCall("", '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>')
LFM2 = WrittenCall("", "<|tool_call_start|>[get_weather(city='Rome')]<|tool_call_end|>")
FOREIGN = WrittenCall("", "<call>get_weather</call>")
NEMOTRON = WrittenCall(
    "<SPECIAL_11>Assistant\n",
    '<TOOLCALL>[{"name": "get_weather", "arguments": {"city": "Rome"}}]</TOOLCALL><SPECIAL_12>\n\n',
)
GRANITE = WrittenCall("", '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Rome"}}]')


@pytest.mark.parametrize(
    ("name", "family", "evidence", "doubt", "cure"),
    [
        (
            "kimi",
            "kimi",
            ModelEvidence(written=HERMES),
            "its chat template writes tool calls as <tool_call> {",
            "Set `family` to ",
        ),
        (
            None,
            "plain",
            ModelEvidence(template="tools", written=FOREIGN),
            "its chat template writes tool calls as <call>get_weather</call>, which no known model family reads",
            "Set `family` if the model writes calls in a known format",
        ),
        (None, "plain", ModelEvidence(template="tools"), "its chat template supports tools and", "Set `family` if"),
        (
            None,
            "glm",
            ModelEvidence(model_type="glm4_moe", template="tools", written=FOREIGN),
            "its chat template writes tool calls as <call>get_weather</call>, which glm does not read",
            "Set `template` to a chat template that",
        ),
        (
            None,
            "hermes",
            ModelEvidence(model_type="glm4_moe", template="tools<tool_call>", written=HERMES),
            "only its config.json belongs to glm, not its chat template",
            "Set `family` if the model",
        ),
        (
            None,
            "hermes",
            ModelEvidence(model_type="qwen2", template="tools"),
            "only its architecture, which many families share, indicates it",
            "Set `family` if the model",
        ),
        (
            None,
            "mistral",
            ModelEvidence(template="[TOOL_CALLS] functools["),
            "its chat template also has the markers of phi4",
            "Set `family` if the model",
        ),
        (
            None,
            "granite",
            ModelEvidence(
                model_type="granite", template="tools", written=GRANITE, has_token=lambda text: text == "<s>"
            ),
            "its tokenizer lacks the token <|tool_call|>, which tool calls of granite need",
            "Set `family` if the model",
        ),
        (
            "harmony",
            "harmony",
            ModelEvidence(has_token=lambda text: text == "<s>"),
            "its tokenizer lacks the token <|",
            "Set `family` if the model",
        ),
    ],
)
def test_a_doubtful_choice_is_doubted(
    name: str | None, family: str, evidence: ModelEvidence, doubt: str, cure: str
) -> None:
    choice = choose(evidence, name)
    assert choice.family.name == family
    assert [(told.startswith(doubt), fix.startswith(cure)) for told, fix in choice.doubts.items()] == [(True, True)], (
        choice.doubts
    )


@pytest.mark.parametrize(
    ("name", "evidence"),
    [
        (None, ModelEvidence()),
        (None, ModelEvidence(template="<think>")),
        (None, ModelEvidence(model_type="qwen2", template="tools<tool_call>", written=HERMES)),
        (
            None,
            ModelEvidence(model_type="granite", template="tools", written=GRANITE, has_token="<|tool_call|>".__eq__),
        ),
        ("hermes", ModelEvidence(template="tools", written=HERMES, has_token=lambda _: False)),
        (None, ModelEvidence(model_type="nemotron_h", template="tools<TOOLCALL>[<think>", written=NEMOTRON)),
        ("llama3_json", ModelEvidence(has_token=lambda _: False)),  # it reads calls without a token before them
    ],
)
def test_a_sure_choice_is_not_doubted(name: str | None, evidence: ModelEvidence) -> None:
    assert choose(evidence, name).doubts == {}


def test_the_families_that_read_the_template_are_named() -> None:
    (cure,) = choose(ModelEvidence(written=HERMES), "kimi").doubts.values()
    assert "hermes" in cure
    assert "lfm2" not in cure


def test_the_call_that_a_template_writes_tells_without_any_sign() -> None:
    choice = choose(ModelEvidence(written=LFM2))
    assert (choice.family.name, choice.reason) == ("lfm2", "the tool call that its chat template writes")


def test_each_family_tells_whose_it_is_and_where_its_form_is_described() -> None:
    for family in FAMILIES.values():
        assert isinstance(family, ModelFamily)
        assert family.models, family.name
        assert not writes_calls(family) or family.sources, family.name


VISITOR = ModelFamily(
    name="visitor",
    grammar=NamedCalls(opens=("<visit:",), separator=">", close="</visit>"),
    signs=(("<visit:",),),
)
"""A family of another package."""
VISIT = WrittenCall("", '<visit:get_weather>{"city": "Rome"}</visit>')


def test_other_packages_bring_families(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("visitor", f"{__name__}:VISITOR", family_choice.ENTRY_POINTS)
    monkeypatch.setattr(family_choice, "entry_points", lambda group: EntryPoints([point]).select(group=group))
    family_choice.installed.cache_clear()
    try:
        evidence = ModelEvidence(template="tools<tool_call><visit:", written=VISIT)
        assert choose(evidence) == FamilyChoice(VISITOR, "the package that provides it")
        assert choose(evidence, "visitor") == FamilyChoice(VISITOR, "the setting `family`")
        assert [*choose(evidence, "hermes").doubts.values()] == ["Set `family` to visitor, which reads them."]
        assert choose(ModelEvidence(template="<tool_call>")).family.name == "hermes"
    finally:
        family_choice.installed.cache_clear()
