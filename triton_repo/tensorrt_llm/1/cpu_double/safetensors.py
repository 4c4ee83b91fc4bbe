"""Reader of the safetensors format: an 8-byte header length, a JSON header, then raw tensors."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}


class ModelError(ValueError):
    """A model folder that this engine cannot serve; the message names what is wrong."""


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        ModelError: missing, unreadable or not an object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ModelError(f"{path}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path}: not a JSON object")
    return value


class Weights:
    """All tensors of a folder, memory-mapped, converted to float32 when taken."""

    def __init__(self, folder: Path) -> None:
        """Map ``model.safetensors``, the shards of its index, or every ``*.safetensors`` file.

        Raises:
            ModelError: no file, or a damaged one.
        """
        index = folder / "model.safetensors.index.json"
        if index.is_file():
            files = sorted({folder / name for name in read_json(index)["weight_map"].values()})
        else:
            files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise ModelError(f"{folder}: no *.safetensors file")
        self._tensors: dict[str, tuple[NDArray[np.uint8], dict[str, Any]]] = {}
        for file in files:
            self._map(file)

    def _map(self, file: Path) -> None:
        try:
            data = np.memmap(file, dtype=np.uint8, mode="r")
            (size,) = struct.unpack("<Q", data[:8].tobytes())
            header = json.loads(data[8 : 8 + size].tobytes())
        except (OSError, ValueError, struct.error) as error:
            raise ModelError(f"{file}: not a safetensors file: {error}") from error
        header.pop("__metadata__", None)
        for name, entry in header.items():
            self._tensors[name] = (data[8 + size :], entry)

    def take(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Tensor ``name`` as a float32 array of ``shape``.

        Raises:
            ModelError: missing, of another shape, or of a dtype other than F32, F16 and BF16.
        """
        if name not in self._tensors:
            raise ModelError(f"tensor {name} is missing")
        data, entry = self._tensors[name]
        if tuple(entry["shape"]) != shape:
            raise ModelError(f"tensor {name} has shape {entry['shape']}, expected {list(shape)}")
        if entry["dtype"] not in _DTYPES:
            raise ModelError(f"tensor {name} has dtype {entry['dtype']}; F32, F16 and BF16 are supported")
        begin, end = entry["data_offsets"]
        raw = data[begin:end].view(_DTYPES[entry["dtype"]])
        if entry["dtype"] == "BF16":  # bfloat16 is the upper half of a float32
            raw = (raw.astype(np.uint32) << 16).view(np.float32)
        return raw.astype(np.float32).reshape(shape)
