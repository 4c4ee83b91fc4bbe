"""Bounds on connections and on the time that requests take to arrive."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long a client may take to send a request, and how many clients there may be.

    The time of a body grows with what has come of it, as in Apache's ``mod_reqtimeout``: a large one on a slow line is
    served, and one that trickles is not.

    Attributes:
        head_s: seconds from the first byte of a request, or from the connection, to the end of its headers.
        body_s: seconds from the first byte of a request to its end, besides those that its size allows.
        body_rate: bytes of a body that allow one second more.
        silence_s: seconds between two pieces of a body.
        connections: open at a time.
    """

    head_s: float = 60.0
    body_s: float = 60.0
    body_rate: int = 4096
    silence_s: float = 60.0
    connections: int = 16384

    @property
    def shortest_s(self) -> float:
        """The shortest of the times: who looks so often sees each of them pass."""
        return min(self.head_s, self.body_s, self.silence_s)
