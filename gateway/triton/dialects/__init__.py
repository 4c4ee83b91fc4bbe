"""Dialects: a file for each kind of Triton model that is called."""
