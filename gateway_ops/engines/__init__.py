"""Engines of TensorRT-LLM: what a deployment needs is planned, built step by step, and held against what is there."""
