"""The endpoints ``/v1/classify`` and ``/classify``."""
