"""The embedded stack: the tritonserver process and the model that it serves on this machine's CPU."""


class LocalStackError(Exception):
    """A lack or a refusal of this machine; the message is one sentence for the user that says what to do."""
