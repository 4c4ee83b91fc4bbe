"""The work of ``gateway compare``: the same requests to two targets, and what differs in their answers."""
