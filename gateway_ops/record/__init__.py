"""Recordings of what a gateway asks a Triton and what it answers, for ``gateway record`` and ``gateway replay``."""
