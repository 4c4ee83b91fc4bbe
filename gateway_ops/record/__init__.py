"""The work of ``gateway record`` and ``gateway replay``: recordings of requests to Triton and its responses."""
