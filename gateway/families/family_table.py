"""The table of this package's families: an entry each, over the grammars of the modules beside this one."""

# ruff: noqa: RUF001 - DeepSeek spells its tokens with these characters

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gateway.families import glm, granite, harmony, hermes, phi4, qwen3_coder
from gateway.families.bare_calls import BareCalls
from gateway.families.channel_calls import ChannelCalls
from gateway.families.family import Family
from gateway.families.gemma_calls import GemmaCalls
from gateway.families.markers import ThinkTags
from gateway.families.model_family import ModelFamily
from gateway.families.named_calls import NamedCalls

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
        signs=(
            (_MISTRAL_CALLS.call, _MISTRAL_CALLS.separator),
            (_MISTRAL_CALLS.call, _MISTRAL_CALLS.separator, "[AVAILABLE_TOOLS]"),
        ),
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
        name="xlam",
        models="Salesforce xLAM-2",
        sources=(
            "https://huggingface.co/Salesforce/Llama-xLAM-2-8b-fc-r",
            "https://github.com/vllm-project/vllm/blob/main/examples/tool_chat_template_xlam_llama.jinja",
            "https://github.com/vllm-project/vllm/blob/main/examples/tool_chat_template_xlam_qwen.jinja",
        ),
        grammar=BareCalls(
            before="[TOOL_CALLS]", after=("</tool_call>",), aliases=("<tool_call>",), fenced=True, written="array"
        ),
        tags=ThinkTags(instead=("[TOOL_CALLS]", "<tool_call>")),
        signs=(('[{"name": "tool_call_name", "arguments": {',),),
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
        name="kimi_k3",
        models="Kimi K3",
        sources=(
            "https://github.com/ggml-org/llama.cpp/blob/master/models/templates/Kimi-K3.jinja",
            "https://github.com/vllm-project/vllm/blob/main/tests/tool_parsers/test_kimi_k3_tool_parser.py",
        ),
        grammar=ChannelCalls(),
        tags=ThinkTags("<|open|>think<|sep|>", "<|close|>think<|sep|>", between="<|open|>response<|sep|>"),
        signs=(("<|open|>", "<|close|>", "<|sep|>"),),
        model_types=frozenset({"kimi_k3", "KimiK3ForConditionalGeneration"}),
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
        grammar=glm.GlmGrammar(),
        tags=ThinkTags(instead=(glm.OPEN,)),
        stop=("<|observation|>", "<|user|>"),
        signs=((glm.KEY, glm.VALUE),),
        model_types=frozenset(
            {"glm4_moe", "glm4_moe_lite", "glm_moe_dsa", "Glm4MoeForCausalLM", "GlmMoeDsaForCausalLM"}
        ),
    ),
    ModelFamily(  # Qwen3.5 and its successors: the calls of Qwen3-Coder, with reasoning
        name="qwen3_5",
        models="Qwen3.5 and later",
        sources=("https://huggingface.co/Qwen/Qwen3.5-35B-A3B",),
        grammar=qwen3_coder.Qwen3CoderParser,
        call_format=qwen3_coder.QWEN3_CODER_CALLS,
        tags=_HERMES_THINK,
        signs=((qwen3_coder.OPEN, qwen3_coder.FUNCTION, "<think>"),),
        model_types=frozenset({"qwen3_5", "qwen3_5_moe"}),
    ),
    ModelFamily(
        name="qwen3_coder",
        models="Qwen3-Coder",
        sources=("https://huggingface.co/Qwen/Qwen3-Coder-30B-A3B-Instruct",),
        grammar=qwen3_coder.Qwen3CoderParser,
        call_format=qwen3_coder.QWEN3_CODER_CALLS,
        signs=((qwen3_coder.OPEN, qwen3_coder.FUNCTION),),
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
        models="Llama 4; Llama 3.2, ToolACE and Gemma 3 with such a template",
        sources=(
            "https://github.com/meta-llama/llama-models/blob/main/models/llama4/prompt_format.md",
            "https://github.com/meta-llama/llama-models/blob/main/models/llama3_2/text_prompt_format.md",
            "https://github.com/vllm-project/vllm/blob/main/examples/tool_chat_template_toolace.jinja",
            "https://ai.google.dev/gemma/docs/capabilities/function-calling",
        ),
        grammar=BareCalls(before="<|python_start|>", after=("<|python_end|>", "<|eom|>")),
        stop=("<|eom|>",),
        signs=(("<|python_start|>",), ("[func_name1(",)),
        model_types=frozenset({"llama4", "Llama4ForConditionalGeneration", "Llama4ForCausalLM"}),
    ),
    ModelFamily(
        name="lfm2",
        models="LFM2, LFM2.5",
        sources=(
            "https://huggingface.co/LiquidAI/LFM2-1.2B",
            "https://github.com/ggml-org/llama.cpp/blob/master/models/templates/LFM2.5-8B-A1B.jinja",
        ),
        grammar=BareCalls(before="<|tool_call_start|>", after=("<|tool_call_end|>",), marked=True),
        tags=ThinkTags(instead=("<|tool_call_start|>",)),
        signs=(("<|tool_call_start|>",),),
        model_types=frozenset({"lfm2", "lfm2_moe", "Lfm2ForCausalLM", "Lfm2MoeForCausalLM"}),
    ),
    ModelFamily(
        name="olmo3",
        models="Olmo 3",
        sources=(
            "https://huggingface.co/allenai/Olmo-3-7B-Instruct-SFT/blob/main/chat_template.jinja",
            "https://huggingface.co/allenai/Olmo-3-7B-Think",
            "https://github.com/vllm-project/vllm/blob/main/examples/tool_chat_template_olmo3.jinja",
        ),
        grammar=BareCalls(before="<function_calls>", after=("</function_calls>",), marked=True, written="lines"),
        tags=ThinkTags(instead=("<function_calls>",)),
        signs=(("<functions>", "<function_calls>"),),
        model_types=frozenset({"olmo3", "Olmo3ForCausalLM"}),
    ),
    ModelFamily(
        name="gemma4",
        models="Gemma 4",
        sources=(
            "https://ai.google.dev/gemma/docs/core/prompt-formatting-gemma4",
            "https://github.com/ggml-org/llama.cpp/blob/master/models/templates/google-gemma-4-31B-it-interleaved.jinja",
        ),
        grammar=GemmaCalls(before="<|tool_call>", after="<tool_call|>", quote='<|"|>'),
        tags=ThinkTags("<|channel>", "<channel|>", instead=("<|tool_call>",), label="thought\n", anywhere=True),
        stop=("<|tool_response>",),
        signs=(("<|tool_call>call:",),),
        model_types=frozenset({"gemma4", "gemma4_text", "Gemma4ForConditionalGeneration", "Gemma4ForCausalLM"}),
    ),
    ModelFamily(
        name="functiongemma",
        models="FunctionGemma",
        sources=("https://ai.google.dev/gemma/docs/functiongemma/formatting-and-best-practices",),
        grammar=GemmaCalls(before="<start_function_call>", after="<end_function_call>", quote="<escape>", typed=True),
        stop=("<start_function_response>",),
        signs=(("<start_function_call>",),),
    ),
    ModelFamily(
        name="functionary_v31",
        models="Functionary 3.1",
        sources=(
            "https://huggingface.co/meetkai/functionary-small-v3.1",
            "https://github.com/ggml-org/llama.cpp/blob/master/models/templates/meetkai-functionary-medium-v3.1.jinja",
        ),
        grammar=NamedCalls(call="<function=", separator=">", end="</function>"),
        stop=("<|eom_id|>",),
        signs=(("<function=", "</function>", "<|python_tag|>"),),
    ),
    ModelFamily(
        name="llama3_json",
        models="Llama 3.1, 3.2, 3.3",
        sources=(
            "https://github.com/meta-llama/llama-models/blob/main/models/llama3_3/prompt_format.md",
            "https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct",
        ),
        grammar=BareCalls(before="<|python_tag|>", after=("<|eom_id|>",), written="json"),
        stop=("<|eom_id|>",),
        signs=(("<|python_tag|>",), ("<|start_header_id|>", '"parameters": ')),
        shared_types=frozenset({"llama", "mllama", "LlamaForCausalLM", "MllamaForConditionalGeneration"}),
    ),
)
"""The families that claim models. Of those that do it equally well the first gets a model: particular signs first."""

FAMILIES: Mapping[str, Family] = {family.name: family for family in (*CLAIMING, THINK, PLAIN)}
"""The families of this package, by name."""
