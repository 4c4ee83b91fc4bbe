"""``gateway check HOST:PORT --task``: an encoder is proven, and the settings that it prints serve it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from gateway.settings import ModelSettings, Settings
from gateway_ops.check.encoder import prove_encoder, roles
from gateway_ops.check.findings import Finding, Severity
from gateway_ops.check.report import check
from gateway_ops.cli.root import app
from tests.doubles.encoders import encoder_server
from tests.doubles.encoders.encoder_server import ROWS, EncoderServer
from tests.encoders.conftest import serving
from tests.ports import free_port


async def _proven(encoders: EncoderServer, name: str, **more: Any) -> list[Finding]:
    settings = ModelSettings.model_validate(encoders.model(name, **more))
    proof = await prove_encoder(settings, encoders.url(name))
    return list(proof.findings)


def _grave(findings: list[Finding]) -> list[str]:
    return [each.what for each in findings if each.severity is not Severity.INFO]


async def test_the_printed_settings_serve_the_model(encoders: EncoderServer, encoder_folder: Path) -> None:
    found = await check(
        encoders.url("minilm"), model="minilm", api_key=None, offline=False, task="embed", tokenizer=encoder_folder
    )
    assert found.errors == 0
    told = yaml.safe_load("\n".join(found.models["minilm"].settings))
    assert told["models"][0]["encoder"] == {"tensors": {"text": "text"}, "output": "embedding", "batch": 8}
    assert len(found.models["minilm"].settings) <= 10
    Settings.model_validate(told)
    async with serving(*told["models"]) as gateway:
        assert (await gateway.embed("minilm", "a")).status_code == 200


@pytest.mark.parametrize("name", ["nim", "flat", "several"])
async def test_other_forms_are_proven(encoders: EncoderServer, name: str) -> None:
    findings = await _proven(encoders, name)
    assert not [each for each in findings if each.severity is Severity.ERROR], findings
    assert any("numbers and the length" in each.what for each in findings)


async def test_scores_are_proven(encoders: EncoderServer) -> None:
    for name, told in (("jina_reranker", "It returns 1 score of an input."), ("classes", "It returns 3 scores")):
        findings = await _proven(encoders, name)
        assert not [each for each in findings if each.severity is Severity.ERROR], findings
        assert any(each.what.startswith(told) for each in findings)


async def test_scores_that_are_no_probabilities_are_found(encoders: EncoderServer) -> None:
    [found] = [each for each in _grave(await _proven(encoders, "cross")) if each.startswith("Scores of pairs are -")]
    assert found.endswith(", not within 0 to 1.")
    assert not any("Scores" in each for each in _grave(await _proven(encoders, "jina_reranker")))


async def test_labels_of_other_classes_are_an_error(encoders: EncoderServer, caplog: pytest.LogCaptureFixture) -> None:
    assert len(_grave(await _proven(encoders, "classes", encoder={"labels": ["bad", "good"]}))) == 1
    assert "encoder.labels: there are 2 labels, but the Triton model 'classes' returns 3 scores; name" in caplog.text


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("minilm", "embed"),
        ("nim", "embed"),
        ("cross", "rerank"),
        ("bert_cross", "rerank"),
        ("classes", "classify"),
    ],
)
async def test_the_task_is_found(encoders: EncoderServer, encoder_folder: Path, name: str, task: str) -> None:
    found = await check(encoders.url(name), model=name, api_key=None, offline=False, tokenizer=encoder_folder)
    assert (found.errors, found.models[name].task) == (0, task), found.findings
    assert f"  task: {task}" in found.models[name].settings


async def test_a_task_that_nothing_tells_is_asked_for(encoders: EncoderServer) -> None:
    for name, words in (("litellm", "--task embed, rerank or classify"), ("vllm", "--task embed")):
        found = await check(encoders.url(name), model=name, api_key=None, offline=False)
        assert [words in each.fix for each in found.findings if each.severity is Severity.ERROR] == [True]


async def test_the_largest_batch_is_proven(encoders: EncoderServer) -> None:
    await _proven(encoders, "nim")
    rows = {each["inputs"]["text"][0][0] for each in encoders.requests("nim")}
    assert rows == {1, 2, 8}, "one at a time, two answers, and the largest batch with one text left"
    told = {**ROWS["nim"].settings, "batch": 9}
    [error] = [each for each in await _proven(encoders, "nim", encoder=told) if each.severity is Severity.ERROR]
    assert error.what.startswith("A request of 10 texts, in batches of at most 9, fails: ")
    assert "encoder.batch" in error.fix


async def test_input_types_without_effect_are_found(encoders: EncoderServer) -> None:
    words = "The input types query, passage give the same result."
    for more, found in (({"parameters": {"kind": "q"}}, True), ({"prefix": "query: "}, False)):
        told = {"tensors": {"text": "text"}, "input_types": {"query": more, "passage": {}}}
        assert (words in _grave(await _proven(encoders, "nim", encoder=told))) is found
    assert words in _grave(await _proven(encoders, "nim")), "it takes the field, and does nothing with it"


@pytest.mark.parametrize(
    ("types", "answers"),
    [(("query", "passage"), "passage"), (("search_document", "search_query"), "search_document"), (("query",), None)],
)
async def test_a_question_is_a_query_and_its_answers_are_passages(
    encoders: EncoderServer, types: tuple[str, ...], answers: str | None
) -> None:
    told = {"tensors": {"text": "text"}, "input_types": {name: {"parameters": {"kind": name}} for name in types}}
    await _proven(encoders, "nim", encoder=told)
    asked = [(each["inputs"]["text"][1], each["parameters"].get("kind")) for each in encoders.requests("nim")]
    texts = {kind: [text for rows, sent in asked for (text,) in rows if sent == kind] for _, kind in asked}
    query = next(name for name in types if "query" in name)
    assert {*texts} == {query, answers, None}
    assert {text[:6] for text in texts[query]} == {"How do"}
    pairs = [{text[:6] for (text,) in rows} for rows, kind in asked if kind == answers]
    assert {"To cho", "Stir t"} in pairs


async def test_a_model_that_takes_input_types_by_its_own_configuration_gets_them(
    encoder_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command without a file has no settings of input types."""
    hint = 'parameters { key: "request_fields" value: { string_value: "input_type" } }'
    row = replace(ROWS["nim"], inputs="text STRING 1", settings={}, more=hint)
    monkeypatch.setattr(encoder_server, "ROWS", {"hinted": row})
    with EncoderServer(tmp_path, encoder_folder, scripted=["hinted"]) as server:
        server.forget()
        found = await check(server.url("hinted"), model="hinted", api_key=None, offline=False, task="embed")
        sent = {each["parameters"].get("input_type") for each in server.requests("hinted")}
    assert (found.errors, sent) == (0, {None, "query", "passage"}), found.findings


async def test_silent_cutting_is_found(encoders: EncoderServer) -> None:
    """The model with request parameters cuts after eight words where it is told to."""
    words = "The model cuts texts of 64 words without a word about it."
    told = {"request_fields": [], "parameters": {"truncate": "END"}, "tensors": {"text": "text"}}
    assert words in _grave(await _proven(encoders, "nim", encoder=told))
    assert words not in _grave(await _proven(encoders, "nim"))


async def test_noise_neither_hides_a_cut_nor_is_one(encoders: EncoderServer) -> None:
    """Vectors of float32 that differ by a millionth each time."""
    words = "The model cuts texts of 64 words without a word about it."
    noise = {"parameters": {"noise": 1e-6}, "tensors": {"text": "text"}}
    told = {**noise, "parameters": {"truncate": "END", "noise": 1e-6}}
    assert words in _grave(await _proven(encoders, "nim", encoder=told))
    assert _grave(await _proven(encoders, "nim", encoder=noise)) == []


async def test_the_end_of_a_long_text_is_a_faint_part_of_its_vector(encoders: EncoderServer) -> None:
    assert _grave(await _proven(encoders, "deploy", encoder={"pooling": "mean"})) == []


async def test_a_tensor_that_is_not_read_is_found(encoders: EncoderServer) -> None:
    told = {"tensors": {"text": "modality"}, "inputs": {"text": "always the same"}}
    errors = _grave(await _proven(encoders, "nim", encoder=told))
    assert "Different texts give the same result, so the model does not read the text that it is sent." in errors


async def test_a_family_without_prefixes_is_found(
    encoders: EncoderServer, encoder_folder: Path, tmp_path: Path
) -> None:
    folder = encoder_server.write_tokenizer(tmp_path / "multilingual-e5-small")
    settings = ModelSettings.model_validate(encoders.model("bge_py") | {"tokenizer": str(folder)})
    proof = await prove_encoder(settings, encoders.url("bge_py"))
    assert "Models of the family e5 expect a prefix before each text." in _grave(list(proof.findings))
    types = {"query": {"prefix": "query: "}}
    assert not any(
        "prefix" in what
        for what in _grave(
            await _proven(
                encoders,
                "several",
                encoder={
                    **ROWS["several"].settings,
                    "input_types": types,
                    "default_input_type": "query",
                },
            )
        )
    )


async def test_a_model_that_needs_a_tokenizer_is_an_error(encoders: EncoderServer) -> None:
    found = await check(encoders.url("gemma"), model="gemma", api_key=None, offline=False, task="embed")
    assert ["takes token ids" in each.what for each in found.findings if each.severity is Severity.ERROR] == [True]


def test_the_command_prints_them(encoders: EncoderServer) -> None:
    address = encoders.url("nim")
    done = CliRunner().invoke(app, ["check", address, "--model", "nim", "--task", "embed"])
    assert done.exit_code == 0, done.output
    printed = done.output[done.output.index("models:\n") : done.output.index("How each")]
    assert yaml.safe_load(printed)["models"][0]["encoder"]["count"] == "token_count"
    assert "ready for traffic: yes" in done.output
    wrong = CliRunner().invoke(app, ["check", address, "--model", "nim", "--task", "sing"])
    assert "it is one of generate, embed" in wrong.output


async def test_models_of_a_file_are_proven(encoders: EncoderServer, tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    fleet = {"endpoints": [f"127.0.0.1:{free_port()}", encoders.url("nim")], "model": "nim"}
    models = [encoders.model("nim"), encoders.model("cross"), encoders.model("nim") | {"name": "two", "triton": fleet}]
    file.write_text(yaml.safe_dump({"models": models}))
    found = await check(str(file), model="", api_key=None, offline=False)
    assert found.errors == 0, found.findings
    assert len([each for each in found.findings if "numbers and the length" in each.what]) == 2
    assert found.models["nim"].task == "embed"


@pytest.mark.parametrize(
    ("types", "pairs"),
    [
        ((), [(None, None)]),
        (("q", "p"), [("q", "p")]),
        (("query_sts", "query", "passage"), [("query", "passage"), ("query_sts", "query_sts")]),
        (("search_query", "search_document", "clustering"), [
            ("search_query", "search_document"), ("clustering", "clustering"),
        ]),
        (("retrieval", "matching"), [("retrieval", "retrieval"), ("matching", "matching")]),
    ],
)  # fmt: skip
def test_roles_of_input_types(types: tuple[str, ...], pairs: list[tuple[str | None, str | None]]) -> None:
    assert roles(types) == pairs
