"""Generation by TensorRT-LLM's LLM API, in the terms of the wire contract. No Triton import."""
