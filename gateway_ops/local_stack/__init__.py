"""The embedded stack: the tritonserver process and the model that it serves on this machine's CPU."""


class LocalStackError(Exception):
    """Says in one sentence for the user what this machine lacks or rejects, and what to do."""
