"""Doubles of encoders that people run, one for each way to call them, in a real Triton, and how each is set up."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

from gateway_ops.local_stack.tritonserver import TritonServer
from tests.doubles.encoders.scripted_encoders import ScriptedEncoders
from tests.doubles.llmapi.server import ROOT

_IDS = "input_ids INT64 -1, attention_mask INT64 -1"


@dataclass(frozen=True)
class Row:
    """One encoder.

    Attributes:
        inputs: name, type and dimensions of each, with commas; ``?`` behind a name: optional.
        outputs: the same.
        does: as of `encoder_model`.
        batch: ``max_batch_size``.
        settings: of ``encoder``.
        task: of the served model.
        tokenizer: whether the settings name one.
        more: a further line of its configuration; ``decoupled`` or ``ensemble`` where it is that.
    """

    inputs: str
    outputs: str
    does: Mapping[str, Any]
    batch: int = 8
    settings: Mapping[str, Any] = field(default_factory=dict)
    task: str = "embed"
    tokenizer: bool = False
    more: str = ""


def _text(name: str, output: str, **more: Any) -> Row:
    to = output.split(maxsplit=1)[0]
    does = {"kind": more.pop("kind", "vectors"), "from": name, "to": to, "width": more.pop("width", 4)}
    return Row(more.pop("inputs", f"{name} STRING 1"), output, does, tokenizer=True, **more)


def _ids(output: str, kind: str = "vectors", inputs: str = _IDS, **more: Any) -> Row:
    does = {"kind": kind, "to": output.split(maxsplit=1)[0], **more.pop("does", {})}
    return Row(inputs, output, does, tokenizer=True, **more)


_TYPES = _IDS.replace(" -1", " 1 -1") + ", token_type_ids INT64 1 -1"
ROWS: Mapping[str, Row] = {
    "nim": Row(
        "text STRING 1, modality? STRING 1", "embeddings FP32 -1, token_count INT32 1",
        {"kind": "vectors", "from": "text", "to": "embeddings"},
        settings={"request_fields": ["input_type", "truncate", "dimensions"], "tensors": {"text": "text"}},
    ),
    "nim_rerank": Row(
        "query STRING 1, passage STRING 1", "index INT32 1, logit FP32 1, token_count INT32 1",
        {"kind": "sorted", "from": "query,passage", "to": "logit"},
        task="rerank", more='parameters { key: "request_fields" value: { string_value: "truncate" } }',
    ),
    "vllm": Row(
        "text_input? STRING 1, image? STRING -1, stream? BOOL 1, sampling_parameters? STRING 1,"
        " embedding_request? STRING 1, return_num_input_tokens? BOOL 1",
        "text_output STRING -1, finish_reason STRING -1, logprobs STRING -1, cumulative_logprob FP32 -1,"
        " num_input_tokens UINT32 1",
        {"kind": "json", "from": "embedding_request", "to": "text_output"}, batch=0, more="decoupled",
    ),
    "jina_v3": _ids(
        "13049 FP32 1024", inputs=f"{_IDS}, task_id INT64 1",
        settings={"inputs": {"task_id": 4}, "input_types": {"query": {"inputs": {"task_id": 0}}}},
    ),
    "jina_reranker": _ids("logits FP32 1", batch=32, task="rerank", does={"width": 1}),
    "bert_cross": _ids(
        "logits FP32 1", inputs=f"{_IDS}, token_type_ids INT64 -1", task="rerank", does={"width": 1}
    ),
    "ensemble": _text("text", "embedding FP32 1024", batch=256, more="ensemble"),
    "bert": _ids("output_0 FP32 -1 -1 768", "hidden", _TYPES, batch=0),
    "several": _text(
        "INPUT_TEXT", "EMBEDDING FP32 -1",
        settings={
            "parameters": {"embed_model": "e5", "truncation": True},
            "input_types": {"query": {"prefix": "query: "}, "passage": {"prefix": "passage: "}},
            "default_input_type": "passage", "dimensions": True,
        },
    ),
    "flat": _text(
        "TEXT", "EMBEDDINGS FP32 -1, DIM INT32 1", kind="flat", inputs="TEXT STRING -1, MODEL_NAME STRING 1", batch=0,
        settings={"inputs": {"MODEL_NAME": "e5-small"}, "batch": 3},
    ),
    "bge_py": _text("text_input", "embedding_output FP32 1024", inputs="text_input STRING -1"),
    "minilm": _text("text", "embedding FP16 4", settings={"normalize": True}),
    "cross": _text("INPUT_PAIRS", "SCORES FP32 -1", inputs="INPUT_PAIRS STRING 2", task="rerank", width=1),
    "gemma": _ids(
        "last_hidden_state FP32 -1 768, sentence_embedding FP32 768", "hidden", does={"pooled": "sentence_embedding"}
    ),
    "positions": _ids("embedding FP32 4", inputs="input_ids INT64 -1, attention_mask FP32 -1, position_ids INT64 -1"),
    "fixed": _ids(
        "output_0 FP32 4 -1 4", "hidden", "input_ids INT64 4 -1, attention_mask FP16 4 -1", batch=0,
    ),
    "fixed_texts": _text("text", "vectors FP32 -1", kind="flat", inputs="text STRING 4", batch=0),
    "fixed_classes": _text(
        "text", "probs FP32 12", kind="flat", inputs="text STRING 4", batch=0, width=3, task="classify",
        settings={"labels": ["bad", "so", "good"]},
    ),
    "deploy": _ids("output FP16 -1 -1", "hidden", "input_ids INT32 -1, attention_mask INT32 -1",
                   settings={"pooling": "cls", "normalize": False}),
    "litellm": _text("input_text", "anything FP32 -1 4", inputs="input_text STRING -1", batch=0, settings={"batch": 4}),
    "classes": _text(
        "text", "logits FP32 3", width=3, task="classify", settings={"labels": ["bad", "so", "good"]},
        more='parameters { key: "task" value: { string_value: "classify" } }',
    ),
}  # fmt: skip
"""By the name of the model: the encoders of public repositories, with their names, types, dimensions and traps."""


def write_tokenizer(folder: Path) -> Path:
    """A tokenizer of bytes, with BERT's special tokens around texts and pairs."""
    folder.mkdir(parents=True, exist_ok=True)
    vocab = {character: index for index, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["[CLS]", "[SEP]"])
    special = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", special)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def _tensors(kind: str, described: str) -> list[str]:
    lines = []
    for each in described.split(", "):
        name, datatype, *dims = each.split()
        optional = " optional: true" if name.endswith("?") else ""
        lines.append(
            f'{kind} {{ name: "{name.rstrip("?")}" data_type: TYPE_{datatype} dims: [{", ".join(dims)}]{optional} }}'
        )
    return lines


def write_row(repository: Path, name: str, row: Row) -> None:
    """Write one encoder; an ensemble is one over another encoder."""
    if row.more == "ensemble":
        write_row(repository, f"{name}_step", Row(row.inputs, row.outputs, row.does, row.batch))
        maps = [
            f'{kind} {{ key: "{name}" value: "{name}" }}'
            for kind, name in (
                ("input_map", row.inputs.split(maxsplit=1)[0]),
                ("output_map", row.outputs.split(maxsplit=1)[0]),
            )
        ]
        step = f'model_name: "{name}_step" model_version: -1 {" ".join(maps)}'
        body = ['platform: "ensemble"', f"ensemble_scheduling {{ step {{ {step} }} }}"]
    else:
        does = json.dumps(json.dumps(row.does))
        body = [
            'backend: "python"', f'parameters {{ key: "does" value: {{ string_value: {does} }} }}',
            "instance_group { count: 1 kind: KIND_CPU }",
            f"model_transaction_policy {{ decoupled: {str(row.more == 'decoupled').lower()} }}",
            row.more.removeprefix("decoupled"),
        ]  # fmt: skip
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    lines = [f"max_batch_size: {row.batch}", *_tensors("input", row.inputs), *_tensors("output", row.outputs), *body]
    (folder.parent / "config.pbtxt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if row.more != "ensemble":
        code = "from tests.doubles.encoders.encoder_model import TritonPythonModel  # noqa: F401\n"
        (folder / "model.py").write_text(code, encoding="utf-8")


class EncoderServer:
    """Running encoders, in a Triton or in the test's process; a context manager.

    Args:
        folder: for the repositories and the logs.
        tokenizer: the folder of the tokenizer of all models.
        real: the encoders that Triton has.
        scripted: those that `ScriptedEncoders` has, whose models need no process each.

    Attributes:
        triton: the server of the former, which runs where there are any.
    """

    def __init__(self, folder: Path, tokenizer: Path, real: Sequence[str] = (), scripted: Sequence[str] = ()) -> None:
        self._real, self._tokenizer = real, tokenizer
        self._mode, self._journal = folder / "mode", folder / "journal"
        for kind, names in (("real", real), ("scripted", scripted)):
            for name in names:
                write_row(folder / kind, name, ROWS[name])
        environment = {"PYTHONPATH": str(ROOT), "MODE": str(self._mode), "JOURNAL": str(self._journal)}
        self.triton = TritonServer(
            folder / "real", model_dir=tokenizer, engine=None, env=environment, log_path=folder / "triton.log"
        )
        self._scripted = ScriptedEncoders(folder / "scripted", self._journal, self._mode)

    def __enter__(self) -> EncoderServer:
        if self._real:
            self.triton.start()
            self.triton.wait_ready(self._real)
        return self

    def __exit__(self, *_exc: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End them as a crash would."""
        self.triton.kill()
        self._scripted.kill()

    def url(self, name: str) -> str:
        """``host:port`` of the server that has an encoder."""
        return self.triton.grpc_url if name in self._real else self._scripted.url

    def model(self, name: str, **more: Any) -> dict[str, Any]:
        """The settings of a served model, as those that run it would write them."""
        row = ROWS[name]
        triton = {"url": self.url(name), "model": name}
        found = {"name": name, "task": row.task, "triton": triton, "encoder": dict(row.settings), **more}
        return found | ({"tokenizer": str(self._tokenizer)} if row.tokenizer else {})

    def set(self, mode: str) -> None:
        """Let all be ``well``, ``failing`` or ``silent``; ``going``: well, and texts that wait go on."""
        fresh = self._mode.with_suffix(".new")
        fresh.write_text(mode, encoding="utf-8")
        os.replace(fresh, self._mode)  # noqa: PTH105 - a model never sees half a word

    def forget(self) -> None:
        """Begin a new journal, and let all be well."""
        self._journal.unlink(missing_ok=True)
        self.set("well")

    def requests(self, model: str) -> list[dict[str, Any]]:
        """What a model was asked: ``id``, ``inputs`` (shape and values by name), ``parameters``, and ``cancelled``."""
        merged: dict[str, dict[str, Any]] = {}
        lines = self._journal.read_text(encoding="utf-8").splitlines() if self._journal.exists() else []
        for entry in map(json.loads, lines):
            if entry["model"] == model and not entry["id"].startswith("probe-"):
                merged.setdefault(entry["id"], {}).update(entry)
        # What a test before left to its end is cancelled later.
        return [entry for entry in merged.values() if "inputs" in entry]
