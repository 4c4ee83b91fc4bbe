"""Counts the weights of a model by the headers of its safetensors files; nothing is loaded."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_WHOLE = ("F64", "F32", "F16", "BF16")  # matrices of any other type are quantised: AWQ and GPTQ pack weights into I32
_INDEX = "model.safetensors.index.json"
_LONGEST_HEADER = 100 * 2**20  # of the format (safetensors' own bound)


class UnreadableWeightsError(Exception):
    """An unreadable safetensors file; the message names the file and the fault."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The parameters of a model by part.

    Attributes:
        linear: parameters of the layers' matrices, which quantisation makes smaller.
        embedding: parameters of the input's table.
        head: parameters of the output's matrix; 0 where the embedding serves as it (tied).
        rest: norms, biases, positions, routers.
        stored_bytes: bytes of the source's files; None where no file was read.
        quantised: whether the source's matrices are in fewer than 16 bits already.
    """

    linear: int
    embedding: int
    head: int
    rest: int
    stored_bytes: int | None = None
    quantised: bool = False

    @property
    def total(self) -> int:
        """The number of parameters of the source."""
        return self.linear + self.embedding + self.head + self.rest


def read_header(path: Path) -> dict[str, Any]:
    """Read the header of a safetensors file: dtype, shape and place of each tensor.

    Raises:
        UnreadableWeightsError: the file is not a safetensors file, or shorter than its header says.
    """
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > _LONGEST_HEADER:
                raise UnreadableWeightsError(f"{path} is not a safetensors file.")
            header = json.loads(file.read(length))
            held = path.stat().st_size - 8 - length
    except (OSError, ValueError, RecursionError, struct.error) as error:
        raise UnreadableWeightsError(f"{path} is not a safetensors file.") from error
    if isinstance(header, dict):
        header.pop("__metadata__", None)
    if not isinstance(header, dict) or not all(_is_tensor(tensor) for tensor in header.values()):
        raise UnreadableWeightsError(f"{path} is not a safetensors file.")
    end = max((tensor["data_offsets"][1] for tensor in header.values()), default=0)
    if held < end:
        raise UnreadableWeightsError(f"{path} ends after {held} of {end} bytes: the download is incomplete.")
    return header


def _is_tensor(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("dtype"), str):
        return False
    shape, places = entry.get("shape"), entry.get("data_offsets")
    if not isinstance(shape, list) or not isinstance(places, list) or len(places) != 2:
        return False
    return all(type(number) is int and number >= 0 for number in (*shape, *places))


def stored_weights(folder: Path) -> Weights | None:
    """Count the parameters of a folder's safetensors files; None where it has none.

    Raises:
        UnreadableWeightsError: a file is damaged or missing.
    """
    counts = {"linear": 0, "embedding": 0, "head": 0, "rest": 0}
    files = _weight_files(folder)
    packed = matrices = stored = 0
    for path in files:
        for name, tensor in read_header(path).items():
            part = _part_of(name, len(tensor["shape"]))
            counts[part] += math.prod(tensor["shape"])
            begin, end = tensor["data_offsets"]
            stored += end - begin
            if part == "linear":
                matrices += end - begin
                packed += end - begin if tensor["dtype"] not in _WHOLE else 0
    return Weights(**counts, stored_bytes=stored, quantised=packed > matrices // 2) if files else None


def _weight_files(folder: Path) -> list[Path]:
    """The files that a loader reads: those that the index names, else all; no second copy in its maker's own form."""
    found = sorted(folder.glob("*.safetensors")) if folder.is_dir() else []
    names = _indexed(folder / _INDEX)
    missing = sorted(names - {path.name for path in found})
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UnreadableWeightsError(f"{folder} lacks {missing[0]}{more}: the download is incomplete.")
    # Mistral's own form, beside the one of the Hub.
    common = [path for path in found if not path.name.startswith("consolidated")]
    return [path for path in found if path.name in names] or common or found


def _indexed(index: Path) -> set[str]:
    """The files that an index names; none without one."""
    try:
        named: Any = json.loads(index.read_bytes())["weight_map"].values()
        return {str(name) for name in named}
    except FileNotFoundError:
        return set()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UnreadableWeightsError(f"{index} is not an index of safetensors files.") from None


def _part_of(name: str, dims: int) -> str:
    if any(part in name for part in ("embed_tokens", "wte.", "word_embeddings", "tok_embeddings")):
        return "embedding"
    if name.startswith(("lm_head.", "output.")) or ".lm_head." in name:
        return "head"
    routing = any(part in name for part in (".gate.weight", "router", "wpe."))
    return "linear" if dims >= 2 and not routing else "rest"


def unusable_model(folder: Path) -> str | None:
    """Say why a folder has no complete model; None where it has one, as far as headers tell."""
    if not (folder / "config.json").is_file():
        return f"{folder} is not a model folder: it has no config.json."
    try:
        stored_weights(folder)
    except UnreadableWeightsError as error:
        return str(error)
    return None
