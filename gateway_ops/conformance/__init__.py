"""The work of ``gateway check URL --conformance``: checks of the API's promises by a server's own responses."""
