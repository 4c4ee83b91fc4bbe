"""Service `model`: makes the model that .env names ready in the volume /models, and ends.

Into the volume:
    hub/<id>            weights and tokenizer of a Hugging Face model, stored for the next start
    current             link to the folder that Triton serves: one of those, or /local, the folder that MODEL_DIR names
    served/             what the gateway needs to know: gateway.yaml and a copy of the tokenizer's files

Environment:
    MODEL: Hugging Face id. MODEL_REVISION: branch, tag or commit, `main` by default.
    MODEL_DIR: the host's folder that is mounted at /local; wins over MODEL.
    MODEL_NAME: what clients call the model; by default MODEL, or the name of MODEL_DIR.
    MAX_SEQ_LEN: prompt plus generated tokens; by default what config.json says.
    GATEWAY_PATH: how the gateway speaks to Triton.
    EMBEDDING_MODEL_DIR: where Triton finds all-MiniLM-L6-v2, which is served as well; absent or empty: it is not.
    HF_TOKEN_FILE: file with a Hugging Face token; absent or empty: none.
"""

# ruff: noqa: INP001, T201 - a program of the images, not part of the package; its output is the container's log
from __future__ import annotations

import errno
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Final

import yaml

VOLUME: Final = Path("/models")
LOCAL: Final = Path("/local")
_NOT_NEEDED: Final = ("*.gguf", "*.onnx", "onnx/*", "original/*", "*.pth", "*.msgpack", "*.h5", "*.tflite", "*.ot")
_TOKENIZER_FILES: Final = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "chat_template.jinja", "chat_template.json",
)  # fmt: skip
_SPARE_BYTES: Final = 512 * 2**20
_WHOLE: Final = ".whole"  # holds the revision; written last


class ModelError(Exception):
    """The model cannot be had; the message says why and what to do."""


def prepare(volume: Path, local: Path, env: dict[str, str]) -> str:
    """Make the model ready and return the name that clients use.

    Raises:
        ModelError: it cannot be made ready.
    """
    named = env.get("MODEL_DIR", "").strip()
    model = env.get("MODEL", "").strip()
    if named:
        folder, link, name = local, str(local), Path(named).name
    elif model:
        folder = fetch(model, env.get("MODEL_REVISION", "").strip() or "main", volume, read_token(env))
        link, name = str(folder.relative_to(volume)), model
    else:
        raise ModelError("No model is named. Set MODEL (a Hugging Face id) or MODEL_DIR (a folder) in .env.")
    where = f"MODEL_DIR={named}" if named else f"MODEL={model}"
    name = env.get("MODEL_NAME", "").strip() or name
    publish(folder, volume, name, where, env)
    fresh = volume / ".current"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(link)
    fresh.replace(volume / "current")
    (volume / "home").mkdir(exist_ok=True)
    return name


def read_token(env: dict[str, str]) -> str | None:
    """The Hugging Face token of the secret; None without one."""
    file = Path(env.get("HF_TOKEN_FILE") or "/run/secrets/hf_token")
    try:
        return file.read_text(encoding="utf-8").strip() or None
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(
            f"The Hugging Face token cannot be read ({error}). HF_TOKEN_FILE in .env must name a file that "
            "the container's user 1000 may read."
        ) from None


def fetch(model: str, revision: str, volume: Path, token: str | None) -> Path:
    """Return the folder of a Hugging Face model in the volume, fetching what is missing of it.

    Raises:
        ModelError: the id is wrong, the model is gated, the network or the disk does not allow it.
    """
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", model) or ".." in model:
        raise ModelError(
            f"MODEL={model} is not a Hugging Face id (owner/name). For a folder of this machine set MODEL_DIR."
        )
    folder = volume / "hub" / model.replace("/", "--")
    marker = folder / _WHOLE
    if marker.is_file() and marker.read_text() == revision:
        return folder  # no network needed
    # Read when the library is imported; progress bars make container logs unreadable.
    os.environ |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    os.environ.setdefault("HF_HOME", str(volume / "hub" / ".cache"))
    import httpx2  # noqa: PLC0415
    from huggingface_hub import errors  # noqa: PLC0415

    try:
        download(model, revision, volume, folder, token)
    except errors.GatedRepoError:
        had = "the token in HF_TOKEN_FILE has no access to it" if token else "no token was given"
        raise ModelError(
            f"{model} is gated, and {had}. Accept its terms on https://huggingface.co/{model} with your account, then "
            "set HF_TOKEN_FILE in .env to a file with a token of that account; or choose an ungated MODEL."
        ) from None
    except errors.RevisionNotFoundError:
        raise ModelError(f"{model} has no revision {revision}. Correct MODEL_REVISION in .env.") from None
    except errors.RepositoryNotFoundError:
        raise ModelError(
            f"Hugging Face has no model {model}, or it is private{'' if token else ' and no token was given'}. "
            "Correct MODEL in .env, or set HF_TOKEN_FILE."
        ) from None
    except (OSError, httpx2.HTTPError) as error:
        if getattr(error, "errno", None) == errno.ENOSPC:
            raise ModelError(_full(volume, model)) from None
        raise ModelError(
            f"{model} cannot be fetched ({' '.join(str(error).split())[:300]}). Check this machine's network, or fetch "
            "the model elsewhere and set MODEL_DIR in .env to its folder."
        ) from None
    marker.write_text(revision)
    return folder


def download(model: str, revision: str, volume: Path, folder: Path, token: str | None) -> None:
    """Fetch what is missing of a model, after a look at the disk; raises what huggingface_hub raises."""
    from huggingface_hub import HfApi, snapshot_download  # noqa: PLC0415

    # Asked first, because it says what is wrong; the plan below does not.
    info = HfApi().model_info(model, revision=revision, token=token or False)
    ignored = [*_NOT_NEEDED]
    if any(file.rfilename.endswith(".safetensors") for file in info.siblings or ()):
        ignored.append("*.bin")  # the same weights once more
    choice: dict[str, Any] = {
        "revision": revision,
        "local_dir": folder,
        "ignore_patterns": ignored,
        "token": token or False,
    }
    plan = snapshot_download(model, dry_run=True, **choice)
    needed = sum(file.file_size for file in plan if file.will_download)
    check_space(volume, needed, model)
    print(f"Fetching {model}: {needed / 2**30:.1f} GiB", flush=True)
    snapshot_download(model, **choice)


def check_space(volume: Path, needed: int, model: str) -> None:
    """Reject a download that the disk cannot hold.

    Raises:
        ModelError: the disk has too little space.
    """
    free = shutil.disk_usage(volume).free
    if free < needed + _SPARE_BYTES:
        wanted = (needed + _SPARE_BYTES) / 2**30
        raise ModelError(f"{_full(volume, model)} It needs {wanted:.1f} GiB, {free / 2**30:.1f} are free.")


def _full(volume: Path, model: str) -> str:
    return (
        f"Too little disk space for {model} in the volume at {volume}. Free some on the disk that holds Docker's data "
        "(docker system df shows what uses it), or choose a smaller MODEL."
    )


def publish(folder: Path, volume: Path, name: str, where: str, env: dict[str, str]) -> None:
    """Write what the gateway needs: a copy of the tokenizer's files and a gateway.yaml that names the model.

    Raises:
        ModelError: the folder is not a model's, or the volume cannot be written.
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else "not JSON"
        raise ModelError(
            f"{where}: no readable config.json there ({said}). It must be a model in Hugging Face format."
        ) from None
    if not (folder / "tokenizer.json").is_file():
        raise ModelError(f"{where}: there is no tokenizer.json. The gateway needs a model with a fast tokenizer.")
    length = env.get("MAX_SEQ_LEN", "").strip() or config.get("max_position_embeddings")
    if not str(length or "").isdigit():
        raise ModelError(f"{where}: config.json has no max_position_embeddings. Set MAX_SEQ_LEN in .env to a number.")
    settings: dict[str, list[dict[str, Any]]] = {
        "models": [
            {
                "name": name,
                "triton": {"url": env.get("TRITON_URL") or "triton:8001"},
                "tokenizer": "tokenizer",
                "max_seq_len": int(str(length)),
                "path": env.get("GATEWAY_PATH", "").strip() or "auto",
            }
        ]
    }
    if env.get("EMBEDDING_MODEL_DIR"):
        settings["models"].append(
            {
                "name": "all-minilm-l6-v2",
                "aliases": ["embedding"],
                "task": "embed",
                "triton": {"url": env.get("TRITON_URL") or "triton:8001", "model": "embedding"},
                "encoder": {"request_fields": ["truncate"]},
            }
        )
    target = volume / "served"
    try:
        shutil.rmtree(target, ignore_errors=True)
        (target / "tokenizer").mkdir(parents=True)
        for file in (folder / item for item in _TOKENIZER_FILES):
            if file.is_file():
                shutil.copyfile(file, target / "tokenizer" / file.name)
        (target / "gateway.yaml").write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    except OSError as error:
        raise ModelError(
            f"{volume} cannot be written ({error.strerror}). Remove the volume: docker compose down --volumes"
        ) from None


def main() -> int:
    """Prepare the model; a problem is said in one paragraph that stands out."""
    try:
        name = prepare(VOLUME, LOCAL, dict(os.environ))
    except ModelError as problem:
        line = "=" * 100
        print(f"{line}\n{problem}\n{line}", file=sys.stderr, flush=True)
        return 1
    print(f"{name} is ready.", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
