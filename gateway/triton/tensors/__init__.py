"""Tensors of requests and of responses: what the dialects have in common."""
