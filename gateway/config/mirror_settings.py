"""Settings of the mirror of a served model."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gateway.config.section import Seconds, Section


class MirrorSettings(Section):
    """A second model that gets copies of live requests, whose answers are compared and go to nobody.

    Attributes:
        to: name of the second model, another entry of ``models``.
        share: of the requests, up to 1: all of them.
        at_once: copies that the second model answers at a time.
        waiting: copies that wait for their turn; further ones are dropped, and counted.
        timeout_s: seconds that the second model has for an answer.
        drawn: whether requests are copied that ask neither for temperature 0 nor for a seed, of whose answers only what
            does not depend on chance is compared.
        ignore: what is not compared.
        tolerance: by which the log-probs of a token may differ.
        show_text: whether rows of the report have texts; needs ``server.internal_port``, where the report is read.
    """

    to: str = Field(min_length=1)
    share: float = Field(default=0.1, gt=0, le=1)
    at_once: int = Field(default=4, ge=1, le=256)
    waiting: int = Field(default=64, ge=0, le=10_000)
    timeout_s: Seconds = Field(default=120.0, gt=0, allow_inf_nan=False)
    drawn: bool = True
    ignore: tuple[Literal["text", "reasoning", "calls", "finish_reason", "usage", "logprobs", "choices"], ...] = ()
    tolerance: float = Field(default=0.05, ge=0)
    show_text: bool = False
