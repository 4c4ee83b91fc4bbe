"""A real Triton that finds a stand-in for tensorrt_llm."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kserve import Kserve

from gateway_ops.local_stack.tritonserver import TritonServer

HERE = Path(__file__).resolve().parent
MODEL = HERE.parents[1] / "triton_repo" / "tensorrt_llm"


@dataclass
class Server:
    """A running Triton with the model ``tensorrt_llm`` on the stand-in."""

    triton: TritonServer
    client: Kserve
    journal: Path

    def events(self, kind: str) -> list[dict[str, Any]]:
        """What the stand-in saw, of one kind."""
        lines = self.journal.read_text(encoding="utf-8").splitlines() if self.journal.exists() else []
        return [event for event in map(json.loads, lines) if event["event"] == kind]


Serve = Callable[..., AbstractContextManager[Server]]


def copy_repository(target: Path, *, standin: bool) -> Path:
    """The one model, with the stand-in beside model.py: that folder is on the path of Triton's stub."""
    ignore = shutil.ignore_patterns("__pycache__", ".mypy_cache")
    shutil.copytree(MODEL, target / "tensorrt_llm", ignore=ignore)
    if standin:
        folder = target / "tensorrt_llm" / "1"
        for package in ("tensorrt_llm", "torch"):
            shutil.copytree(HERE / "standin" / package, folder / package, ignore=ignore)
        for file in ("recorded.py", "signatures.json"):
            shutil.copy(HERE / file, folder)
    return target
