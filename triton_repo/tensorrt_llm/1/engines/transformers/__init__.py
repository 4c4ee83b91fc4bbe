"""``TRITON_ENGINE=transformers``: transformers' continuous batching, for GPUs without TensorRT-LLM."""
