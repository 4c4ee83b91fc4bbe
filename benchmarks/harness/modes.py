"""The measurements by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import (
    bodies,
    embeddings,
    features,
    front_door,
    hostile,
    lag,
    memory,
    mirror,
    rates,
    relay,
    request_cost,
    scaling,
    triton,
    turn_rates,
    turns,
    workers,
)
from .peers import comparison
from .relay import Tell

MODES: dict[str, Callable[[int, Tell], dict[str, Any]]] = {
    "relay": relay.measure,
    "memory": memory.measure,
    "features": features.measure,
    "requests": request_cost.measure,
    "bodies": bodies.measure,
    "embeddings": embeddings.measure,
    "frontdoor": front_door.measure,
    "lag": lag.measure,
    "mirror": mirror.measure,
    "hostile": hostile.measure,
    "workers": workers.measure,
    "triton": triton.measure,
    "turns": turns.measure,
    "knee": turn_rates.measure,
    "rates": rates.measure,
    "scaling": scaling.measure,
    "peers": comparison.measure,
}
