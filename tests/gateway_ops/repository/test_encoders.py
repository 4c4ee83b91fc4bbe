"""What ``gateway repo --model-dir`` renders for the folder of an encoder or a cross-encoder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway_ops.check.repository import check_repository
from gateway_ops.local_stack.tritonserver import EMBEDDING, EMBEDDING_VARIABLE
from gateway_ops.repository.encoders import about_encoder, encoder_config
from gateway_ops.repository.model_folders import read_repository
from gateway_ops.repository.pbtxt import to_text
from gateway_ops.repository.rendered_files import RenderError
from tests.gateway_ops.cli.test_repo import run

BERT = {"architectures": ["BertModel"], "hidden_size": 384, "max_position_embeddings": 512}
MEAN = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True, "include_prompt": True}
STEPS = [{"type": f"sentence_transformers.models.{name}"} for name in ("Transformer", "Pooling", "Normalize")]
MINILM = {
    "config.json": BERT, "modules.json": STEPS, "sentence_bert_config.json": {"max_seq_length": 256},
    "1_Pooling/config.json": MEAN,
}  # fmt: skip
CROSS = BERT | {"architectures": ["BertForSequenceClassification"]}


def write_files(folder: Path, files: dict[str, Any]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    return folder


def parameters(folder: Path) -> dict[str, str]:
    config = encoder_config(folder, "any", "/models/any")
    return {name: entry.string_value for name, entry in config.parameters.items()}


def test_the_repository_has_what_is_rendered_for_all_minilm(tmp_path: Path, repository: Path) -> None:
    config = encoder_config(write_files(tmp_path, MINILM), EMBEDDING, f"${{{EMBEDDING_VARIABLE}}}")
    assert (repository / EMBEDDING / "config.pbtxt").read_text() == to_text(config, about_encoder(config))


def test_a_folder_becomes_a_model_beside_others(tmp_path: Path, repository: Path) -> None:
    folder = write_files(tmp_path / "my-reranker", {"config.json": CROSS | {"id2label": {"1": "yes", "0": "no"}}})
    encoder = write_files(tmp_path / "my-encoder", {"config.json": BERT})
    out = tmp_path / "out"
    for each, more in ((folder, ()), (encoder, ("--force",))):
        built = run("repo", "--model-dir", str(each), "-o", str(out), *more)
        assert (built.exit_code, built.stdout) == (0, f"{out}: {each.name}\n"), built.stderr
    models = read_repository(out)
    assert {*models} == {"my-encoder", "my-reranker"}
    config = models["my-reranker"].config
    assert [(tensor.name, [*tensor.dims]) for tensor in config.input] == [("pair", [2])]
    assert [(tensor.name, [*tensor.dims]) for tensor in config.output] == [("logits", [2]), ("token_count", [1])]
    assert {name: entry.string_value for name, entry in config.parameters.items()} == {
        "model_dir": str(folder), "tokenizer_dir": str(folder), "task": "rerank", "max_seq_len": "512",
        "labels": '["no", "yes"]',
    }  # fmt: skip
    assert check_repository(out) == []
    there = {path.name for path in (out / "my-encoder" / "1").iterdir()}
    assert there == {path.name for path in (repository / EMBEDDING / "1").glob("*.py")}
    compared = run("repo", "--model-dir", str(encoder), "--diff", str(out))
    assert (compared.exit_code, compared.stdout) == (1, "my-reranker: only there\n")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, {"pooling": "mean", "normalize": "true", "max_seq_len": "512"}),
        ({"modules.json": STEPS[:2]}, {"normalize": "false"}),
        ({"1_Pooling/config.json": {"pooling_mode_cls_token": True}}, {"pooling": "cls"}),
        ({"1_Pooling/config.json": {"pooling_mode": "max"}}, {"pooling": "max"}),
        ({"sentence_bert_config.json": {"max_seq_length": 1024}}, {"max_seq_len": "512"}),
        ({"sentence_bert_config.json": {"max_seq_length": None}}, {"max_seq_len": "512"}),
    ],
)
def test_what_the_files_say_is_in_the_parameters(
    tmp_path: Path, files: dict[str, Any], expected: dict[str, str]
) -> None:
    found = parameters(write_files(tmp_path, {"config.json": BERT, **files}))
    assert found.items() >= expected.items()


def test_a_cross_encoder_without_labels_has_as_many_scores_as_transformers_gives_it(tmp_path: Path) -> None:
    config = encoder_config(write_files(tmp_path, {"config.json": CROSS}), "any", "/models/any")
    assert [*config.output[0].dims] == [2]
    assert "labels" not in config.parameters


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "config.json: the architecture is None; --model-dir renders BertModel and BertForSequenceClassification."),
        ({"config.json": BERT | {"architectures": ["LlamaForCausalLM"]}}, "the architecture is LlamaForCausalLM"),
        ({"config.json": {"architectures": ["BertModel"]}}, "must have integers as sizes and as keys of id2label"),
        ({"config.json": []}, "config.json does not hold what belongs there."),
        ({"config.json": BERT, "modules.json": [*STEPS, {"type": "a.Dense"}]}, "the module Dense is not computed."),
        ({"config.json": BERT, "1_Pooling/config.json": {"pooling_mode_lasttoken": True}},
         "pooling by lasttoken is not computed."),
        ({"config.json": BERT, "1_Pooling/config.json": MEAN | {"pooling_mode_cls_token": True}},
         "pooling by cls, mean is not computed."),
    ],
)  # fmt: skip
def test_a_folder_that_is_not_computed_is_rejected_by_name(tmp_path: Path, files: dict[str, Any], said: str) -> None:
    with pytest.raises(RenderError) as caught:
        encoder_config(write_files(tmp_path, files), "any", "/models/any")
    assert said in str(caught.value)


def test_options_of_deployments_do_not_go_with_a_model_folder(tmp_path: Path) -> None:
    rejected = run("repo", "--model-dir", str(tmp_path), "-o", "out", "--set", "a:b")
    assert rejected.exit_code == 2
    assert "--model-dir goes without --set, --only and --slurm" in rejected.stderr
    missing = run("repo", "--model-dir", str(tmp_path), "-o", str(tmp_path / "out"))
    assert missing.exit_code == 1
    assert "the architecture is None" in missing.stderr
