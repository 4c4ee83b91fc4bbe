"""The table of this package's families: an entry each, over the grammars of the modules beside this one."""

# ruff: noqa: RUF001 - DeepSeek spells its tokens with these characters

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gateway.families import granite, harmony, hermes, llama, phi4
from gateway.families.family import Family
from gateway.families.markers import ThinkTags
from gateway.families.model_family import ModelFamily
from gateway.families.named_calls import NamedCalls
from gateway.families.tagged_calls import TaggedCalls

_HERMES_THINK = ThinkTags(between="\n\n", instead=(hermes.OPEN,))
_DEEPSEEK_CALLS = NamedCalls(  # V3.1 at times writes the fence too, as noted in llama.cpp's tests for it
    call="<｜tool▁call▁begin｜>",
    separator="<｜tool▁sep｜>",
    end="<｜tool▁call▁end｜>",
    section=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    typed="read",
    fenced="read",
)
_DEEPSEEK_SECTION = _DEEPSEEK_CALLS.section[0]
_DEEPSEEK_THINK = ThinkTags(instead=(_DEEPSEEK_SECTION,))
_KIMI_SECTION = ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")
# Both generations are read by both entries. Some models leave the separator out, as noted in vLLM's parser.
_MISTRAL_CALLS = NamedCalls(call="[TOOL_CALLS]", separator="[ARGS]", id_marker="[CALL_ID]", bare=True, array="read")
_MISTRAL_THINK = ThinkTags("[THINK]", "[/THINK]", instead=(_MISTRAL_CALLS.call,), anywhere=True)
_MISTRAL_TYPES = frozenset({"mistral", "mistral3", "mixtral", "MistralForCausalLM", "Mistral3ForConditionalGeneration"})
_GRANITE_TYPES = frozenset({"granite", "granitemoe", "GraniteForCausalLM", "GraniteMoeForCausalLM"})

_ARGUMENT_TAGS = TaggedCalls(
    call="<tool_call>",
    named="\n",
    key="<arg_key>",
    keyed="</arg_key>\n<arg_value>",
    value_end="</arg_value>\n",
    end="</tool_call>",
    own=True,
)
_FUNCTION_TAGS = TaggedCalls(
    section=("<tool_call>\n", "\n</tool_call>"),
    wrapped=True,
    call="<function=",
    named=">\n",
    key="<parameter=",
    keyed=">\n",
    value_end="\n</parameter>\n",
    end="</function>",
)
_INVOKE_TAGS = TaggedCalls(
    call='<invoke name="',
    named='">\n',
    key='<parameter name="',
    keyed='">',
    value_end="</parameter>\n",
    end="</invoke>",
)
_TOOL_CALL_THINK = ThinkTags(instead=("<tool_call>",))

PLAIN = ModelFamily(name="plain", models="all others")
"""Chat models that were not taught to call tools, and all that no other family claims."""

THINK = ModelFamily(
    name="think",
    models="models that reason and have no call format known here",
    tags=ThinkTags(),
    signs=(("<think>",), ("</think>",)),
)
"""Models that reason between ``<think>`` tags and have no call format that is known here."""

CLAIMING: tuple[ModelFamily, ...] = (
    ModelFamily(
        name="mistral_v11",
        models="Mistral Small 3.2, Devstral, Magistral, Ministral 3",
        sources=("https://github.com/mistralai/mistral-common",),
        grammar=_MISTRAL_CALLS,
        tags=_MISTRAL_THINK,
        signs=((_MISTRAL_CALLS.call, _MISTRAL_CALLS.separator),),
        shared_types=_MISTRAL_TYPES,
    ),
    ModelFamily(
        name="mistral",
        models="Mistral 7B v0.3, Nemo, Large, Small up to 3.1",
        sources=(
            "https://github.com/mistralai/mistral-common",
            "https://huggingface.co/mistralai/Mistral-Nemo-Instruct-2407",
        ),
        grammar=replace(_MISTRAL_CALLS, array="written"),
        tags=_MISTRAL_THINK,
        signs=((_MISTRAL_CALLS.call,), ("[AVAILABLE_TOOLS]",)),
        shared_types=_MISTRAL_TYPES,
    ),
    ModelFamily(
        name="kimi",
        models="Kimi K2",
        sources=(
            "https://github.com/MoonshotAI/Kimi-K2/blob/main/docs/tool_call_guidance.md",
            "https://huggingface.co/moonshotai/Kimi-K2-Thinking",
        ),
        grammar=NamedCalls(
            call="<|tool_call_begin|>",
            separator="<|tool_call_argument_begin|>",
            end="<|tool_call_end|>",
            section=_KIMI_SECTION,
            namespace="functions.",
            numbered=True,
        ),
        tags=ThinkTags(instead=_KIMI_SECTION[:1]),
        signs=(_KIMI_SECTION[:1], ("<|im_system|>tool_declare<|im_middle|>",)),
        model_types=frozenset({"kimi_k2", "kimi_k25"}),
    ),
    ModelFamily(
        name="deepseek_v31",
        models="DeepSeek V3.1",
        sources=("https://huggingface.co/deepseek-ai/DeepSeek-V3.1",),
        grammar=_DEEPSEEK_CALLS,
        tags=_DEEPSEEK_THINK,
        signs=((_DEEPSEEK_SECTION, "<｜Assistant｜></think>"), (_DEEPSEEK_SECTION, "thinking is defined")),
    ),
    ModelFamily(
        name="deepseek_v3",
        models="DeepSeek V3, R1 and its distilled models",
        sources=(
            "https://huggingface.co/deepseek-ai/DeepSeek-V3-0324",
            "https://huggingface.co/deepseek-ai/DeepSeek-R1",
        ),
        grammar=replace(_DEEPSEEK_CALLS, typed="written", fenced="written"),
        tags=_DEEPSEEK_THINK,
        signs=((_DEEPSEEK_SECTION,),),
        shared_types=frozenset({"deepseek_v3", "DeepseekV3ForCausalLM"}),
    ),
    harmony.HarmonyFamily(
        name="harmony",
        models="gpt-oss",
        sources=("https://github.com/openai/harmony/blob/main/docs/format.md",),
        grammar=harmony.HarmonyParser,
        call_format=harmony.HARMONY_CALLS,
        stop=harmony.STOP,
        signs=((harmony.CHANNEL, harmony.MESSAGE),),
        model_types=frozenset({"gpt_oss", "GptOssForCausalLM"}),
    ),
    ModelFamily(
        name="granite4",
        models="Granite 4",
        sources=("https://huggingface.co/ibm-granite/granite-4.0-h-small",),
        grammar=granite.GraniteParser,
        call_format=hermes.HERMES_CALLS,
        signs=(("<|start_of_role|>", granite.OPEN),),
        model_types=frozenset({"granitemoehybrid", "GraniteMoeHybridForCausalLM"}),
        older_types=_GRANITE_TYPES,
    ),
    granite.GraniteFamily(
        name="granite",
        models="Granite 3.0 to 3.3",
        sources=(
            "https://huggingface.co/ibm-granite/granite-3.3-8b-instruct",
            "https://huggingface.co/ibm-granite/granite-3.2-8b-instruct",
        ),
        grammar=granite.GraniteParser,
        tags=granite.TAGS,
        signs=(("<|start_of_role|>",),),
        model_types=_GRANITE_TYPES,
    ),
    ModelFamily(
        name="phi4",
        models="Phi-4-mini, Phi-4-multimodal",
        sources=("https://huggingface.co/microsoft/Phi-4-mini-instruct",),
        grammar=phi4.Phi4Parser,
        tags=ThinkTags(instead=(phi4.CALL,)),
        signs=(("<|tool|>", "<|/tool|>"), (phi4.WORD,)),
        model_types=frozenset({"phi4", "phi4mm", "phi4_multimodal", "Phi4MMForCausalLM"}),
    ),
    ModelFamily(
        name="glm",
        models="GLM 4.5, 4.6, 4.7, 5",
        sources=(
            "https://huggingface.co/zai-org/GLM-4.5",
            "https://huggingface.co/zai-org/GLM-4.6",
            "https://huggingface.co/zai-org/GLM-4.7",
        ),
        grammar=_ARGUMENT_TAGS,
        tags=_TOOL_CALL_THINK,
        stop=("<|observation|>", "<|user|>"),
        signs=(("<arg_key>", "<arg_value>"),),
        model_types=frozenset(
            {"glm4_moe", "glm4_moe_lite", "glm_moe_dsa", "Glm4MoeForCausalLM", "GlmMoeDsaForCausalLM"}
        ),
    ),
    ModelFamily(  # Qwen3.5 and its successors: the calls of Qwen3-Coder, with reasoning
        name="qwen3_5",
        models="Qwen3.5 and later",
        sources=("https://huggingface.co/Qwen/Qwen3.5-35B-A3B",),
        grammar=_FUNCTION_TAGS,
        tags=_HERMES_THINK,
        signs=(("<tool_call>", "<function=", "<think>"),),
        model_types=frozenset({"qwen3_5", "qwen3_5_moe"}),
    ),
    ModelFamily(
        name="qwen3_coder",
        models="Qwen3-Coder",
        sources=("https://huggingface.co/Qwen/Qwen3-Coder-30B-A3B-Instruct",),
        grammar=_FUNCTION_TAGS,
        signs=(("<tool_call>", "<function="),),
    ),
    ModelFamily(  # Qwen3 and QwQ: the calls of Hermes, with reasoning, which a template's switch may turn off
        name="qwen3",
        models="Qwen3, QwQ, SmolLM3",
        sources=("https://github.com/QwenLM/Qwen3/blob/main/docs/source/inference/transformers.md",),
        grammar=hermes.HermesParser,
        call_format=hermes.HERMES_CALLS,
        tags=_HERMES_THINK,
        signs=((hermes.OPEN, "<think>"),),
        shared_types=frozenset({"qwen3", "qwen3_moe", "qwen3_next", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM"}),
    ),
    ModelFamily(
        name="hermes",
        models="Hermes 2 and 3, Qwen2.5",
        sources=(
            "https://github.com/NousResearch/Hermes-Function-Calling",
            "https://github.com/QwenLM/Qwen2.5/blob/main/docs/source/framework/function_call.md",
        ),
        grammar=hermes.HermesParser,
        call_format=hermes.HERMES_CALLS,
        signs=((hermes.OPEN,),),
        shared_types=frozenset({"qwen2", "qwen2_moe", "Qwen2ForCausalLM", "Qwen2MoeForCausalLM"}),
    ),
    ModelFamily(
        name="pythonic",
        models="Llama 4; Llama 3.2 with such a template",
        sources=(
            "https://github.com/meta-llama/llama-models/blob/main/models/llama4/prompt_format.md",
            "https://github.com/meta-llama/llama-models/blob/main/models/llama3_2/text_prompt_format.md",
        ),
        grammar=llama.PythonicParser,
        stop=("<|eom|>",),
        signs=((llama.PythonicParser.before,), ("[func_name1(",)),
        model_types=frozenset({"llama4", "Llama4ForConditionalGeneration", "Llama4ForCausalLM"}),
    ),
    ModelFamily(
        name="lfm2",
        models="LFM2, LFM2.5",
        sources=("https://huggingface.co/LiquidAI/LFM2-1.2B",),
        grammar=llama.Lfm2Parser,
        tags=ThinkTags(instead=(llama.Lfm2Parser.before,)),
        signs=((llama.Lfm2Parser.before,),),
        model_types=frozenset({"lfm2", "lfm2_moe", "Lfm2ForCausalLM", "Lfm2MoeForCausalLM"}),
    ),
    ModelFamily(
        name="llama3_json",
        models="Llama 3.1, 3.2, 3.3",
        sources=(
            "https://github.com/meta-llama/llama-models/blob/main/models/llama3_3/prompt_format.md",
            "https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct",
        ),
        grammar=llama.LlamaJsonParser,
        call_format=llama.LLAMA_JSON_CALLS,
        stop=("<|eom_id|>",),
        signs=((llama.LlamaJsonParser.before,), ("<|start_header_id|>", '"parameters": ')),
        shared_types=frozenset({"llama", "mllama", "LlamaForCausalLM", "MllamaForConditionalGeneration"}),
    ),
)
"""The families that claim models. Of those that do it equally well the first gets a model: particular signs first."""

FAMILIES: Mapping[str, Family] = {family.name: family for family in (*CLAIMING, THINK, PLAIN)}
"""The families of this package, by name."""
