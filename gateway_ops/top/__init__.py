"""A running gateway, for ``gateway top``: two scrapes of its metrics, and what happened between them."""

SLOW_S = 2.5  # to the first token; a bound of the histogram's buckets
