"""Several gateway processes on one port: a supervisor that does not serve, and workers that do.

Every worker is a whole gateway with a listening socket of its own (``SO_REUSEPORT``: the kernel spreads connections).
The supervisor holds all those sockets, so that connections wait while a worker is replaced. It sends each worker the
readiness of the others, passes on signals, and cleans the shared folder of the metrics.
"""
