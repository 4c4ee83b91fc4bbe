"""The endpoint ``/pooling``."""
