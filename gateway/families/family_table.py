"""The table of this package's families: an entry each, over the grammars of the modules beside this one."""

# ruff: noqa: RUF001 - DeepSeek spells its tokens with these characters

from __future__ import annotations

from collections.abc import Mapping

from gateway.families import deepseek, glm, granite, harmony, hermes, kimi, llama, mistral, phi4, qwen3_coder
from gateway.families.family import Family
from gateway.families.markers import ThinkTags
from gateway.families.model_family import ModelFamily

_HERMES_THINK = ThinkTags(between="\n\n", instead=(hermes.OPEN,))
_DEEPSEEK_THINK = ThinkTags(instead=(deepseek.CALLS,))
_MISTRAL_TYPES = frozenset({"mistral", "mistral3", "mixtral", "MistralForCausalLM", "Mistral3ForConditionalGeneration"})
_GRANITE_TYPES = frozenset({"granite", "granitemoe", "GraniteForCausalLM", "GraniteMoeForCausalLM"})

PLAIN = ModelFamily(name="plain")
"""Chat models that were not taught to call tools, and all that no other family claims."""

THINK = ModelFamily(name="think", tags=ThinkTags(), signs=(("<think>",), ("</think>",)))
"""Models that reason between ``<think>`` tags and have no call format that is known here."""

CLAIMING: tuple[ModelFamily, ...] = (
    ModelFamily(  # Small 3.2, Devstral, Magistral, Ministral 3
        name="mistral_v11",
        grammar=mistral.MistralParser,
        call_format=mistral.MISTRAL_CALLS,
        tags=mistral.TAGS,
        signs=((mistral.CALLS, mistral.ARGUMENTS),),
        shared_types=_MISTRAL_TYPES,
    ),
    ModelFamily(  # Mistral 7B v0.3, Nemo, Large, Small up to 3.1
        name="mistral",
        grammar=mistral.MistralParser,
        tags=mistral.TAGS,
        signs=((mistral.CALLS,), ("[AVAILABLE_TOOLS]",)),
        shared_types=_MISTRAL_TYPES,
    ),
    ModelFamily(  # Kimi K2, which needs its own ids back in the history
        name="kimi",
        grammar=kimi.KimiGrammar(),
        call_format=kimi.KIMI_CALLS,
        tags=ThinkTags(instead=(kimi.SECTION,)),
        signs=((kimi.SECTION,), ("<|im_system|>tool_declare<|im_middle|>",)),
        model_types=frozenset({"kimi_k2", "kimi_k25"}),
    ),
    ModelFamily(
        name="deepseek_v31",
        grammar=deepseek.DeepseekGrammar(),
        call_format=deepseek.UNFENCED_CALLS,
        tags=_DEEPSEEK_THINK,
        signs=((deepseek.CALLS, "<｜Assistant｜></think>"), (deepseek.CALLS, "thinking is defined")),
    ),
    ModelFamily(  # V3 and R1
        name="deepseek_v3",
        grammar=deepseek.DeepseekGrammar(),
        call_format=deepseek.FENCED_CALLS,
        tags=_DEEPSEEK_THINK,
        signs=((deepseek.CALLS,),),
        shared_types=frozenset({"deepseek_v3", "DeepseekV3ForCausalLM"}),
    ),
    harmony.HarmonyFamily(
        name="harmony",
        grammar=harmony.HarmonyParser,
        call_format=harmony.HARMONY_CALLS,
        stop=harmony.STOP,
        signs=((harmony.CHANNEL, harmony.MESSAGE),),
        model_types=frozenset({"gpt_oss", "GptOssForCausalLM"}),
    ),
    ModelFamily(  # Granite 4, which does not reason
        name="granite4",
        grammar=granite.GraniteParser,
        call_format=hermes.HERMES_CALLS,
        signs=(("<|start_of_role|>", granite.OPEN),),
        model_types=frozenset({"granitemoehybrid", "GraniteMoeHybridForCausalLM"}),
        older_types=_GRANITE_TYPES,
    ),
    granite.GraniteFamily(  # 3.0 to 3.3
        name="granite",
        grammar=granite.GraniteParser,
        tags=granite.TAGS,
        signs=(("<|start_of_role|>",),),
        model_types=_GRANITE_TYPES,
    ),
    ModelFamily(  # Phi-4-mini and Phi-4-multimodal
        name="phi4",
        grammar=phi4.Phi4Parser,
        tags=ThinkTags(instead=(phi4.CALL,)),
        signs=(("<|tool|>", "<|/tool|>"), (phi4.WORD,)),
        model_types=frozenset({"phi4", "phi4mm", "phi4_multimodal", "Phi4MMForCausalLM"}),
    ),
    ModelFamily(  # GLM 4.5, 4.6, 4.7 and 5
        name="glm",
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
        grammar=qwen3_coder.Qwen3CoderParser,
        call_format=qwen3_coder.QWEN3_CODER_CALLS,
        tags=_HERMES_THINK,
        signs=((qwen3_coder.OPEN, qwen3_coder.FUNCTION, "<think>"),),
        model_types=frozenset({"qwen3_5", "qwen3_5_moe"}),
    ),
    ModelFamily(
        name="qwen3_coder",
        grammar=qwen3_coder.Qwen3CoderParser,
        call_format=qwen3_coder.QWEN3_CODER_CALLS,
        signs=((qwen3_coder.OPEN, qwen3_coder.FUNCTION),),
    ),
    ModelFamily(  # Qwen3 and QwQ: the calls of Hermes, with reasoning, which a template's switch may turn off
        name="qwen3",
        grammar=hermes.HermesParser,
        call_format=hermes.HERMES_CALLS,
        tags=_HERMES_THINK,
        signs=((hermes.OPEN, "<think>"),),
        shared_types=frozenset({"qwen3", "qwen3_moe", "qwen3_next", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM"}),
    ),
    ModelFamily(  # models that were taught Hermes' format and do not reason
        name="hermes",
        grammar=hermes.HermesParser,
        call_format=hermes.HERMES_CALLS,
        signs=((hermes.OPEN,),),
        shared_types=frozenset({"qwen2", "qwen2_moe", "Qwen2ForCausalLM", "Qwen2MoeForCausalLM"}),
    ),
    ModelFamily(  # Llama 4, and Llama 3.2 with a pythonic template
        name="pythonic",
        grammar=llama.PythonicParser,
        stop=("<|eom|>",),
        signs=((llama.PythonicParser.before,), ("[func_name1(",)),
        model_types=frozenset({"llama4", "Llama4ForConditionalGeneration", "Llama4ForCausalLM"}),
    ),
    ModelFamily(  # LFM2 and LFM2.5, some of which reason
        name="lfm2",
        grammar=llama.Lfm2Parser,
        tags=ThinkTags(instead=(llama.Lfm2Parser.before,)),
        signs=((llama.Lfm2Parser.before,),),
        model_types=frozenset({"lfm2", "lfm2_moe", "Lfm2ForCausalLM", "Lfm2MoeForCausalLM"}),
    ),
    ModelFamily(  # Llama 3.1, 3.2 and 3.3 with JSON calls
        name="llama3_json",
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
