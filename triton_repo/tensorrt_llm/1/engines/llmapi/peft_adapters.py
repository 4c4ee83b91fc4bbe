"""Adapters of the LLM API: folders on the server, by task id."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wire.request import RejectedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wire.request import LoraTask

# Hugging Face's names of the modules, and TensorRT-LLM's.
_MODULES = {
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_dense",
    "gate_proj": "mlp_h_to_4h",
    "down_proj": "mlp_4h_to_h",
    "up_proj": "mlp_gate",
}


@dataclass(frozen=True)
class Adapters:
    """The adapters of a folder.

    Attributes:
        paths: their folders, in Hugging Face PEFT's format, by task id.
        rank: the largest of their ranks.
        modules: all that they are added to, by TensorRT-LLM's names.
    """

    paths: Mapping[int, Path]
    rank: int
    modules: tuple[str, ...]

    def config_arguments(self) -> dict[str, Any]:
        """Keyword arguments of TensorRT-LLM's ``LoraConfig``."""
        return {
            "lora_target_modules": list(self.modules),
            "max_lora_rank": self.rank,
            "max_loras": len(self.paths),
            "max_cpu_loras": len(self.paths),
        }

    def request_arguments(self, task: LoraTask) -> dict[str, Any]:
        """Keyword arguments of TensorRT-LLM's ``LoRARequest``.

        Raises:
            RejectedError: there is no such adapter; in the C++ backend's words where no weights came with the task.
        """
        if task.id in self.paths:
            return {"lora_name": str(task.id), "lora_int_id": task.id, "lora_path": str(self.paths[task.id])}
        if task.weights is None:
            raise RejectedError(f"LoRA task {task.id} not found in cache. Please send LoRA weights with request")
        raise RejectedError("lora_weights is not supported by the engine: it serves only the adapters of its folder")


def read_adapters(folder: Path) -> Adapters:
    """The adapters in the subfolders of a folder, each named by its task id.

    Raises:
        RuntimeError: there is none, or one that cannot be read; the message names it.
    """
    paths = {int(path.name): path for path in sorted(folder.glob("*")) if path.name.isdecimal() and path.is_dir()}
    if not paths:
        raise RuntimeError(f"LLM_LORA_DIR is {str(folder)!r}, which has no folder named by a task id")
    configs = [_read_config(path) for path in paths.values()]
    modules = sorted({module for _, of_one in configs for module in of_one})
    return Adapters(paths, max(rank for rank, _ in configs), tuple(modules))


def _read_config(path: Path) -> tuple[int, list[str]]:
    """Rank and modules of an adapter."""
    try:
        config = json.loads((path / "adapter_config.json").read_text(encoding="utf-8"))
        return int(config["r"]), [_MODULES[name] for name in config["target_modules"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RuntimeError(f"{path} is not an adapter that can be served: {error!r}") from error
