"""A running gateway, for ``gateway top``: two scrapes of its metrics, and what happened between them."""
