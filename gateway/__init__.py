"""OpenAI's API in front of Triton Inference Server and TensorRT-LLM."""

__version__ = "0.2.0"
DISTRIBUTION = "triton-openai-gateway"
