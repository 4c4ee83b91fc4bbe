"""Picks the engine of the model ``tensorrt_llm`` and hands Triton's calls to it.

Beside this file:
    engines/: the engines that serve in production, on GPUs: ``llmapi`` (TensorRT-LLM) and ``transformers``.
    cpu_double/: the engine ``reference``, which replaces TensorRT-LLM without a GPU, in tests and trials.
    wire/: shared by all engines: tensors to requests, responses to tensors, Triton's calls.

The model's parameters ``engine`` and ``gpt_model_path`` name engine and model folder; else the environment does:
    TRITON_ENGINE: ``llmapi``, ``transformers``, ``reference``, or NAME with a module NAME_adapter in ENGINE_PATH.
    MODEL_DIR: model folder in Hugging Face style.
    ENGINE_PATH: folder of the operator's own engine, optional.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))  # the folder is self-contained wherever it is mounted

_ENGINES = {
    "llmapi": "engines.llmapi.llmapi_adapter",
    "transformers": "engines.transformers.transformers_adapter",
    "reference": "cpu_double.reference_adapter",
}


def choose_engine(parameters: Mapping[str, str] | None = None) -> tuple[str, Path]:
    """Module of the engine and the model folder, from the model's parameters, else from the environment.

    Raises:
        RuntimeError: TRITON_ENGINE or MODEL_DIR is missing or wrong; the message names it and what it may be.
    """
    given = parameters or {}
    engine = given.get("engine") or os.environ.get("TRITON_ENGINE", "")
    folder = given.get("gpt_model_path") or os.environ.get("MODEL_DIR", "")
    engines = _ENGINES | _own_engines(os.environ.get("ENGINE_PATH", ""))
    if engine not in engines:
        problem = f"is {engine!r}" if engine else "is not set"
        raise RuntimeError(f"TRITON_ENGINE {problem}; set it to one of: {', '.join(sorted(engines))}")
    if not folder:
        raise RuntimeError("MODEL_DIR is not set; set it to a model folder in Hugging Face style")
    if not Path(folder).is_dir():
        raise RuntimeError(f"MODEL_DIR is {folder!r}, which is not a folder")
    return engines[engine], Path(folder)


def _own_engines(path: str) -> dict[str, str]:
    """Modules NAME_adapter of a folder, by NAME; the folder becomes importable."""
    if not path:
        return {}
    sys.path.append(path)
    return {file.stem.removesuffix("_adapter"): file.stem for file in Path(path).glob("*_adapter.py")}


class TritonPythonModel:
    """Triton's Python backend calls this by name."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the engine; an exception here is the model's load error."""
        module, folder = choose_engine(importlib.import_module("wire.base_adapter").parameters_of(args))
        self._adapter = importlib.import_module(module).Adapter(args, folder)

    def execute(self, requests: list[Any]) -> None:
        """Take requests; their answers are sent later (decoupled)."""
        self._adapter.execute(requests)

    def finalize(self) -> None:
        """Stop the engine."""
        self._adapter.finalize()
