"""Single mistakes in the repository of ``examples/deployments/llama3-8b-awq.yaml``: the edit, and what must be said."""

from __future__ import annotations

from tests.gateway_ops.check.planting import BACK, BLS, BLS_FIRST, ENGINE, ENSEMBLE, FIRST, TEXT, added, parameter

# file, pattern, replacement, severity, words of the finding, words of the fix
PLANTED = {
    "unfilled mandatory value": (
        (ENGINE, *parameter("gpt_model_path", "${engine_dir}")),
        ("error", "${engine_dir} is an unfilled template variable", "fill_template.py engine_dir:VALUE"),
    ),
    "unfilled number": (
        (ENGINE, r"max_batch_size: 16", "max_batch_size: ${triton_max_batch_size}"),
        ("error", "so the file does not parse", "fill_template.py triton_max_batch_size:VALUE"),
    ),
    "unfilled optional value": (
        (ENGINE, *parameter("batch_scheduler_policy", "${batch_scheduler_policy}")),
        ("info", "Optional template variables are unfilled", "remove the other parameters"),
    ),
    "environment variable in the C++ backend": (
        (ENGINE, *parameter("gpt_model_path", "${MODEL_DIR}")),
        ("error", "the C++ backend does not read environment variables", "Write the value"),
    ),
    "not a configuration": (
        (TEXT, r"max_batch_size: 16", "max_batch_size 16"),
        ("error", "It is not a model configuration", "correct the line"),
    ),
    "name of another folder": (
        (TEXT, r'name: "preprocessing"', 'name: "tokenizer"'),
        ("error", "The name is 'tokenizer', but the folder is 'preprocessing'", "Name both 'preprocessing'"),
    ),
    "step of a missing model": (
        (ENSEMBLE, r'model_name: "postprocessing"', 'model_name: "postprocesing"'),
        ("error", "A step runs the model 'postprocesing', which is not in", "Did you mean 'postprocessing'?"),
    ),
    "step sends an input that the model does not have": (
        (ENSEMBLE, r'input_map \{ key: "runtime_top_k"', 'input_map { key: "top_k"'),
        ("error", "A step sends 'top_k' to tensorrt_llm, which has no such input", "Did you mean"),
    ),
    "step takes an output that the model does not have": (
        (ENSEMBLE, r'output_map \{ key: "OUTPUT"', 'output_map { key: "TEXT"'),
        ("error", "A step takes the output 'TEXT' of postprocessing", "Remove the mapping"),
    ),
    "tensor that nobody makes": (
        (ENSEMBLE, r'(key: "TOKENS_BATCH" value: )"output_ids"', r'\1"answer"'),
        ("error", "postprocessing needs 'answer' for its input 'TOKENS_BATCH', and no step produces", "Map an output"),
    ),
    "required input that is not sent": (
        (ENSEMBLE, r'input_map \{ key: "SEQUENCE_LENGTH"[^\n]*\n', ""),
        ("error", "postprocessing requires 'SEQUENCE_LENGTH'", "Add input_map"),
    ),
    "type differs between steps": (
        (BACK, r'(name: "TOKENS_BATCH" data_type: )TYPE_INT32', r"\1TYPE_INT64"),
        ("error", "'output_ids' is INT32 from tensorrt_llm, but INT64 for postprocessing", "the same data_type"),
    ),
    "logits type differs from the engine's": (
        (ENSEMBLE, r'(name: "context_logits" data_type: )TYPE_FP32', r"\1TYPE_FP16"),
        ("error", "'context_logits' is FP32 from tensorrt_llm, but FP16 for the answer", "the same data_type"),
    ),
    "dims differ between steps": (
        (BACK, r'(name: "TOKENS_BATCH" data_type: TYPE_INT32) dims: -1 dims: -1', r"\1 dims: -1"),
        ("error", "'output_ids' has dims [-1, -1] from tensorrt_llm, but [-1]", "the same dims"),
    ),
    "batch size of a step too small": (
        (BACK, r"max_batch_size: 16", "max_batch_size: 8"),
        ("error", "max_batch_size is 16, but 8 in postprocessing", "at least the max_batch_size of the ensemble"),
    ),
    "no way to cancel": (
        (ENGINE, r'input \{ name: "stop"[^\n]*\n', ""),
        ("warning", "It has no input stop: when a client of the ensemble disconnects", 'Declare input { name: "stop"'),
    ),
    "not decoupled": (
        (ENGINE, r"model_transaction_policy \{ decoupled: true \}", "model_transaction_policy { }"),
        (
            "warning",
            "a streamed answer is one event at the end: 'tensorrt_llm' is not decoupled",
            "decoupled: true",
        ),
    ),
    "BLS model that cannot call an engine that streams": (
        (BLS, r"model_transaction_policy \{ decoupled: true \}", "model_transaction_policy { }"),
        ("error", "is not decoupled and cannot call the decoupled model 'tensorrt_llm'", "set model_transac"),
    ),
    "normalised log-probs": (
        (ENGINE, *parameter("normalize_log_probs", "true")),
        ("warning", "log-probs are rejected with temperature 0, top_k, top_p or min_p", "normalize_log_probs to false"),
    ),
    "prompt echo by leaving it out": (
        (ENGINE, r'parameters \{ key: "exclude_input_in_output"[^\n]*\n', ""),
        ("warning", "begin with the prompt", "exclude_input_in_output to true"),
    ),
    "prompt echo on purpose": (
        (ENGINE, *parameter("exclude_input_in_output", "false")),
        ("info", "begin with the prompt", "exclude_input_in_output to true"),
    ),
    "mode that answers with nothing": (
        (ENGINE, FIRST, added("decoding_mode", "top_k")),
        ("error", "decoding_mode is top_k: requests with the other sampling parameter get empty", "Remove it"),
    ),
    "beams beside streaming": (
        (ENGINE, *parameter("max_beam_width", "4")),
        ("warning", "every request is decoded by beams", "with decoding_mode beam_search"),
    ),
    "several detokenizers": (
        (BACK, r"instance_group \{ count: 1", "instance_group { count: 4"),
        ("error", "4 instances can deliver streamed pieces out of order", "count: 1"),
    ),
    "control tokens as text": (
        (BACK, *parameter("skip_special_tokens", "false")),
        ("warning", "Control tokens such as <|eot_id|> appear in the text", "skip_special_tokens to true"),
    ),
    "two tokenizers": (
        (BACK, *parameter("tokenizer_dir", "/data/other")),
        ("error", "tokenizer_dir is /data/other, but /data/Meta-Llama-3-8B-Instruct in", "the same folder in both"),
    ),
    "no batching strategy": (
        (ENGINE, r'parameters \{ key: "gpt_model_type"[^\n]*\n', ""),
        ("error", "gpt_model_type is missing", "inflight_fused_batching"),
    ),
    "unknown batching strategy": (
        (ENGINE, *parameter("gpt_model_type", "inflight")),
        ("error", "gpt_model_type is 'inflight', which the backend does not support", "inflight_fused_batching"),
    ),
    "share of memory above 1": (
        (ENGINE, *parameter("kv_cache_free_gpu_mem_fraction", "90")),
        ("error", "kv_cache_free_gpu_mem_fraction is '90'", "at most 1"),
    ),
    "relative engine folder": (
        (ENGINE, *parameter("gpt_model_path", "llama3-engine")),
        ("error", "relative to Triton's working directory", "an absolute path"),
    ),
    "guided decoding without tokenizer info": (
        (ENGINE, r'(key: "guided_decoding_backend" value {)[^}]*}', r'\1 string_value: "xgrammar" }'),
        ("error", "without xgrammar_tokenizer_info_path", "generate_xgrammar_tokenizer_info.py"),
    ),
    "caller of a missing engine": (
        (BLS, *parameter("tensorrt_llm_model_name", "tensorrt_lm")),
        ("error", "tensorrt_llm_model_name is 'tensorrt_lm', which is not in this repository", "Name a model"),
    ),
    "one request at a time": (
        (BLS, r'parameters \{ key: "max_concurrent_requests"[^\n]*\n', ""),
        ("warning", "1 instances serve 1 requests at a time", "count: 16"),
    ),
    "no number": (
        (ENGINE, *parameter("max_tokens_in_paged_kv_cache", "lots")),
        ("error", "max_tokens_in_paged_kv_cache is 'lots'", "Write a whole number"),
    ),
    "no truth value": (
        (ENGINE, *parameter("enable_kv_cache_reuse", "maybe")),
        ("error", "enable_kv_cache_reuse is 'maybe'", "Write true or false"),
    ),
    "no GPU": (
        (ENGINE, FIRST, added("gpu_device_ids", "zero")),
        ("error", "gpu_device_ids is 'zero'", "as 0,1"),
    ),
    "no tree": (
        (ENGINE, FIRST, added("medusa_choices", "{0")),
        ("error", "medusa_choices is '{0'", "{0}, {0, 0}, {1}"),
    ),
    "empty engine folder": (
        (ENGINE, *parameter("gpt_model_path", "")),
        ("error", "gpt_model_path is empty", "the folder of the engine"),
    ),
    "empty tokenizer folder": (
        (TEXT, *parameter("tokenizer_dir", "")),
        ("error", "tokenizer_dir is empty", "the model's folder"),
    ),
    "unknown platform": (
        (ENSEMBLE, r'platform: "ensemble"', 'platform: "ensembel"'),
        ("error", "The platform is 'ensembel'", 'platform: "ensemble"'),
    ),
    "two instances of an engine on the same GPUs": (
        (ENGINE, r"instance_group \{ count: 1", "instance_group { count: 2"),
        ("error", "2 instances of the engine are loaded onto the same GPUs", "gpu_device_ids with a group for each"),
    ),
    "an engine for each GPU": (
        (ENGINE, r"kind: KIND_CPU", "kind: KIND_GPU"),
        ("error", "every instance loads the engine", "Write KIND_CPU"),
    ),
    "no backend": (
        (TEXT, r'backend: "python"', ""),
        ("error", "It has no backend and no platform", '"python" for the other models'),
    ),
    "negative batch size": (
        (BLS, r"max_batch_size: 16", "max_batch_size: -1"),
        ("error", "max_batch_size is -1; Triton rejects the model", "Write 1 or more"),
    ),
    "unknown backend": (
        (ENGINE, r'backend: "tensorrtllm"', 'backend: "tensorrt_llm"'),
        ("error", "These models cannot run on the backend 'tensorrt_llm'", "Did you mean 'tensorrtllm'?"),
    ),
    "misspelt backend": (
        (BACK, r'backend: "python"', 'backend: "pyton"'),
        ("error", "These models cannot run on the backend 'pyton'", "Did you mean 'python'?"),
    ),
    "backend of other models": (
        (BACK, r'backend: "python"', 'backend: "onnxruntime"'),
        ("warning", "These models cannot run on the backend 'onnxruntime'", '"python" for the other models'),
    ),
    "version that is not there": (
        (TEXT, r"^", "version_policy { specific { versions: 7 } }\n"),
        ("error", "version_policy asks for version 7, but the repository has only 1/", "name an existing version"),
    ),
    "one version of two that is not there": (
        (TEXT, r"^", "version_policy { specific { versions: [1, 7] } }\n"),
        ("warning", "version_policy asks for version 7, but the repository has only 1/", "name an existing version"),
    ),
    # The contract's tables (1.1 to 1.6), where no ensemble's map says anything.
    "type of an engine's input": (
        (ENGINE, r'(name: "retention_decode_priority" data_type: )TYPE_INT32', r"\1TYPE_INT64"),
        ("error", "The input 'retention_decode_priority' is INT64; tensorrt_llm declares it as INT32", "TYPE_INT32"),
    ),
    "dims of an engine's input": (
        (ENGINE, r'(name: "lookahead_window_size" data_type: TYPE_INT32) dims: 1', r"\1 dims: 1 dims: 1"),
        ("error", "The input 'lookahead_window_size' has dims [1, 1]; tensorrt_llm declares [1]", "dims: [1]"),
    ),
    "renamed input of the BLS model": (
        (BLS, r'name: "text_input"', 'name: "text_inputs"'),
        ("error", "The input 'text_inputs' is not one of tensorrt_llm_bls's", "Did you mean 'text_input'?"),
    ),
    "misspelt optional input of the BLS model": (
        (BLS, r'name: "top_k"', 'name: "Top_K"'),
        ("warning", "The input 'Top_K' is not one of tensorrt_llm_bls's", "Did you mean 'top_k'?"),
    ),
    "type of an input of the BLS model": (
        (BLS, r'(name: "max_tokens" data_type: )TYPE_INT32', r"\1TYPE_INT64"),
        ("error", "The input 'max_tokens' is INT64; tensorrt_llm_bls declares it as INT32", "TYPE_INT32"),
    ),
    "answer that the BLS model does not give": (
        (BLS, r'output \{ name: "text_output"[^\n]*\n', ""),
        (
            "error",
            "It has no output 'text_output', which tensorrt_llm_bls needs for every request",
            "Declare output {",
        ),
    ),
    "BLS model that cannot be told to stream": (
        (BLS, r'input \{ name: "stream"[^\n]*\n', ""),
        ("warning", "It has no input 'stream': answers cannot be streamed", 'Declare input { name: "stream"'),
    ),
    "input that the gateway does not send": (
        (BLS, r"^", 'input { name: "tenant" data_type: TYPE_STRING dims: 1 }\n'),
        ("error", "'tensorrt_llm_bls' requires inputs that the gateway does not send: tenant", "optional: true"),
    ),
    "logits type differs from that of the engine it calls": (
        (BLS, r'(name: "generation_logits" data_type: )TYPE_FP32', r"\1TYPE_FP16"),
        ("error", "The output 'generation_logits' is FP16, but FP32 in tensorrt_llm, which it calls", "same data_type"),
    ),
    "step that the BLS model calls and that is not there": (
        (BLS, BLS_FIRST, added("preprocessing_model_name", "preprocesing")),
        ("error", "preprocessing_model_name is 'preprocesing', which is not in", "did you mean 'preprocessing'?"),
    ),
    "step that does something else": (
        (BLS, BLS_FIRST, added("preprocessing_model_name", "postprocessing")),
        ("error", "preprocessing_model_name is 'postprocessing', which is not a preprocessing", "Name 'preprocessing'"),
    ),
    "model that drafts for itself": (
        (BLS, BLS_FIRST, added("tensorrt_llm_draft_model_name", "tensorrt_llm")),
        ("warning", "tensorrt_llm_draft_model_name is 'tensorrt_llm', which is the target itself", "a smaller model"),
    ),
    # What Triton rejects to load; seen in tritonserver 2.51 (tests/integration/test_refusals.py).
    "batch beyond the greatest": (
        (BACK, "preserve_ordering: true", "preserve_ordering: true preferred_batch_size: 32"),
        ("error", "preferred_batch_size is 32, but max_batch_size 16; Triton rejects", "Write 1 to 16"),
    ),
    "GPUs of a group without any": (
        (BACK, "kind: KIND_CPU", "kind: KIND_CPU gpus: 0"),
        ("error", "An instance group has KIND_CPU and gpus: [0]; Triton rejects", "Remove gpus"),
    ),
    "version of a step that is not there": (
        (ENSEMBLE, r'(model_name: "postprocessing"\s*model_version: )-1', r"\g<1>3"),
        ("error", "A step runs version 3 of postprocessing, of which Triton loads only 1", "model_version: -1"),
    ),
    "version of a step left out": (
        (ENSEMBLE, r'(model_name: "postprocessing"\s*)model_version: -1', r"\1"),
        ("error", "A step runs version 0 of postprocessing, of which Triton loads only 1", "model_version: -1"),
    ),
    "input that goes nowhere": (
        (ENSEMBLE, r' *input_map \{ key: "streaming"[^\n]*\n', ""),
        ("error", "The input 'stream' goes to no step; Triton rejects", "Map it to an input of a step"),
    ),
    "output that nothing takes": (
        (ENSEMBLE, r' *input_map \{ key: "pad_id"[^\n]*\n', ""),
        ("error", "A step's output is mapped to '_PAD_ID', which no step takes as input; Triton rejects",
            "Remove the mapping"),
    ),
    "tensor that is made twice": (
        (ENSEMBLE, r'(key: "OUT_PAD_ID" value: )"[^"]*"', r'\1"_END_ID"'),
        ("error", "2 outputs of steps are mapped to '_END_ID'; Triton rejects", "a different name"),
    ),
    "ensemble that runs itself": (
        (ENSEMBLE, r'model_name: "postprocessing"', 'model_name: "ensemble"'),
        ("error", "A step runs the ensemble itself", "another model"),
    ),
    "instances of an ensemble": (
        (ENSEMBLE, 'platform: "ensemble"', 'platform: "ensemble" instance_group { count: 1 }'),
        ("error", "An ensemble has no instance_group", "Remove instance_group"),
    ),
    "ensemble on a backend": (
        (ENSEMBLE, 'platform: "ensemble"', 'platform: "ensemble" backend: "python"'),
        ("error", "It has both an ensemble's steps and the backend 'python'", "no backend"),
    ),
    "cache of streamed answers": (
        (ENGINE, "decoupled: true }", "decoupled: true }\nresponse_cache { enable: true }"),
        ("error", "A decoupled model has no response cache", "Remove response_cache"),
    ),
    "cache of an ensemble that streams": (
        (ENSEMBLE, 'platform: "ensemble"', 'platform: "ensemble" response_cache { enable: true }'),
        ("error", "Its step tensorrt_llm is decoupled, so it has no response cache", "Remove response_cache"),
    ),
    "queue that delays what must stay in order": (
        (
            BACK,
            "preserve_ordering: true",
            "preserve_ordering: true default_queue_policy { default_timeout_microseconds: 9 timeout_action: DELAY }",
        ),
        ("error", "With preserve_ordering a queue's timeout_action cannot be DELAY", "timeout_action: REJECT"),
    ),
    "no type": (
        (TEXT, r'(name: "QUERY") data_type: TYPE_STRING', r"\1"),
        ("error", "The input 'QUERY' has no data_type; Triton rejects", "Write one"),
    ),
    "no dims": (
        (TEXT, r'(name: "QUERY" data_type: TYPE_STRING) dims: 1', r"\1"),
        ("error", "The input 'QUERY' has no dims; Triton rejects", "Write dims"),
    ),
    "size of nothing": (
        (TEXT, r'(name: "QUERY" data_type: TYPE_STRING dims:) 1', r"\1 0"),
        ("error", "The input 'QUERY' has dims [0]; Triton rejects", "Write sizes from 1"),
    ),
    "no name": (
        (TEXT, r'name: "DECODER_QUERY"', ""),
        ("error", "An input has no name; Triton rejects", "Name it"),
    ),
    # What nothing refuses, and nothing does as it was meant.
    "misspelt parameter": (
        (ENGINE, '"kv_cache_free_gpu_mem_fraction"', '"kv_cache_free_gpu_memory_fraction"'),
        ("warning", "tensorrt_llm reads no parameter 'kv_cache_free_gpu_memory_fraction'", "'kv_cache_free_gpu_mem_"),
    ),
    "parameter in other letters": (
        (TEXT, '"add_special_tokens"', '"Add_Special_Tokens"'),
        ("warning", "preprocessing reads no parameter 'Add_Special_Tokens'", "Did you mean 'add_special_tokens'?"),
    ),
    "no number of requests": (
        (BLS, *parameter("max_concurrent_requests", "abc")),
        ("error", "max_concurrent_requests is 'abc'", "Write a whole number from 1"),
    ),
    "no number of texts": (
        (BACK, *parameter("state_capacity", "many")),
        ("error", "state_capacity is 'many'", "Write a whole number from 1"),
    ),
    "no number of seconds": (
        (BACK, *parameter("state_expiry_seconds", "10m")),
        ("error", "state_expiry_seconds is '10m'", "Write a number of seconds"),
    ),
    "truth value that the C++ backend does not read": (
        (ENGINE, *parameter("enable_kv_cache_reuse", "yes")),
        ("error", "enable_kv_cache_reuse is 'yes'", "Write true or false"),
    ),
    "share of the cache above 1": (
        (ENGINE, FIRST, added("cross_kv_cache_fraction", "5")),
        ("error", "cross_kv_cache_fraction is '5'; it is a share of the KV cache", "at most 1"),
    ),
    "policy that the C++ backend passes over": (
        (ENGINE, *parameter("batch_scheduler_policy", "static_batch")),
        ("error", "batch_scheduler_policy is 'static_batch'", "guaranteed_no_evict"),
    ),
    "lookahead without its sizes": (
        (ENGINE, FIRST, added("decoding_mode", "lookahead")),
        ("error", "decoding_mode is lookahead, and lookahead_window_size is not set", "Set lookahead_window_size"),
    ),
    "cache that is smaller than a sequence": (
        (ENGINE, *parameter("max_tokens_in_paged_kv_cache", "1000")),
        ("warning", "max_tokens_in_paged_kv_cache is 1000, but one sequence takes up to 2560", "Write 2560 or more"),
    ),
    "parameter that the C++ backend looks for": (
        (ENGINE, r'parameters \{ key: "xgrammar_tokenizer_info_path"[^\n]*\n', ""),
        ("error", "The parameter xgrammar_tokenizer_info_path is missing: the C++ backend does not", "Add parameters"),
    ),
    "relative tokenizer folder": (
        (TEXT, *parameter("tokenizer_dir", "models/llama")),
        ("error", "tokenizer_dir 'models/llama' is relative to Triton's working directory", "an absolute path"),
    ),
    "detokenizer for each GPU": (
        (BACK, "KIND_CPU", "KIND_GPU"),
        ("warning", "With KIND_GPU Triton creates instances for each GPU, but this model does not use", "KIND_CPU"),
    ),
    "engine wherever Triton puts it": (
        (ENGINE, r"instance_group [^\n]*\n", ""),
        ("error", "Without KIND_CPU Triton creates instances for each GPU", "Write KIND_CPU"),
    ),
    "pieces out of order": (
        (BACK, r"dynamic_batching \{[^\n]*", "dynamic_batching { }"),
        ("warning", "With dynamic_batching Triton 25.07 and newer can deliver streamed pieces", "preserve_ordering"),
    ),
}  # fmt: skip
