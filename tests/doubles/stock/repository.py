"""Repositories of the doubles: the stock configurations of a version, filled in, beside models of our own."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from tests.doubles.stock.model_folders import Spelling
from tests.gateway_ops.repository.stock import UPSTREAM, fill, renamed

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[2] / "triton_repo"
TRIO = ("preprocessing", "tensorrt_llm", "postprocessing")
BLS = "tensorrt_llm_bls"
_TEXT_STEPS = ("preprocessing", "postprocessing")
_OF_THE_PROJECT = ("preprocessing", "tensorrt_llm")  # the models that do what upstream's do

_OLDER = json.loads((HERE.parents[1] / "gateway_ops" / "check" / "older.json").read_text(encoding="utf-8"))
# The tensors of 1.0 are those of 1.2.1: what differs is what the models do with them.
_FACTS: dict[str, dict[str, Any]] = {
    "0.12": _OLDER["0.12.0"],
    "0.16": _OLDER["0.16.0"],
    "0.19": UPSTREAM["0.19.0"],
    "1.0": UPSTREAM["1.2.1"],
    "1.2.1": UPSTREAM["1.2.1"],
}
VERSIONS = tuple(_FACTS)
"""Versions of TensorRT-LLM that have doubles."""


@dataclass(frozen=True)
class Stock:
    """One stock repository.

    Attributes:
        version: one of `VERSIONS`.
        spelling: of its tokenizer; see `model_folders.write_model`.
        decoupled: whether models may answer a request with several responses.
        skip_special_tokens: whether postprocessing hides them.
        add_special_tokens: whether preprocessing adds BOS where the tokenizer does.
        guided: whether the engine has a guided decoder.
        exclude_input: the engine's parameter, for requests that do not say.
        normalizes: whether the engine's parameter normalize_log_probs is left to upstream's default.
    """

    version: str
    spelling: Spelling = "bytes"
    decoupled: bool = True
    skip_special_tokens: bool = True
    add_special_tokens: bool = True
    guided: bool = False
    exclude_input: bool = False
    normalizes: bool = False

    def name(self, model: str) -> str:
        """The name of one of its models, by the stock name: others that differ in nothing have the same.

        A model that is called by several repositories of a server is loaded once, which saves seconds. But Triton
        loads it again for another ensemble, so that of those that are asked for together each has its own.
        """
        options = {
            "sp": self.spelling == "sentencepiece",
            "unary": not self.decoupled and model not in _TEXT_STEPS,
            "special": not self.skip_special_tokens and model != "preprocessing",
            "bare": not self.add_special_tokens and model != "postprocessing",
            "guided": self.guided,
            "excludes": self.exclude_input and model not in _TEXT_STEPS,
            "normalizes": self.normalizes and model not in _TEXT_STEPS,
        }
        # From 1.0 on the versions differ in their BLS models only.
        version = VERSIONS[-1] if model in TRIO and _FACTS[self.version] is _FACTS[VERSIONS[-1]] else self.version
        return "_".join([model, version.replace(".", "_"), *(option for option, on in options.items() if on)])


def write_stock(
    folder: Path,
    stock: Stock,
    models: dict[str, str],
    *,
    only: Collection[str] | None = None,
    tokenizer: Path,
    engine_dir: Path,
    accumulate: bool = False,
) -> None:
    """Write models of a stock repository.

    Args:
        folder: the repository that Triton loads.
        stock: which one.
        models: names by stock name; an ensemble and a BLS model need those of the models that they call.
        only: stock names of those that are written; all of them without it.
        tokenizer: a folder of `model_folders.write_model`.
        engine_dir: a folder of `model_folders.write_engine`.
        accumulate: the parameter ``accumulate_tokens`` of ``tensorrt_llm_bls``.
    """
    facts = _FACTS[stock.version]
    values = _values(stock, models, tokenizer=tokenizer, engine_dir=engine_dir, accumulate=accumulate)
    configs = renamed({name: fill(name, facts[name], values[name]) for name in models}, models)
    for step in _TEXT_STEPS if BLS in models else ():
        # Upstream's model has their names in its code; here several repositories share a server.
        configs[models[BLS]].parameters[f"{step}_model_name"].string_value = models[step]
    for stock_name in models if only is None else only:
        name = models[stock_name]
        target = folder / name
        (target / "1").mkdir(parents=True)
        (target / "config.pbtxt").write_text(text_format.MessageToString(configs[name]), encoding="utf-8")
        if stock_name == "ensemble":
            continue
        code = (PROJECT if stock_name in _OF_THE_PROJECT else HERE) / stock_name / "1"
        for file in code.glob("*.py"):
            (target / "1" / file.name).symlink_to(file)
        double = {"version": stock.version, "tokenizer": str(tokenizer), "models": models}
        (target / "1" / "double.json").write_text(json.dumps(double), encoding="utf-8")


def _values(
    stock: Stock, models: dict[str, str], *, tokenizer: Path, engine_dir: Path, accumulate: bool
) -> dict[str, dict[str, str]]:
    """Values of the template's variables by model; what upstream leaves to a default stays unfilled."""
    common = {
        "triton_max_batch_size": "64", "logits_datatype": "TYPE_FP32", "max_queue_size": "0",
        "max_queue_delay_microseconds": "0",
    }  # fmt: skip
    text = {
        "tokenizer_dir": str(tokenizer),
        "add_special_tokens": str(stock.add_special_tokens),
        "skip_special_tokens": str(stock.skip_special_tokens),
        "preprocessing_instance_count": "1",
        "postprocessing_instance_count": "1",
    }
    engine = {
        "decoupled_mode": str(stock.decoupled), "triton_backend": "python", "engine_dir": str(engine_dir),
        "batching_strategy": "inflight_fused_batching", "encoder_input_features_data_type": "TYPE_FP16",
        "prompt_embedding_table_data_type": "TYPE_FP16", "exclude_input_in_output": str(stock.exclude_input).lower(),
    }  # fmt: skip
    if not stock.normalizes:
        engine["normalize_log_probs"] = "false"
    if stock.guided:
        engine |= {"guided_decoding_backend": "xgrammar", "tokenizer_dir": str(tokenizer)}
    bls = {
        "decoupled_mode": str(stock.decoupled),
        "bls_instance_count": "1",
        "tensorrt_llm_model_name": models["tensorrt_llm"],
        "accumulate_tokens": str(accumulate).lower(),
    }
    return {
        "preprocessing": common | text, "postprocessing": common | text, "tensorrt_llm": common | engine,
        "ensemble": common, BLS: common | bls,
    }  # fmt: skip
