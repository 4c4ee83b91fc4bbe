"""Names of request parameters of other servers, as their own protocols list them.

Read from ``entrypoints/openai/chat_completion/protocol.py`` and ``completion/protocol.py`` of vLLM (002032e),
``serve/openai_protocol.py`` of TensorRT-LLM (0076e93), ``srt/entrypoints/openai/protocol.py`` of SGLang (004c82e), and
names of constraints that are not in these files: vLLM's, llama.cpp's, Ollama's, of TensorRT-LLM's model for Triton, and
of NVIDIA's ``nvext``.
"""

from __future__ import annotations

_SHARED = """
    model frequency_penalty logit_bias logprobs max_tokens n presence_penalty response_format seed stop stream
    stream_options temperature top_p user top_k min_p repetition_penalty min_tokens ignore_eos skip_special_tokens
    stop_token_ids stream_options.include_usage stream_options.continuous_usage_stats
"""
_VLLM = """
    use_beam_search watermarking length_penalty include_stop_str_in_output spaces_between_special_tokens
    truncate_prompt_tokens truncation_side prompt_logprobs logprob_token_ids allowed_token_ids bad_words echo
    add_special_tokens structured_outputs priority request_id session_id return_tokens_as_token_ids return_token_ids
    routed_experts_prompt_start return_token_offsets return_mm_kwargs cache_salt kv_transfer_params ec_transfer_params
    vllm_xargs repetition_detection thinking_token_budget stream_interval
    structured_outputs.whitespace_pattern structured_outputs.disable_any_whitespace
    structured_outputs.disable_additional_properties structured_outputs.disable_fallback
    guided_json guided_regex guided_choice guided_grammar guided_decoding_backend guided_whitespace_pattern
    structural_tag logits_processors best_of
"""
_VLLM_CHAT = """
    messages top_logprobs max_completion_tokens tools tool_choice reasoning_effort include_reasoning
    parallel_tool_calls add_generation_prompt continue_final_message documents chat_template chat_template_kwargs
    media_io_kwargs mm_processor_kwargs return_prompt_text
"""
_TRTLLM = """
    best_of echo lora_request prompt_ignore_length use_beam_search top_p_min length_penalty early_stopping
    include_stop_str_in_output spaces_between_special_tokens truncate_prompt_tokens thinking_token_budget
    add_special_tokens disaggregated_params priority conversation_params
"""
_TRTLLM_CHAT = """
    messages prompt_token_ids prompt_token_ids_b64 top_logprobs max_completion_tokens tools tool_choice
    parallel_tool_calls reasoning_effort thinking add_generation_prompt documents chat_template chat_template_kwargs
    injected_chat_template_kwargs media_io_kwargs cache_salt agent_hierarchy mm_processor_kwargs
"""
_SGLANG = """
    return_hidden_states return_routed_experts routed_experts_start_len return_cached_tokens_details return_token_ids
    regex ebnf stop_regex no_stop_trim lora_path session_id session_params custom_params custom_logit_processor
    images_config bootstrap_host bootstrap_port bootstrap_room routed_dp_rank disagg_prefill_dp_rank data_parallel_rank
    rid extra_key cache_salt ngram_corpus_id priority
"""
_SGLANG_CHAT = """
    messages top_logprobs max_completion_tokens tools tool_choice parallel_tool_calls return_prompt_token_ids
    return_meta_info reasoning_effort reasoning task continue_final_message separate_reasoning stream_reasoning
    chat_template_kwargs max_dynamic_patch min_dynamic_patch use_audio_in_video input_ids
"""
_LLAMA_CPP = "grammar json_schema grammar_lazy grammar_triggers"
_OTHER_CONSTRAINTS = """
    nvext guided_decoding guided_decoding_guide guided_decoding_guide_type guided_json_object format
"""

_COMPLETIONS = "prompt suffix prompt_embeds return_context_logits detokenize custom_labels json_schema"
_BOTH = " ".join((_SHARED, _VLLM, _TRTLLM, _SGLANG, _LLAMA_CPP, _OTHER_CONSTRAINTS))

CHAT = frozenset(" ".join((_BOTH, _VLLM_CHAT, _TRTLLM_CHAT, _SGLANG_CHAT)).split())
COMPLETIONS = frozenset(f"{_BOTH} {_COMPLETIONS}".split())
CONSTRAINTS: tuple[tuple[str, object], ...] = (
    ("structural_tag", {"triggers": [], "structures": []}),
    ("structured_outputs", {"json": {"type": "object"}, "whitespace_pattern": " "}),
    ("structured_outputs", {"regex": "a", "disable_any_whitespace": True}),
    ("structured_outputs", {"regex": "a", "disable_additional_properties": True}),
    ("guided_whitespace_pattern", " "),
    ("guided_decoding_backend", "outlines"),
    ("grammar_lazy", True),
    ("grammar_triggers", [{"type": "word", "value": "x"}]),
    ("stop_regex", "a+"),
    ("custom_logit_processor", "x"),
    ("logits_processors", ["x"]),
    ("allowed_token_ids", [1]),
    ("repetition_detection", {"max_pattern_size": 3}),
    ("response_format", {"type": "json_object", "value": {"type": "object"}}),
    ("response_format", {"type": "text", "schema": {"type": "object"}}),
    ("response_format", {"type": "json_schema", "json_schema": {"name": "x"}, "schema": {"type": "object"}}),
    ("response_format", {"type": "json_object", "json_schema": {"name": "x", "schema": {"type": "object"}}}),
    ("response_format", {"type": "json_object", "regex": "a+"}),
    ("response_format", {"type": "json_object", "pattern": "a+"}),
    ("response_format", {"type": "json_object", "ebnf": 'root ::= "a"'}),
    ("response_format", {"type": "regex", "regex": "a+", "grammar": 'root ::= "a"'}),
    ("nvext", {"annotations": ["x"], "guided_json": {"type": "object"}}),
    ("nvext", {"guided_regex": "a+"}),
    ("nvext", {"guided_choice": ["a", "b"]}),
    ("nvext", {"guided_grammar": 'root ::= "a"'}),
    ("guided_decoding", {"json": {"type": "object"}}),
    ("guided_decoding_guide", '{"type": "object"}'),
    ("guided_decoding_guide_type", "json_schema"),
    ("guided_json_object", True),
    ("format", "json"),
    ("format", {"type": "object"}),
)
"""Fields that would hold an answer to something, each with a value that nothing here can serve."""
