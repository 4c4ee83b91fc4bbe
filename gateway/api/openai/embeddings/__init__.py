"""The endpoint ``/v1/embeddings``."""
