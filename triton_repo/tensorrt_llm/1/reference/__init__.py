"""The reference engine: Llama models in NumPy, behind TensorRT-LLM's tensor contract. Knows nothing of Triton."""
