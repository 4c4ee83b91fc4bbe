"""The folders that ``tokenizer_dir`` names: one for all steps, absolute, and with a tokenizer where they are here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gateway_ops.checking.findings import Finding, Severity
from gateway_ops.checking.repository_models import Models, at, error, filled, is_native, stock_model, text_steps
from gateway_ops.checking.repository_versions import loaded_versions
from gateway_ops.repository.reading import ModelFolder

_KEY = "tokenizer_dir"
# What transformers makes a tokenizer from; this project's steps read the first one.
_OWN_FILE = "tokenizer.json"
_FILES = (_OWN_FILE, "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt", "spiece.model")
_OWN_MODULES = ("text_to_tokens.py", "tokens_to_text.py")


def check_tokenizers(models: Models) -> Iterator[Finding]:
    """Check the tokenizers of the text steps, and that the steps of an ensemble have the same one."""
    for model in text_steps(models).values():
        if _KEY not in model.config.parameters:
            yield error(model, "parameters", "There is no tokenizer_dir.", "Set it to the model's folder.")
        elif not model.config.parameters[_KEY].string_value.strip():
            yield error(model, _KEY, "tokenizer_dir is empty.", "Write the model's folder.")
    for model in models.values():
        folder = filled(model, _KEY)
        if folder and stock_model(model) is not None:
            yield from _check_folder(model, folder)
    for ensemble in models.values():
        yield from _check_same(ensemble, models)


def _check_folder(model: ModelFolder, folder: str) -> Iterator[Finding]:
    own = any(
        (model.path / str(version) / file).is_file() for version in loaded_versions(model) for file in _OWN_MODULES
    )
    path, wanted = Path(folder), (_OWN_FILE,) if own or is_native(model) else _FILES
    if not path.is_absolute() and (own or folder.startswith((".", "~")) or folder.count("/") > 1):
        what = f"tokenizer_dir {folder!r} is relative to wherever Triton is started."
        yield error(model, _KEY, what, "Write an absolute path.")
    elif not path.is_absolute():
        what = f"tokenizer_dir {folder!r} is downloaded from Hugging Face, or relative to wherever Triton is started."
        yield Finding(Severity.INFO, at(model, _KEY), what, "Write an absolute path: the gateway looks there as well.")
    elif path.exists() and not path.is_dir():
        yield error(model, _KEY, f"tokenizer_dir {folder!r} is a file.", "Name the folder that it lies in.")
    elif path.is_dir() and not any((path / file).is_file() for file in wanted) and not list(path.glob("*.tiktoken")):
        what = f"{folder} holds no {_OWN_FILE}{'' if len(wanted) == 1 else ' nor another tokenizer'}."
        yield error(model, _KEY, what, "Copy the model's tokenizer there, or name its folder.")


def _check_same(ensemble: ModelFolder, models: Models) -> Iterator[Finding]:
    """The steps of one ensemble must speak of the same tokens."""
    named: dict[str, str] = {}
    for step in ensemble.config.ensemble_scheduling.step:
        model = models.get(step.model_name)
        folder = filled(model, _KEY) if model is not None else ""
        if folder and model is not None:
            named.setdefault(folder.rstrip("/"), step.model_name)
            if len(named) > 1:
                (first, owner), *_ = named.items()
                what = f"tokenizer_dir is {folder}, but {first} in {owner}."
                yield error(model, _KEY, what, "Name the same folder in both.")
                return
