"""The work of ``gateway top``: two scrapes of a gateway's metrics, and the activity between them."""

SLOW_S = 2.5  # to the first token; a bound of the histogram's buckets
