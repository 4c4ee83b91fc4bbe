"""The table of this package's families: an entry each, over the grammars of the modules beside this one."""

# ruff: noqa: RUF001 - DeepSeek spells its tokens with these characters

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gateway.families import harmony
from gateway.families.bare_calls import BareCalls
from gateway.families.channel_calls import ChannelCalls
from gateway.families.family import Family
from gateway.families.gemma_calls import GemmaCalls
from gateway.families.json_calls import JsonCalls, Keys, MessageCalls
from gateway.families.markers import ThinkTags
from gateway.families.model_family import ModelFamily
from gateway.families.named_calls import NamedCalls
from gateway.families.nested_tags import NestedTags
from gateway.families.tagged_calls import TaggedCalls

# Where formats are described: model cards and their files, the templates of llama.cpp, vLLM, SGLang.
_HUB = "https://huggingface.co/"
_TEMPLATES = "https://github.com/ggml-org/llama.cpp/blob/master/models/templates/"
_VLLM = "https://github.com/vllm-project/vllm/blob/main/"
_SGLANG = "https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/"

_HERMES_CALLS = JsonCalls(opens=("<tool_call>",), close="</tool_call>", each=True, around=("\n", "\n"), separator="\n")
_TOOL_CALLS = JsonCalls(opens=("<tool_calls>",), close="</tool_calls>")
_PHI_CALLS = JsonCalls(opens=("<|tool_call|>",), close="<|/tool_call|>", word="functools[")
_APERTUS_CALLS = JsonCalls(opens=("<|tools_prefix|>",), close="<|tools_suffix|>", keys=Keys(name=""))
_INTERN_CALLS = JsonCalls(
    opens=("<|action_start|>",),
    close="<|action_end|>",
    extra=("<|plugin|>", "<|interpreter|>"),
    keys=Keys(arguments=("parameters", "arguments")),
    each=True,
    around=("<|plugin|>\n", ""),
    separator="",
)
_DEEPSEEK_CALLS = NamedCalls(  # V3.1 at times writes the fence too, as noted in llama.cpp's tests for it
    opens=("<｜tool▁call▁begin｜>",),
    separator="<｜tool▁sep｜>",
    close="<｜tool▁call▁end｜>",
    section=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    typed="read",
    fenced="read",
)
_DEEPSEEK_SECTION = _DEEPSEEK_CALLS.section[0]
_KIMI_SLIPS = ("<|tool_call_section_begin|>", "<|tool_call_section_end|>")  # as noted in vLLM's parser for Kimi K2
_KIMI_SECTION = ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")
# Both generations are read by both entries. Some models leave the separator out, as noted in vLLM's parser.
_MISTRAL_CALLS = NamedCalls(opens=("[TOOL_CALLS]",), separator="[ARGS]", id_marker="[CALL_ID]", bare=True, array="read")
_MISTRAL_THINK = ThinkTags("[THINK]", "[/THINK]", anywhere=True)
_MISTRAL_TYPES = ("mistral", "mistral3", "mixtral", "MistralForCausalLM", "Mistral3ForConditionalGeneration")
_GRANITE_TYPES = ("granite", "granitemoe", "GraniteForCausalLM", "GraniteMoeForCausalLM")

_FUNCTION_TAGS = TaggedCalls.written(
    "<function=NAME>\n",
    "<parameter=KEY>\nVALUE\n</parameter>\n",
    "</function>",
    section=("<tool_call>\n", "\n</tool_call>"),
    wrapped=True,
)
_GLM_STOP = ("<|observation|>", "<|user|>")


def _argument_tags(*, prefix: str = "", suffix: str = "") -> TaggedCalls:
    """The tags of GLM and its kin, for the name and for the value of each argument; families differ in their words."""
    key, value = f"{prefix}arg_key{suffix}", f"{prefix}arg_value{suffix}"
    return TaggedCalls.written(
        f"<{prefix}tool_call{suffix}>NAME\n",
        f"<{key}>KEY</{key}>\n<{value}>VALUE</{value}>\n",
        f"</{prefix}tool_call{suffix}>",
        own=True,
    )


def _invoke_tags(section: str, word: str = "") -> TaggedCalls:
    """The tags of MiniMax M2 and its kin, in a section; ``word``: in each tag, as the mark of the format."""
    return TaggedCalls.written(
        f'<{word}invoke name="NAME">\n',
        f'<{word}parameter name="KEY">VALUE</{word}parameter>\n',
        f"</{word}invoke>",
        section=(f"<{word}{section}>\n", f"\n</{word}{section}>"),
        lead="\n\n",
    )


def _marked_tags(section: str, word: str) -> TaggedCalls:
    """The tags of DeepSeek's markup language and its kin: as above, with a word that makes them the format's own."""
    return replace(_invoke_tags(section, word), attribute="string", own=True, or_json=True)


def _hunyuan_tags(suffix: str) -> TaggedCalls:
    """The tags of Hunyuan, whose tokens may have a suffix."""
    section = (f"<tool_calls{suffix}>\n", f"\n</tool_calls{suffix}>")
    return replace(_argument_tags(suffix=suffix), section=section, named=f"<tool_sep{suffix}>\n")


_FUNCTION_THINK_SIGNS = (("<tool_call>", "<function=", "<think>"),)
_GLM_TYPES = ("glm4_moe", "Glm4MoeForCausalLM")
_MINIMAX_WORD = "]<]minimax[>["
_HUNYUAN_TYPES = ("hy_v3", "HYV3ForCausalLM")
_HUNYUAN_SOURCES = (_HUB + "tencent/Hy3-preview", _SGLANG + "function_call/hunyuan_detector.py")

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
            (*_MISTRAL_CALLS.opens, _MISTRAL_CALLS.separator),
            (*_MISTRAL_CALLS.opens, _MISTRAL_CALLS.separator, "[AVAILABLE_TOOLS]"),
        ),
        shared_types=_MISTRAL_TYPES,
    ),
    ModelFamily(
        name="mistral",
        models="Mistral 7B v0.3, Nemo, Large, Small up to 3.1",
        sources=("https://github.com/mistralai/mistral-common", _HUB + "mistralai/Mistral-Nemo-Instruct-2407"),
        grammar=replace(_MISTRAL_CALLS, array="written"),
        tags=_MISTRAL_THINK,
        signs=(_MISTRAL_CALLS.opens, ("[AVAILABLE_TOOLS]",)),
        shared_types=_MISTRAL_TYPES,
    ),
    ModelFamily(
        name="xlam",
        models="Salesforce xLAM-2",
        sources=(
            _HUB + "Salesforce/Llama-xLAM-2-8b-fc-r",
            _VLLM + "examples/tool_chat_template_xlam_llama.jinja",
            _VLLM + "examples/tool_chat_template_xlam_qwen.jinja",
        ),
        grammar=BareCalls(opens=("[TOOL_CALLS]", "<tool_call>"), close="</tool_call>", fenced=True, written="array"),
        tags=ThinkTags(),
        signs=(('[{"name": "tool_call_name", "arguments": {',),),
    ),
    ModelFamily(
        name="kimi",
        models="Kimi K2",
        sources=(
            "https://github.com/MoonshotAI/Kimi-K2/blob/main/docs/tool_call_guidance.md",
            _HUB + "moonshotai/Kimi-K2-Thinking",
        ),
        grammar=NamedCalls(
            opens=("<|tool_call_begin|>",),
            separator="<|tool_call_argument_begin|>",
            close="<|tool_call_end|>",
            section=_KIMI_SECTION,
            extra=_KIMI_SLIPS,
            namespace="functions.",
            numbered=True,
        ),
        tags=ThinkTags(instead=_KIMI_SLIPS[:1]),
        signs=(_KIMI_SECTION[:1], ("<|im_system|>tool_declare<|im_middle|>",)),
        model_types=("kimi_k2", "kimi_k25"),
    ),
    ModelFamily(
        name="kimi_k3",
        models="Kimi K3",
        sources=(_TEMPLATES + "Kimi-K3.jinja", _VLLM + "tests/tool_parsers/test_kimi_k3_tool_parser.py"),
        grammar=ChannelCalls(),
        tags=ThinkTags("<|open|>think<|sep|>", "<|close|>think<|sep|>", between="<|open|>response<|sep|>"),
        signs=(("<|open|>", "<|close|>", "<|sep|>"),),
        model_types=("kimi_k3", "KimiK3ForConditionalGeneration"),
    ),
    ModelFamily(
        name="deepseek_v31",
        models="DeepSeek V3.1",
        sources=(_HUB + "deepseek-ai/DeepSeek-V3.1",),
        grammar=_DEEPSEEK_CALLS,
        tags=ThinkTags(),
        signs=((_DEEPSEEK_SECTION, "<｜Assistant｜></think>"), (_DEEPSEEK_SECTION, "thinking is defined")),
        older_types=("deepseek_v32", "DeepseekV32ForCausalLM"),  # V3.2-Exp writes as V3.1 does
    ),
    ModelFamily(
        name="deepseek_v3",
        models="DeepSeek V3, R1 and its distilled models",
        sources=(_HUB + "deepseek-ai/DeepSeek-V3-0324", _HUB + "deepseek-ai/DeepSeek-R1"),
        grammar=replace(_DEEPSEEK_CALLS, gap="\n", typed="written", fenced="written"),
        tags=ThinkTags(),
        shared_types=("deepseek_v3", "DeepseekV3ForCausalLM"),
    ),
    harmony.HarmonyFamily(
        name="harmony",
        models="gpt-oss",
        sources=("https://github.com/openai/harmony/blob/main/docs/format.md",),
        grammar=harmony.HarmonyCalls(),
        stop=harmony.STOP,
        signs=((harmony.CHANNEL, harmony.MESSAGE),),
        model_types=("gpt_oss", "GptOssForCausalLM"),
    ),
    ModelFamily(
        name="granite4",
        models="Granite 4",
        sources=(_HUB + "ibm-granite/granite-4.0-h-small",),
        grammar=replace(_HERMES_CALLS, opens=(*_HERMES_CALLS.opens, "<|tool_call|>")),
        signs=(("<|start_of_role|>", "<tool_call>"),),
        model_types=("granitemoehybrid", "GraniteMoeHybridForCausalLM"),
        older_types=_GRANITE_TYPES,
    ),
    ModelFamily(  # tags in 3.3, phrases in 3.2; 3.1 writes <tool_call> before the list, as noted in vLLM's parser
        name="granite",
        models="Granite 3.0 to 3.3",
        sources=(_HUB + "ibm-granite/granite-3.3-8b-instruct", _HUB + "ibm-granite/granite-3.2-8b-instruct"),
        grammar=JsonCalls(opens=("<|tool_call|>", "<tool_call>"), extra=("</tool_call>",)),
        tags=ThinkTags(
            phrases=(
                ("Here is my thought process:", "Here's my thought process:"),
                ("Here is my response:", "Here's my response:"),
            ),
            answer=("<response>",),
            answer_end="</response>",
        ),
        signs=(("<|start_of_role|>",),),
        model_types=_GRANITE_TYPES,
    ),
    ModelFamily(
        name="granite_20b",
        models="Granite 20B Function Calling",
        sources=(
            _HUB + "ibm-granite/granite-20b-functioncalling",
            _VLLM + "examples/tool_chat_template_granite_20b_fc.jinja",
        ),
        grammar=JsonCalls(opens=("<function_call>",), each=True, around=(" ", ""), separator="\n"),
        signs=(("<function_call>", "<|function_call_library|>"),),
    ),
    ModelFamily(  # results follow in the same turn of the template, so that a call must end the answer
        name="apertus",
        models="Apertus",
        sources=(_HUB + "swiss-ai/Apertus-8B-Instruct-2509", _TEMPLATES + "Apertus-8B-Instruct.jinja"),
        grammar=_APERTUS_CALLS,
        tags=ThinkTags("<|inner_prefix|>", "<|inner_suffix|>", anywhere=True),
        stop=(_APERTUS_CALLS.close,),
        model_types=("apertus", "ApertusForCausalLM"),
    ),
    ModelFamily(  # a list of calls in its reasoning is none, nor is one in that of MiniMax M1
        name="hunyuan",
        models="Hunyuan A13B",
        sources=(_HUB + "tencent/Hunyuan-A13B-Instruct", _VLLM + "examples/tool_chat_template_hunyuan_a13b.jinja"),
        grammar=_TOOL_CALLS,
        tags=ThinkTags(
            between="\n<answer>\n", until_calls=False, answer=("<answer>", "助手："), answer_end="</answer>"
        ),
        signs=(("<tool_calls>[", "<|extra_0|>"),),
        model_types=("hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM"),
    ),
    ModelFamily(
        name="minimax_m1",
        models="MiniMax M1",
        sources=(
            "https://github.com/MiniMax-AI/MiniMax-M1/blob/main/docs/function_call_guide.md",
            _VLLM + "examples/tool_chat_template_minimax_m1.jinja",
        ),
        grammar=replace(_TOOL_CALLS, around=("\n", "\n"), separator="\n"),
        tags=ThinkTags(until_calls=False),
        signs=(("<tool_calls>", "<end_of_sentence>"),),
        model_types=("minimax_m1", "MiniMaxM1ForCausalLM"),
    ),
    ModelFamily(
        name="jamba",
        models="Jamba 1.5, 1.6, 1.7",
        sources=(
            _HUB + "ai21labs/AI21-Jamba-1.5-Mini",
            "https://github.com/axolotl-ai-cloud/axolotl/blob/main/src/axolotl/utils/chat_templates/templates/jamba.jinja",
        ),
        grammar=replace(_TOOL_CALLS, around=("[\n    ", "\n]"), separator=",\n    "),
        signs=(("<tool_calls>", "<|bom|>"),),
        shared_types=("jamba", "JambaForCausalLM"),
    ),
    ModelFamily(
        name="pangu",
        models="openPangu",
        sources=(_VLLM + "vllm/tool_parsers/pangu_tool_parser.py", _VLLM + "vllm/model_executor/models/registry.py"),
        grammar=JsonCalls(
            opens=("[unused11]", "<|tool_call_start|>"), close="[unused12]", extra=("<|tool_call_end|>",)
        ),
        tags=ThinkTags("[unused16]", "[unused17]"),
        signs=(("[unused11]",),),
        model_types=("PanguEmbeddedForCausalLM", "PanguProMoEV2ForCausalLM", "PanguUltraMoEForCausalLM"),
    ),
    ModelFamily(
        name="apriel",
        models="Apriel 1.5 and 1.6 Thinker",
        sources=(_HUB + "ServiceNow-AI/Apriel-1.6-15b-Thinker", _TEMPLATES + "Apriel-1.6-15b-Thinker-fixed.jinja"),
        grammar=_TOOL_CALLS,
        tags=ThinkTags(
            "Here are my reasoning steps:",
            "[BEGIN FINAL RESPONSE]",
            between="\n",
            answer_end="[END FINAL RESPONSE]",
        ),
        signs=(("<tool_calls>", "[BEGIN FINAL RESPONSE]"),),
    ),
    ModelFamily(
        name="nemotron",
        models="Nemotron Nano v2, Llama-Nemotron",
        sources=(
            _HUB + "nvidia/NVIDIA-Nemotron-Nano-9B-v2",
            _HUB + "nvidia/Llama-3_3-Nemotron-Super-49B-v1_5",
            _TEMPLATES + "NVIDIA-Nemotron-Nano-v2.jinja",
        ),
        grammar=JsonCalls(opens=("<TOOLCALL>",), close="</TOOLCALL>"),
        tags=ThinkTags(),
        shared_types=("nemotron-nas", "DeciLMForCausalLM"),
    ),
    ModelFamily(
        name="intern_s1",
        models="Intern-S1",
        sources=(_HUB + "internlm/Intern-S1", _SGLANG + "function_call/internlm_detector.py"),
        grammar=replace(_INTERN_CALLS, around=(" <|plugin|>\n", "")),
        tags=ThinkTags(between="\n"),
        signs=((*_INTERN_CALLS.opens, "<|plugin|>", "<think>"),),
        model_types=("interns1", "InternS1ForConditionalGeneration"),
    ),
    ModelFamily(
        name="internlm",
        models="InternLM2, 2.5 and 3",
        sources=(
            "https://github.com/InternLM/InternLM/blob/main/chat/chat_format.md",
            _VLLM + "examples/tool_chat_template_internlm2_tool.jinja",
        ),
        grammar=_INTERN_CALLS,
        signs=((*_INTERN_CALLS.opens, "<|plugin|>"),),
        shared_types=("internlm2", "internlm3", "InternLM2ForCausalLM", "InternLM3ForCausalLM"),
    ),
    ModelFamily(
        name="longcat2",
        models="LongCat 2.0, LongCat-Flash-Lite",
        sources=(_HUB + "meituan-longcat/LongCat-2.0-Preview",),
        grammar=_argument_tags(prefix="longcat_"),
        tags=ThinkTags("<longcat_think>", "</longcat_think>"),
        signs=(("<longcat_arg_key>",),),
    ),
    ModelFamily(
        name="longcat",
        models="LongCat-Flash",
        sources=(_HUB + "meituan-longcat/LongCat-Flash-Chat",),
        grammar=replace(_HERMES_CALLS, opens=("<longcat_tool_call>",), close="</longcat_tool_call>"),
        tags=ThinkTags("<longcat_think>", "</longcat_think>", between="\n"),
        shared_types=("longcat_flash", "LongcatFlashForCausalLM"),
    ),
    ModelFamily(
        name="ernie",
        models="Ernie 4.5 Thinking",
        sources=(
            _HUB + "baidu/ERNIE-4.5-21B-A3B-Thinking",
            "https://github.com/PaddlePaddle/FastDeploy/blob/develop/docs/features/tool_calling.md",
        ),
        grammar=_HERMES_CALLS,
        tags=ThinkTags(between="\n\n", answer=("<response>",), answer_end="</response>"),
        signs=(("<tool_call>", "<response>"),),
        shared_types=("ernie4_5_moe", "Ernie4_5_MoeForCausalLM"),
    ),
    ModelFamily(
        name="phi4",
        models="Phi-4-mini, Phi-4-multimodal",
        sources=(_HUB + "microsoft/Phi-4-mini-instruct",),
        grammar=_PHI_CALLS,
        tags=ThinkTags(),
        signs=(("<|tool|>", "<|/tool|>"), (_PHI_CALLS.word,)),
        model_types=("phi4", "phi4mm", "phi4_multimodal", "Phi4MMForCausalLM"),
    ),
    ModelFamily(
        name="deepseek_v32",
        models="DeepSeek V3.2",
        sources=(_HUB + "deepseek-ai/DeepSeek-V3.2", _TEMPLATES + "DeepSeek-V3.2.jinja"),
        grammar=_marked_tags("function_calls", "｜DSML｜"),
        tags=ThinkTags(),
        visible=("｜DSML｜",),
        signs=(("｜DSML｜", "function_calls"),),
        model_types=("deepseek_v32", "DeepseekV32ForCausalLM"),
    ),
    ModelFamily(
        name="deepseek_v4",
        models="DeepSeek V4",
        sources=(
            _HUB + "deepseek-ai/DeepSeek-V4-Pro/blob/main/encoding/encoding_dsv4.py",
            _VLLM + "vllm/tool_parsers/deepseekv4_tool_parser.py",
        ),
        grammar=_marked_tags("tool_calls", "｜DSML｜"),
        tags=ThinkTags(),
        visible=("｜DSML｜",),
        signs=(("｜DSML｜", "tool_calls"),),
        model_types=("deepseek_v4", "DeepseekV4ForCausalLM"),
    ),
    ModelFamily(
        name="gigachat35",
        models="GigaChat 3.5",
        sources=(_TEMPLATES + "GigaChat3.5.jinja", _VLLM + "vllm/tool_parsers/gigachat35_tool_parser.py"),
        grammar=_marked_tags("tool_calls", "｜GCML｜"),
        tags=ThinkTags(),
        visible=("｜GCML｜",),
        signs=(("｜GCML｜",),),
    ),
    ModelFamily(
        name="minimax_m2",
        models="MiniMax M2, M2.1, M2.5",
        sources=(
            _HUB + "MiniMaxAI/MiniMax-M2/blob/main/docs/tool_calling_guide.md",
            _TEMPLATES + "unsloth-MiniMax-M2.jinja",
        ),
        grammar=replace(_invoke_tags("minimax:tool_call"), lead="\n"),
        tags=ThinkTags(between="\n\n"),
        model_types=("minimax_m2", "MiniMaxM2ForCausalLM"),
    ),
    ModelFamily(
        name="minimax_m3",
        models="MiniMax M3",
        sources=(_HUB + "MiniMaxAI/MiniMax-M3", _SGLANG + "function_call/minimax_m3.py"),
        grammar=NestedTags(opens=(_MINIMAX_WORD,)),
        tags=ThinkTags("<mm:think>", "</mm:think>"),
        signs=(("<mm:think>", "minimax[>["), (_MINIMAX_WORD,)),
        model_types=("minimax_m3_vl", "MiniMaxM3SparseForConditionalGeneration"),
    ),
    ModelFamily(
        name="dots",
        models="dots, as SGLang serves them",
        sources=(_SGLANG + "function_call/dots_detector.py",),
        grammar=_invoke_tags("dots_function_call"),
        tags=ThinkTags(),
    ),
    ModelFamily(
        name="seed_oss",
        models="Seed-OSS",
        sources=(_HUB + "ByteDance-Seed/Seed-OSS-36B-Instruct", _TEMPLATES + "ByteDance-Seed-OSS.jinja"),
        grammar=replace(
            _FUNCTION_TAGS, section=("<seed:tool_call>\n", "\n</seed:tool_call>"), keyed=">", value_end="</parameter>\n"
        ),
        tags=ThinkTags("<seed:think>", "</seed:think>", between="\n"),
        model_types=("seed_oss", "SeedOssForCausalLM"),
    ),
    ModelFamily(
        name="step3",
        models="Step3",
        sources=(_HUB + "stepfun-ai/step3/blob/main/chat_template.json", _SGLANG + "function_call/step3_detector.py"),
        grammar=TaggedCalls.written(
            '<｜tool_call_begin｜>\nfunction<｜tool_sep｜><steptml:invoke name="NAME">',
            '<steptml:parameter name="KEY">VALUE</steptml:parameter>',
            "</steptml:invoke><｜tool_call_end｜>",
            section=("<｜tool_calls_begin｜>\n", "\n<｜tool_calls_end｜>"),
            own=True,
        ),
        tags=ThinkTags(),
        signs=(("steptml:invoke",),),
        model_types=("step3_vl", "step3_text", "Step3VLForConditionalGeneration", "Step3TextForCausalLM"),
    ),
    ModelFamily(
        name="minicpm5",
        models="MiniCPM5",
        sources=(
            "https://github.com/OpenBMB/MiniCPM#with-tool-calling",
            _HUB + "openbmb/MiniCPM5-1B/blob/main/chat_template.jinja",
        ),
        grammar=TaggedCalls.written(
            '<function name="NAME">', '<param name="KEY">VALUE</param>', "</function>", cdata=True
        ),
        tags=ThinkTags(between="\n\n"),
        signs=(('<function name="', '<param name="'), ("<function name=", "<param name=")),
    ),
    ModelFamily(
        name="hunyuan3_open",
        models="Hunyuan 3 (Hy3) with the tokens of its open release",
        sources=_HUNYUAN_SOURCES,
        grammar=_hunyuan_tags(":opensource"),
        tags=ThinkTags("<think:opensource>", "</think:opensource>"),
        signs=((":opensource", "tool_sep", "arg_key"),),
        older_types=_HUNYUAN_TYPES,
    ),
    ModelFamily(
        name="hunyuan3",
        models="Hunyuan 3 (Hy3) preview",
        sources=_HUNYUAN_SOURCES,
        grammar=_hunyuan_tags(""),
        tags=ThinkTags(),
        signs=(("<tool_sep>", "<arg_key>"),),
        model_types=_HUNYUAN_TYPES,
    ),
    ModelFamily(
        name="solar_open2",
        models="Solar Open 2",
        sources=(_VLLM + "vllm/tool_parsers/solar_open2_tool_parser.py",),
        grammar=TaggedCalls.written(
            "<|tool_call:start|>NAME\n",
            "<|tool_arg:start|>KEY<|tool_arg:value|>VALUE<|tool_arg:end|>\n",
            "<|tool_call:end|>",
            own=True,
        ),
        signs=(("<|tool_call:start|>", "<|tool_arg:start|>"),),
    ),
    ModelFamily(  # the calls of the family below, without line ends
        name="glm47",
        models="GLM 4.7, 5; Laguna S",
        sources=(
            _HUB + "zai-org/GLM-4.7",
            _TEMPLATES + "GLM-4.7-Flash.jinja",
        ),
        grammar=replace(
            _argument_tags(), named="", keyed="</arg_key><arg_value>", value_end="</arg_value>", separator=""
        ),
        tags=ThinkTags(),
        stop=_GLM_STOP,
        signs=(("<arg_key>", "<arg_value>", "</arg_key><arg_value>"),),
        model_types=("glm4_moe_lite", "glm_moe_dsa", "Glm4MoeLiteForCausalLM", "GlmMoeDsaForCausalLM"),
        older_types=_GLM_TYPES,
    ),
    ModelFamily(
        name="glm",
        models="GLM 4.5, 4.6; Ling 3 and Laguna XS",
        sources=(
            _HUB + "zai-org/GLM-4.5",
            _HUB + "zai-org/GLM-4.6",
            _VLLM + "vllm/tool_parsers/ling3_tool_parser.py",
            _VLLM + "vllm/tool_parsers/poolside_v1_tool_parser.py",
        ),
        grammar=_argument_tags(),
        tags=ThinkTags(between="\n"),
        stop=_GLM_STOP,
        signs=(("<arg_key>", "<arg_value>"),),
        model_types=_GLM_TYPES,
    ),
    ModelFamily(  # Qwen3.5 and its successors: the calls of Qwen3-Coder, with reasoning
        name="qwen3_5",
        models="Qwen3.5 and later",
        sources=(_HUB + "Qwen/Qwen3.5-35B-A3B",),
        grammar=_FUNCTION_TAGS,
        tags=ThinkTags(between="\n\n"),
        signs=_FUNCTION_THINK_SIGNS,
        model_types=("qwen3_5", "qwen3_5_moe"),
    ),
    ModelFamily(
        name="nemotron3",
        models="Nemotron 3",
        sources=(_HUB + "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", _VLLM + "vllm/parser/nemotron_v3.py"),
        grammar=_FUNCTION_TAGS,
        tags=ThinkTags(between="\n"),
        signs=_FUNCTION_THINK_SIGNS,
        older_types=("nemotron_h", "NemotronHForCausalLM"),
    ),
    ModelFamily(
        name="step3p5",
        models="Step 3.5 and 3.7",
        sources=(_TEMPLATES + "StepFun3.7-Flash.jinja",),
        grammar=replace(_FUNCTION_TAGS, separator=""),
        tags=ThinkTags(between="\n"),
        signs=_FUNCTION_THINK_SIGNS,
        model_types=("step3p5", "step3p7", "Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"),
    ),
    ModelFamily(
        name="mimo",
        models="MiMo V2",
        sources=(_SGLANG + "function_call/mimo_detector.py",),
        grammar=replace(_FUNCTION_TAGS, keyed=">", value_end="</parameter>\n"),
        tags=ThinkTags(),
        signs=_FUNCTION_THINK_SIGNS,
        model_types=("mimo_v2_flash", "MiMoV2FlashForCausalLM"),
    ),
    ModelFamily(
        name="qwen3_coder",
        models="Qwen3-Coder",
        sources=(_HUB + "Qwen/Qwen3-Coder-30B-A3B-Instruct",),
        grammar=_FUNCTION_TAGS,
        signs=(("<tool_call>", "<function="),),
    ),
    ModelFamily(  # Qwen3 and QwQ: the calls of Hermes, with reasoning, which a template's switch may turn off
        name="qwen3",
        models="Qwen3, QwQ, SmolLM3",
        sources=("https://github.com/QwenLM/Qwen3/blob/main/docs/source/inference/transformers.md",),
        grammar=_HERMES_CALLS,
        tags=ThinkTags(between="\n\n"),
        signs=(("<tool_call>", "<think>"),),
        shared_types=("qwen3", "qwen3_moe", "qwen3_next", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM"),
    ),
    ModelFamily(
        name="hermes",
        models="Hermes 2 and 3, Qwen2.5",
        sources=(
            "https://github.com/NousResearch/Hermes-Function-Calling",
            "https://github.com/QwenLM/Qwen2.5/blob/main/docs/source/framework/function_call.md",
        ),
        grammar=_HERMES_CALLS,
        shared_types=("qwen2", "qwen2_moe", "Qwen2ForCausalLM", "Qwen2MoeForCausalLM"),
    ),
    ModelFamily(
        name="pythonic",
        models="Llama 4; Llama 3.2, ToolACE and Gemma 3 with such a template",
        sources=(
            "https://github.com/meta-llama/llama-models/blob/main/models/llama4/prompt_format.md",
            "https://github.com/meta-llama/llama-models/blob/main/models/llama3_2/text_prompt_format.md",
            _VLLM + "examples/tool_chat_template_toolace.jinja",
            "https://ai.google.dev/gemma/docs/capabilities/function-calling",
        ),
        grammar=BareCalls(opens=("<|python_start|>",), close="<|python_end|>", extra=("<|eom|>",)),
        stop=("<|eom|>",),
        signs=(("<|python_start|>",), ("[func_name1(",)),
        model_types=("llama4", "Llama4ForConditionalGeneration", "Llama4ForCausalLM"),
    ),
    ModelFamily(
        name="lfm2",
        models="LFM2, LFM2.5",
        sources=(_HUB + "LiquidAI/LFM2-1.2B", _TEMPLATES + "LFM2.5-8B-A1B.jinja"),
        grammar=BareCalls(opens=("<|tool_call_start|>",), close="<|tool_call_end|>", marked=True),
        tags=ThinkTags(),
        model_types=("lfm2", "lfm2_moe", "Lfm2ForCausalLM", "Lfm2MoeForCausalLM"),
    ),
    ModelFamily(
        name="olmo3",
        models="Olmo 3",
        sources=(
            _HUB + "allenai/Olmo-3-7B-Instruct-SFT/blob/main/chat_template.jinja",
            _HUB + "allenai/Olmo-3-7B-Think",
            _VLLM + "examples/tool_chat_template_olmo3.jinja",
        ),
        grammar=BareCalls(opens=("<function_calls>",), close="</function_calls>", marked=True, written="lines"),
        tags=ThinkTags(),
        signs=(("<functions>", "<function_calls>"),),
        model_types=("olmo3", "Olmo3ForCausalLM"),
    ),
    ModelFamily(
        name="gemma4",
        models="Gemma 4",
        sources=(
            "https://ai.google.dev/gemma/docs/core/prompt-formatting-gemma4",
            _TEMPLATES + "google-gemma-4-31B-it-interleaved.jinja",
        ),
        grammar=GemmaCalls(opens=("<|tool_call>",), close="<tool_call|>", extra=("<|tool_response>",), quote='<|"|>'),
        tags=ThinkTags("<|channel>", "<channel|>", label="thought\n", anywhere=True),
        stop=("<|tool_response>",),
        signs=(("<|tool_call>call:",),),
        model_types=("gemma4", "gemma4_text", "Gemma4ForConditionalGeneration", "Gemma4ForCausalLM"),
    ),
    ModelFamily(
        name="functiongemma",
        models="FunctionGemma",
        sources=("https://ai.google.dev/gemma/docs/functiongemma/formatting-and-best-practices",),
        grammar=GemmaCalls(
            opens=("<start_function_call>",),
            close="<end_function_call>",
            extra=("<start_function_response>",),
            quote="<escape>",
            typed=True,
        ),
        stop=("<start_function_response>",),
    ),
    ModelFamily(
        name="kimi_vl",
        models="Kimi-VL Thinking",
        sources=(_HUB + "moonshotai/Kimi-VL-A3B-Thinking", _SGLANG + "parser/reasoning_parser.py"),
        tags=ThinkTags("◁think▷", "◁/think▷"),
        signs=(("◁think▷",), ("◁/think▷",)),
        model_types=("kimi_vl", "KimiVLForConditionalGeneration"),
    ),
    ModelFamily(
        name="cohere",
        models="Command R7B, Command A, Command A Reasoning, Command A+",
        sources=(
            "https://docs.cohere.com/docs/command-a-hf",
            _HUB + "CohereLabs/c4ai-command-r7b-12-2024",
            _HUB + "CohereLabs/command-a-reasoning-08-2025",
        ),
        grammar=JsonCalls(
            opens=("<|START_ACTION|>",),
            close="<|END_ACTION|>",
            extra=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
            keys=Keys("tool_name", ("parameters", "arguments")),
            around=("[\n    ", "\n]"),
            separator=",\n    ",
            whole=True,
        ),
        tags=ThinkTags(
            "<|START_THINKING|>",
            "<|END_THINKING|>",
            instead=("<|START_RESPONSE|>", "<|START_TEXT|>"),
        ),
        signs=(("<|START_ACTION|>", "<|END_ACTION|>"),),
        model_types=("cohere2", "cohere2_vision", "Cohere2ForCausalLM", "Cohere2VisionForConditionalGeneration"),
    ),
    ModelFamily(
        name="gigachat3",
        models="GigaChat 3, 3.1",
        sources=(_HUB + "ai-sage/GigaChat3-10B-A1.8B", _TEMPLATES + "GigaChat3-10B-A1.8B.jinja"),
        grammar=MessageCalls(opens=("<|function_call|>",), header="<|message_sep|>\n\nfunction call<|role_sep|>\n"),
        visible=("<|message_sep|>\n\n", "<|role_sep|>\n"),
        signs=(("<|role_sep|>", "<|message_sep|>"),),
    ),
    ModelFamily(
        name="functionary_v31",
        models="Functionary 3.1",
        sources=(_HUB + "meetkai/functionary-small-v3.1", _TEMPLATES + "meetkai-functionary-medium-v3.1.jinja"),
        grammar=NamedCalls(opens=("<function=",), separator=">", close="</function>"),
        stop=("<|eom_id|>",),
        signs=(("<function=", "</function>", "<|python_tag|>"),),
    ),
    ModelFamily(
        name="llama3_json",
        models="Llama 3.1, 3.2, 3.3",
        sources=(
            "https://github.com/meta-llama/llama-models/blob/main/models/llama3_3/prompt_format.md",
            _HUB + "meta-llama/Llama-3.1-8B-Instruct",
        ),
        grammar=BareCalls(opens=("<|python_tag|>",), close="<|eom_id|>", written="json"),
        stop=("<|eom_id|>",),
        signs=(("<|python_tag|>",), ("<|start_header_id|>", '"parameters": ')),
        shared_types=("llama", "mllama", "LlamaForCausalLM", "MllamaForConditionalGeneration"),
    ),
)
"""The families that claim models. Of those that do it equally well the first gets a model: particular signs first."""

FAMILIES: Mapping[str, Family] = {family.name: family for family in (*CLAIMING, THINK, PLAIN)}
"""The families of this package, by name."""
