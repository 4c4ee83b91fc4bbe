"""Dialects: one module for each kind of Triton model."""
