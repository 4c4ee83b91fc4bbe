"""Recordings of what a gateway asks a Triton and what it returns, for ``gateway record`` and ``gateway replay``."""
