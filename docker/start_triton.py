"""Starts tritonserver in its container, after saying in plain words what would otherwise fail in obscure ones.

Environment, in addition to what the models read (TRITON_ENGINE, MODEL_DIR): TRITON_HTTP_PORT, TRITON_GRPC_PORT,
TRITON_METRICS_PORT, TRITON_ADDRESS; EMBEDDED_MODEL names a model folder inside the image, which is then made known to
the gateway here. Further arguments go to tritonserver as they are.
"""

# ruff: noqa: INP001 - a program of the images, not part of the package; its output is the container's log
from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path("/triton_repo")
SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - where the Python backend puts tensors
_LEAST_SHARED_MEMORY: Final = 256 * 2**20  # six Python models take 16 MiB each at first, and grow
_GPU_MARKS: Final = ("/dev/nvidiactl", "/dev/dxg")


def problems(env: dict[str, str], shm: Path = SHARED_MEMORY) -> list[str]:
    """What is missing, each with what to do about it; empty when nothing is."""
    found: list[str] = []
    memory = os.statvfs(shm)
    size = memory.f_frsize * memory.f_blocks
    if size < _LEAST_SHARED_MEMORY:
        found.append(
            f"Too little shared memory: /dev/shm has {size // 2**20} MiB, Triton's Python models need "
            f"{_LEAST_SHARED_MEMORY // 2**20}. Set TRITON_SHM_SIZE=1g in .env."
        )
    if not (REPOSITORY / "ensemble" / "config.pbtxt").is_file():
        found.append(f"No models at {REPOSITORY}: mount the folder triton_repo of this project there.")
    folder = Path(env.get("MODEL_DIR", ""))
    if not (folder / "config.json").is_file():
        found.append(f"No model in {folder}: the service `model` did not prepare one; see docker compose logs model.")
    if (embedding := env.get("EMBEDDING_MODEL_DIR")) and not (Path(embedding) / "model.safetensors").is_file():
        found.append("No model.safetensors in the folder of EMBEDDING_DIR: it must be all-MiniLM-L6-v2, see .env.")
    if env.get("TRITON_ENGINE") != "reference" and not any(Path(mark).exists() for mark in _GPU_MARKS):
        found.append(
            "No NVIDIA GPU in this container. Install NVIDIA's driver and the NVIDIA Container Toolkit and restart "
            "Docker; without a GPU use: docker compose --profile cpu up"
        )
    return found


def arguments(env: dict[str, str]) -> list[str]:
    """The command line of tritonserver without the program."""
    address = env.get("TRITON_ADDRESS") or "0.0.0.0"  # noqa: S104 - the container's own network; nothing is published
    line = [f"--model-repository={REPOSITORY}", "--disable-auto-complete-config", "--exit-timeout-secs=30"]
    for service, port in (("http", 8000), ("grpc", 8001), ("metrics", 8002)):
        chosen = env.get(f"TRITON_{service.upper()}_PORT") or port
        line += [f"--{service}-address={address}", f"--{service}-port={chosen}"]
    return line


def publish_embedded(folder: str) -> None:
    """Tell the gateway, through the volume, about the model inside this image."""
    sys.path.insert(0, str(Path(__file__).parent))
    import model  # noqa: PLC0415 - NVIDIA's image starts without it

    model.prepare(model.VOLUME, Path(folder), os.environ | {"MODEL_DIR": folder})


if __name__ == "__main__":
    if embedded := os.environ.get("EMBEDDED_MODEL"):
        publish_embedded(embedded)
    if missing := problems(dict(os.environ)):
        rule = "=" * 100
        sys.exit("\n".join([rule, *missing, rule]))
    os.execvp("tritonserver", ["tritonserver", *arguments(dict(os.environ)), *sys.argv[1:]])  # noqa: S606, S607
