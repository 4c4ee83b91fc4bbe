"""The manifest of a step: the inputs, the command, the GPU, and hashes of the written files.

A manifest is in the folder that it describes (beside a single file, under the file's name), so that a copied engine
brings its own. A checksum over its text shows whether it was edited since.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

NAME = "gateway_manifest.json"
FORM = 1
_CHUNK = 2**22
WEIGHTS = frozenset((".bin", ".engine", ".gguf", ".npy", ".npz", ".pt", ".pth", ".safetensors"))
"""Endings of files that quick checks compare by size alone, because hashing gigabytes takes minutes."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A written file of a step: its size and SHA-256."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A record of how a folder was made.

    Attributes:
        step: the step's name.
        deployment: the deployment's name.
        key: the hash of everything that the result depends on (`step_key`).
        command: program and arguments, with the final paths.
        trtllm: the installed version of TensorRT-LLM; empty where it was not read.
        gpu: name of the GPU that the folder was made on; empty for none.
        capability: the GPU's compute capability.
        seconds: duration of the command.
        outputs: the files, by their paths in the folder.
        intact: whether the checksum is right; not written to the file.
    """

    step: str
    deployment: str
    key: str
    command: tuple[str, ...]
    trtllm: str
    gpu: str
    capability: str
    seconds: float
    outputs: dict[str, WrittenFile] = field(default_factory=dict)
    intact: bool = True


class ManifestError(Exception):
    """An unreadable manifest; the message names the file and the fix."""


def manifest_path(result: Path, *, single: bool = False) -> Path:
    """The path of the manifest of a folder or of a single file."""
    return result.with_name(f"{result.name}.{NAME}") if single else result / NAME


def read_manifest(result: Path, *, single: bool = False) -> Manifest | None:
    """Read the manifest of a folder or single file; None where it has none.

    Raises:
        ManifestError: the file exists and is not a manifest.
    """
    path = manifest_path(result, single=single)
    try:
        data: Any = json.loads(path.read_bytes())
        checksum = data.pop("checksum")
        form = data.pop("manifest")
        outputs = {name: WrittenFile(**written) for name, written in data.pop("outputs").items()}
        found = Manifest(**data | {"command": tuple(data["command"])}, outputs=outputs)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ManifestError(f"{path} is not a readable manifest; restore it, or build again.") from None
    if form != FORM:
        raise ManifestError(f"{path} has form {form!r}, but this gateway reads form {FORM}; build again.")
    return replace(found, intact=checksum == _checksum(_body(found)))


def write_manifest(result: Path, manifest: Manifest, *, single: bool = False) -> None:
    """Write the manifest of a folder or single file, with its checksum.

    Raises:
        OSError: the file cannot be written.
    """
    body = _body(manifest)
    text = json.dumps(body | {"checksum": _checksum(body)}, indent=1)
    path = manifest_path(result, single=single)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text + "\n")
    partial.replace(path)


def _body(manifest: Manifest) -> dict[str, Any]:
    body = asdict(manifest)
    del body["intact"]
    return {"manifest": FORM, **body, "command": list(manifest.command)}


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def written_files(folder: Path) -> dict[str, WrittenFile]:
    """Hash every file of a folder except its manifest, with its whole content."""
    return {name: WrittenFile((folder / name).stat().st_size, file_hash(folder / name)) for name in _files(folder)}


def file_hash(path: Path) -> str:
    """Compute the SHA-256 of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def changed_files(folder: Path, manifest: Manifest, *, whole: bool) -> Iterator[str]:
    """Say which files differ from their manifest: weights by size, other files by size and hash.

    Args:
        folder: the folder of the files.
        manifest: their manifest.
        whole: hash weights as well, which takes as long as reading them.
    """
    for name, written in manifest.outputs.items():
        path = folder / name
        if not path.is_file():
            yield f"{name} is missing"
        elif path.stat().st_size != written.bytes:
            yield f"{name} has {path.stat().st_size} bytes, and had {written.bytes}"
        elif (whole or path.suffix not in WEIGHTS) and file_hash(path) != written.sha256:
            yield f"{name} has different content"


def _files(folder: Path) -> list[str]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != NAME)
    return [str(path.relative_to(folder)) for path in found if ".cache" not in path.parts]


_SAMPLES, _SAMPLE_BYTES = 64, 2**16


def fingerprint(folder: Path) -> str:
    """Hash an input folder without reading all of its weights.

    A step's result counts by the hashes of its manifest. Of other folders names, sizes and samples of all files count:
    64 KiB at each of 64 places, spread evenly, which is all of a file up to 4 MiB.
    """
    digest = hashlib.sha256()
    manifest = read_manifest(folder)
    if manifest is not None and manifest.intact:
        digest.update(json.dumps(sorted((name, one.sha256) for name, one in manifest.outputs.items())).encode())
        return digest.hexdigest()
    for name in _files(folder) if folder.is_dir() else []:
        path = folder / name
        size = path.stat().st_size
        digest.update(f"{name}:{size}\n".encode())
        with path.open("rb") as file:
            for place in range(0, size, max(_SAMPLE_BYTES, -(-size // _SAMPLES))):
                file.seek(place)
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def step_key(command: tuple[str, ...], inputs: tuple[Path, ...], trtllm: str, capability: str) -> str:
    """Hash everything that a step's result depends on: command, inputs, version, kind of GPU."""
    parts = [*command, trtllm, capability, *(fingerprint(folder) for folder in inputs)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
