"""Served models and the orchestration that every endpoint shares. Knows engines only as ``generation``'s protocol."""
