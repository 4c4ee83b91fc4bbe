"""The work of ``gateway compare``: sends the same requests to two targets, and compares the answers."""
