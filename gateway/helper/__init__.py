"""Work on strangers' input, in a process of its own: no other work waits for it, and its time and memory end."""

from gateway.helper.process import Helper, HelperFailedError, end_helpers, helper_pids

__all__ = ["Helper", "HelperFailedError", "end_helpers", "helper_pids"]
