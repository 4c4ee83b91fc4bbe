"""The configuration of the Triton model ``embedding`` for an encoder or cross-encoder in Hugging Face's format.

Sources: the files that sentence-transformers writes (``modules.json``, ``1_Pooling/config.json``,
``sentence_bert_config.json``), and ``id2label`` of transformers' ``config.json``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from tritonclient.grpc import model_config_pb2

from gateway_ops.repository.pbtxt import to_text
from gateway_ops.repository.rendered_files import RenderError, Rendering, python_files

_TASKS: Final = {"BertModel": "embed", "BertForSequenceClassification": "rerank"}
_TENSORS: Final = {"embed": ("text", 1, "embedding"), "rerank": ("pair", 2, "logits")}
_POOLINGS: Final = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max"}
_MODULES: Final = ("Transformer", "Pooling", "Normalize")
_MOST: Final = 64
_LABELS: Final = 2  # of a classifier whose config.json names none, in transformers

_ABOUT: Final = """\
{what}, by BERT in NumPy on the CPU. A text of more tokens than max_seq_len is an error, unless the
request parameter truncate is START or END.

Written by `gateway repo --model-dir`. A parameter value "${{NAME}}" is read from the environment when the model
is loaded; where it is not set, each request is an error that says so."""


def render_encoder(folder: Path, python_models: Path) -> Rendering:
    """Render the model of a folder, with the folder's name.

    Raises:
        RenderError: the folder has no such model, or the Python files are missing.
    """
    config = encoder_config(folder, name := folder.name, str(folder))
    text = to_text(config, about_encoder(config)).encode()
    files = {Path(name) / "config.pbtxt": text, **python_files(python_models / "embedding" / "1", Path(name) / "1")}
    return Rendering({name: config}, files)


def about_encoder(config: Any) -> str:
    """Make the comment at the top of a configuration."""
    return _ABOUT.format(what="Pairs of texts to scores" if config.input[0].name == "pair" else "Texts to vectors")


def encoder_config(folder: Path, name: str, model_dir: str) -> Any:
    """Make the ModelConfig of a folder's model.

    Args:
        folder: folder with ``config.json``; values that other files lack have sentence-transformers' defaults.
        name: the model's name in Triton.
        model_dir: the folder where Triton runs, or ``${NAME}``.

    Raises:
        RenderError: the model is not supported; the message names the file and the reason.
    """
    file = folder / "config.json"
    read = _read(file)
    architecture = (read.get("architectures") or [None])[0]
    if architecture not in _TASKS:
        raise RenderError(f"{file}: the architecture is {architecture}; --model-dir renders {' and '.join(_TASKS)}.")
    task = _TASKS[architecture]
    try:
        positions, width = int(read["max_position_embeddings"]), int(read["hidden_size"])
        labels = [
            label for _, label in sorted((int(key), str(label)) for key, label in read.get("id2label", {}).items())
        ]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RenderError(f"{file} must have integers as sizes and as keys of id2label ({error!r}).") from None
    parameters = {"model_dir": model_dir, "tokenizer_dir": model_dir, "task": task}
    parameters["max_seq_len"] = str(_max_seq_len(folder, positions))
    if task == "embed":
        parameters |= {"pooling": _pooling(folder), "normalize": "true" if _normalizes(folder) else "false"}
    elif labels:
        parameters["labels"] = json.dumps(labels, ensure_ascii=False)
    return _config(name, task, width if task == "embed" else len(labels) or _LABELS, parameters)


def _config(name: str, task: str, width: int, parameters: dict[str, str]) -> Any:
    source, texts, output = _TENSORS[task]
    config = model_config_pb2.ModelConfig(name=name, backend="python", max_batch_size=_MOST)
    config.input.add(name=source, data_type=model_config_pb2.TYPE_STRING, dims=[texts])
    config.output.add(name=output, data_type=model_config_pb2.TYPE_FP32, dims=[width])
    config.output.add(name="token_count", data_type=model_config_pb2.TYPE_INT32, dims=[1])
    config.instance_group.add(count=1, kind=model_config_pb2.ModelInstanceGroup.KIND_CPU)
    config.dynamic_batching.SetInParent()
    for key, value in parameters.items():
        config.parameters[key].string_value = value
    return config


def _max_seq_len(folder: Path, positions: int) -> int:
    return min(int(_read(folder / "sentence_bert_config.json").get("max_seq_length") or positions), positions)


def _pooling(folder: Path) -> str:
    """The pooling of ``1_Pooling/config.json``, in its older or newer form; mean where there is no such file."""
    file = folder / "1_Pooling" / "config.json"
    if not (read := _read(file)):
        return "mean"
    flags = [key.removeprefix("pooling_mode_") for key, value in read.items() if value is True]
    named = [_POOLINGS.get(flag, flag) for flag in flags if flag != "include_prompt"] or [read.get("pooling_mode")]
    if len(named) > 1 or named[0] not in _POOLINGS.values():
        raise RenderError(f"{file}: pooling by {', '.join(map(str, named))} is not computed.")
    return str(named[0])


def _normalizes(folder: Path) -> bool:
    """Whether ``modules.json`` has a step that normalises; True where there is no such file."""
    file = folder / "modules.json"
    if not file.is_file():
        return True
    kinds = [str(module["type"]).rpartition(".")[2] for module in _read(file, list)]
    if others := set(kinds) - set(_MODULES):
        raise RenderError(f"{file}: the module {min(others)} is not computed.")
    return "Normalize" in kinds


def _read(file: Path, kind: type[Any] = dict) -> Any:
    """The content of a JSON file; empty where there is none."""
    try:
        read = json.loads(file.read_bytes())
    except FileNotFoundError:
        return kind()
    except (OSError, ValueError) as error:
        raise RenderError(f"{file} cannot be read: {error}.") from None
    if not isinstance(read, kind):
        raise RenderError(f"{file} does not hold what belongs there.")
    return read
