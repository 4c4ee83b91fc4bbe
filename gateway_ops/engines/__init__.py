"""Plans TensorRT-LLM engines for a deployment, builds each step by step, and verifies the result."""
