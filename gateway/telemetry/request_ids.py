"""The id of the request that a task works for, for the log lines that this request is the cause of.

Only those lines ask for it: tasks that begin in a request may outlive it, such as that of a connection to Triton, and
what is said there later is of other requests.
"""

from __future__ import annotations

import contextvars
from typing import Final

_REQUEST_ID: Final = contextvars.ContextVar("request_id", default="")


def work_for(request_id: str) -> None:
    """Note the request that this task works for, and all that begin in it.

    It is not taken back: each request has a task of its own, in which the server logs a defect after its end.
    """
    _REQUEST_ID.set(request_id)


def cause() -> dict[str, str]:
    """The field ``request_id`` of a log line that the request is the cause of; empty where there is none."""
    request_id = _REQUEST_ID.get()
    return {"request_id": request_id} if request_id else {}
