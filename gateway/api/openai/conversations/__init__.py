"""The endpoints ``/v1/conversations`` and ``/v1/conversations/{id}/items``."""
