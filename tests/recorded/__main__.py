"""``python -m tests.recorded``: records all answers anew, after a change of behaviour that is meant."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.recorded.gateways import gateways
from tests.recorded.records import AREAS, record

with tempfile.TemporaryDirectory() as folder, gateways(Path(folder)) as world:
    for area in AREAS:
        print(f"{area}: {record(area, world)}")  # noqa: T201
