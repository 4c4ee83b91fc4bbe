"""The work of ``gateway top``: two scrapes of a gateway's metrics, and the activity between them."""
