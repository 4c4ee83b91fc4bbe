"""Tensors of requests and responses, common to all dialects."""
