"""``gateway repo`` as users run it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner, Result

from gateway_ops.cli.root import app

EXAMPLES = Path(__file__).parents[3] / "examples" / "deployments"


def run(*arguments: str) -> Result:
    """The command within this process: its start takes longer than its work."""
    return CliRunner().invoke(app, arguments)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copy(EXAMPLES / "llama3-8b-awq.yaml", tmp_path / "gateway.yaml")
    return tmp_path


def test_build_check_and_compare(folder: Path) -> None:
    built = run("repo", "-o", "out", "--set", "kv_cache_free_gpu_mem_fraction:0.7")
    assert (built.exit_code, built.stderr) == (0, "")
    assert built.stdout == "out: tensorrt_llm, preprocessing, postprocessing, ensemble, tensorrt_llm_bls\n"
    checked = run("check", "out")
    *said, summary = checked.stdout.splitlines()
    assert (checked.exit_code, summary) == (0, "No problems found.")
    assert all(" info: " in line and "does not exist on this machine" in line for line in said)  # engines elsewhere
    compared = run("repo", "--diff", "out")
    assert compared.exit_code == 1
    assert compared.stdout == "tensorrt_llm: parameter kv_cache_free_gpu_mem_fraction: 0.5 rendered, 0.7 there\n"
    same = run("repo", "--diff", "out", "--set", "kv_cache_free_gpu_mem_fraction:0.7")
    assert (same.exit_code, same.stdout) == (0, "No difference.\n")
    again = run("repo", "-o", "out")
    assert again.exit_code == 1
    assert "--force" in again.stderr


def test_a_contradiction_has_its_line_the_reason_and_the_fix(folder: Path) -> None:
    rejected = run("repo", "-o", "out", "--set", "limits.max_input_len:9000")
    assert rejected.exit_code == 1
    assert "gateway.yaml:29: deployments[0].limits.max_input_len: it is 9000, but max_seq_len" in rejected.stderr
    assert "Take at most 2559, or a larger max_seq_len." in rejected.stderr
    assert not (folder / "out").exists()
    text = (folder / "gateway.yaml").read_text().replace("max_input_len: 2048", "max_input_len: 9000")
    (folder / "gateway.yaml").write_text(text)
    checked = run("check", "--offline")
    assert checked.exit_code == 1
    assert "gateway.yaml:29: error: deployments[0].limits.max_input_len: it is 9000" in checked.stdout


def test_mistakes_are_named_with_their_lines(folder: Path) -> None:
    with (folder / "gateway.yaml").open("a") as file:
        file.write("    kv_cach: {}\n")
    wrong = run("repo", "-o", "out")
    assert wrong.exit_code == 1
    assert "deployments[0].kv_cach: unknown key. Did you mean 'kv_cache'?" in wrong.stderr
    assert len(wrong.stderr.splitlines()) == 1
    (folder / "gateway.yaml").write_text("models: []\n")
    assert "deployments: the section is empty." in run("repo", "-o", "out").stderr
    assert run("repo").exit_code == 2


def test_one_of_several(folder: Path) -> None:
    file = str(EXAMPLES / "two-models.yaml")
    built = run("repo", file, "-o", "out", "--only", "qwen2.5-7b")
    assert built.stdout.startswith("out: qwen_tensorrt_llm, ")
    assert "llama" not in built.stdout
    unknown = run("repo", file, "-o", "other", "--only", "qwen")
    assert "unknown deployment 'qwen'" in unknown.stderr


def test_a_target_alone_keeps_its_draft(folder: Path) -> None:
    build = ("repo", str(EXAMPLES / "draft-target.yaml"), "-o", "out", "--only")
    built = run(*build, "target")
    assert built.exit_code == 0
    assert "draft" not in built.stdout
    assert built.stderr == (
        "note: target calls tensorrt_llm_draft for its drafts, which is not in out, "
        "so they are not loaded: add --only draft.\n"
    )
    assert 'key: "tensorrt_llm_draft_model_name"' in (folder / "out" / "tensorrt_llm_bls" / "config.pbtxt").read_text()
    both = run(*build, "target", "--only", "draft", "--force")
    assert (both.exit_code, both.stderr) == (0, "")
    assert run("check", "out").stdout.splitlines()[-1] == "No problems found."
    assert run(*build, "target", "--force").stderr == ""  # the draft is there by now


def test_the_schema_is_printed(folder: Path) -> None:
    schema = run("check", "--schema").stdout
    assert '"deployments"' in schema
    assert "Share of the GPU memory that is free after loading" in schema
    validator = jsonschema.Draft202012Validator(json.loads(schema))
    deployment = {"name": "a", "engine": "reference", "model": {"source": "/m"}}
    model = {"name": "a", "triton": {"url": "triton:8001"}}
    for right in ({"deployments": [deployment]}, {"models": [model]}, {"models": [model], "deployments": [deployment]}):
        validator.validate(right)
    for wrong in ({}, {"deployments": [deployment | {"engin": 1}]}, {"deployments": [deployment | {"engine": "trt"}]}):
        assert not validator.is_valid(wrong)


def test_a_file_of_deployments_alone_is_checked(folder: Path) -> None:
    text = (folder / "gateway.yaml").read_text()
    (folder / "gateway.yaml").write_text(text[text.index("deployments:") :])
    checked = run("check", "--offline")
    assert checked.exit_code == 0
    said, summary = checked.stdout.splitlines()
    assert said.startswith("gateway.yaml: info: It has deployments but no models")
    assert summary == "No problems found."
    (folder / "gateway.yaml").write_text((folder / "gateway.yaml").read_text().replace("tensorrt\n", "tensort\n", 1))
    checked = run("check", "--offline")
    assert checked.exit_code == 1
    assert "deployments[0].engine: input should be 'tensorrt', 'llmapi'" in checked.stdout
    assert checked.stdout.splitlines()[-1] == "1 error"


@pytest.mark.parametrize("key", ["name", "prefix", "engine_model"])
@pytest.mark.parametrize("value", ["..", ".", "../x", "a/b", ".hidden", "-o"])
def test_no_name_leads_out_of_the_folder(folder: Path, key: str, value: str) -> None:
    (folder / "out").mkdir()
    (folder / "precious").write_text("kept")
    rejected = run("repo", "-o", "out", "--force", "--set", f"{key}:{value}")
    assert rejected.exit_code == 1
    assert f"deployments[0].{key}: must consist of letters, digits" in rejected.stderr
    assert len(rejected.stderr.splitlines()) == 1
    assert (folder / "precious").read_text() == "kept"
    assert list((folder / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("grpc://", "write grpc://host:port"),
        ("grpc://:8001", "write grpc://host:port"),
        ("grpc://triton", "write grpc://host:port"),
        ("grpc://triton:99999", "write grpc://host:port"),
        ("grpc://triton:8001/v2", "write grpc://host:port"),
        ("127.0.0.1:8001", "it is not a folder; for a running Triton write grpc://"),
        ("http://127.0.0.1:8000", "it is not a folder; for a running Triton write grpc://"),
        ("", "name a folder, or grpc://host:port"),
        ("nowhere", "nowhere cannot be read (No such file or directory)"),
        ("grpc://127.0.0.1:1", "127.0.0.1:1: Triton is unreachable."),
    ],
)
def test_what_cannot_be_compared_with_is_named_and_is_no_difference(folder: Path, other: str, said: str) -> None:
    compared = run("repo", "--diff", other)
    assert compared.exit_code == 2
    assert said in compared.stderr
