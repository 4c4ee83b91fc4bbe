"""``TRITON_ENGINE=llmapi``: TensorRT-LLM's LLM API. Only `llmapi_adapter` knows Triton."""
