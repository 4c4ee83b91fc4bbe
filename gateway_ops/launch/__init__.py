"""The work of ``gateway launch``: checks, starts, watches and ends the processes that serve deployments."""
