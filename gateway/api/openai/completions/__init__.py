"""The endpoint ``POST /v1/completions``."""
