"""The coverage of the TensorRT-LLM backend's READMEs: rows of facts, and the page made of them."""
