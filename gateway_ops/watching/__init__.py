"""What a running gateway does, for ``gateway top``: two scrapes of its metrics, and what happened between them."""
