"""``TRITON_ENGINE=reference``: Llama in NumPy on the CPU, with TensorRT-LLM's quirks. Not for production.

Only `reference_adapter` knows Triton.
"""
