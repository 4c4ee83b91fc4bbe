"""The local stack of ``gateway up``: tritonserver and the model that it serves on this machine's CPU."""


class LocalStackError(Exception):
    """This machine lacks or rejects something; the message names it, and the fix, in one sentence."""
