"""Served models, and the orchestration that all endpoints share.

Engines are known only by the protocol of ``generation``.
"""
