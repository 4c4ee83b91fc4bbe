"""Triton model repositories: rendered from deployments, read from a folder, compared.

Imports no web framework.
"""
