"""The embedded stack: the tritonserver process and the model that it serves on this machine's CPU."""


class LocalStackError(Exception):
    """Something this machine lacks or refuses; the message is one sentence that says what to do, fit to be shown."""
