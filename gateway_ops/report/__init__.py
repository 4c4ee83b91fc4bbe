"""The work of ``gateway report``: collects the parts of a bug report, and removes secrets."""
