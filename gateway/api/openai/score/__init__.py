"""The endpoints ``/v1/score`` and ``/score``."""
