"""The endpoint ``POST /v1/chat/completions``."""
