"""What of the TensorRT-LLM backend's README is here: rows of facts, and the page made of them."""
