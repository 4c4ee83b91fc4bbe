"""The model ``tensorrt_llm``: picks the engine named by the environment and hands Triton's calls to it.

Environment:
    TRITON_ENGINE: ``llmapi`` (TensorRT-LLM) or ``reference`` (NumPy).
    MODEL_DIR: model folder in Hugging Face style.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))  # the folder is self-contained wherever it is mounted

_ENGINES = {"llmapi": "llmapi_adapter", "reference": "reference_adapter"}


def choose_engine() -> tuple[str, Path]:
    """Module of the engine and the model folder, from the environment.

    Raises:
        RuntimeError: TRITON_ENGINE or MODEL_DIR is missing or wrong; the message names it and what it may be.
    """
    engine, folder = os.environ.get("TRITON_ENGINE", ""), os.environ.get("MODEL_DIR", "")
    if engine not in _ENGINES:
        problem = f"is {engine!r}" if engine else "is not set"
        raise RuntimeError(f"TRITON_ENGINE {problem}; set it to one of: {', '.join(sorted(_ENGINES))}")
    if not folder:
        raise RuntimeError("MODEL_DIR is not set; set it to a model folder in Hugging Face style")
    if not Path(folder).is_dir():
        raise RuntimeError(f"MODEL_DIR is {folder!r}, which is not a folder")
    return _ENGINES[engine], Path(folder)


class TritonPythonModel:
    """Triton's Python backend calls this by name."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the engine; an exception here is the model's load error."""
        module, folder = choose_engine()
        self._adapter = importlib.import_module(module).Adapter(args, folder)

    def execute(self, requests: list[Any]) -> None:
        """Take requests; their answers are sent later (decoupled)."""
        self._adapter.execute(requests)

    def finalize(self) -> None:
        """Stop the engine."""
        self._adapter.finalize()
