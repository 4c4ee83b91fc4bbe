"""``/openapi.json``: that it is true. Besides, every answer in tests of the application is held against it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.app.harness import USER, Gateway, gateway
from tests.app.scripted import MODEL
from tests.rings import examples

KEYS = {"server": {"api_keys": ["key"]}}


async def document_of(running: Gateway) -> dict[str, Any]:
    document: dict[str, Any] = (await running.client.get("/openapi.json")).json()
    return document


def objects(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from objects(child)


async def test_no_name_is_private_and_every_reference_leads_somewhere(folder: Path) -> None:
    async with gateway(folder) as running:
        document = await document_of(running)
    schemas = document["components"]["schemas"]
    assert [name for name in schemas if not name.isalnum() or not name[0].isupper()] == []
    assert [each["title"] for each in objects(schemas) if isinstance(each.get("title"), str)] == []
    assert "Attributes:" not in json.dumps(document)
    used = {each["$ref"] for each in objects(document) if isinstance(each.get("$ref"), str)}
    assert used == {f"#/components/schemas/{name}" for name in schemas}
    identifiers = [each["operationId"] for each in objects(document["paths"]) if "operationId" in each]
    assert len(identifiers) == len(set(identifiers)) == sum(map(len, document["paths"].values()))


async def test_every_operation_tells_of_every_answer(folder: Path) -> None:
    async with gateway(folder, **KEYS) as running:
        document = await document_of(running)
        for path, operations in document["paths"].items():
            allowed = {method.upper() for method in operations}
            rejected = await running.client.request("PUT", path, headers={"Authorization": "Bearer key"})
            assert (rejected.status_code, set(rejected.headers["allow"].split(", "))) == (405, allowed), path
            for method, operation in operations.items():
                assert {"200", "400", "403", "408", "413", "431", "500", "503"} <= set(operation["responses"])
                assert ("401" in operation["responses"]) == ("security" in operation)
                for status, answer in operation["responses"].items():
                    assert ("content" in answer) == (method != "head")
                    assert "x-request-id" in answer["headers"]
                    retried = status in {"429", "503", "529"} and not path.startswith("/health")
                    assert ("Retry-After" in answer["headers"]) == retried
        generating = document["paths"]["/v1/chat/completions"]["post"]["responses"]
        assert set(generating) >= {"404", "415", "429", "503", "504"}
        assert "text/event-stream" in generating["200"]["content"]
        assert list(document["paths"]["/metrics"]["get"]["responses"]["200"]["content"]) == ["text/plain"]
        guarded = {
            path for path, operations in document["paths"].items() if "security" in next(iter(operations.values()))
        }
        for path in document["paths"]:
            answer = await running.client.request("OPTIONS", path)
            assert answer.status_code == (401 if path in guarded else 405), path


async def test_without_keys_nothing_asks_for_one(folder: Path) -> None:
    async with gateway(folder) as running:
        document = await document_of(running)
    assert "securitySchemes" not in document["components"]
    assert not any("security" in each or "401" in each for each in objects(document["paths"]))


async def test_null_is_accepted_where_the_document_says_so(folder: Path) -> None:
    paths = {
        "/v1/chat/completions": {"model": MODEL, "messages": USER},
        "/v1/completions": {"model": MODEL, "prompt": "Hi"},
        "/v1/responses": {"model": MODEL, "input": "Hi"},
        "/v1/responses/input_tokens": {"model": MODEL, "input": "Hi"},
        "/tokenize": {"prompt": "Hi"},
        "/detokenize": {"tokens": [1]},
    }
    async with gateway(folder) as running:
        document = await document_of(running)
        for path, body in paths.items():
            reference = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
            schema = document["components"]["schemas"][reference.rpartition("/")[2]]
            for name, field in schema["properties"].items():
                takes_anything = field.keys() <= {"default", "description"}
                nullable = takes_anything or {"type": "null"} in field.get("anyOf", ())
                assert nullable == (name not in schema.get("required", ())), name
                if name not in body:
                    answer = await running.client.post(path, json={**body, name: None})
                    assert answer.status_code == 200, (path, name, answer.text)


async def test_the_check_of_answers_finds_what_is_not_documented(folder: Path) -> None:
    async with gateway(folder) as running:
        answer = await running.chat()
        good = answer.json()
        document = running.client.document
        for bad in ({**good, "colour": 1}, {**good, "id": None}, {name: good[name] for name in good if name != "id"}):
            changed = httpx.Response(200, json=bad, request=answer.request)
            with pytest.raises(AssertionError):
                document.check(changed)
        event = f"data: {json.dumps({**good, 'object': 'chat.completion'})}\n\n"
        streamed = httpx.Response(200, text=event, request=answer.request)
        streamed.headers["content-type"] = "text/event-stream"
        with pytest.raises(AssertionError):
            document.check(streamed)
        with pytest.raises(AssertionError):
            document.check(httpx.Response(418, json=good, request=answer.request))


HOOKS = '''
import schemathesis


@schemathesis.hook
def before_call(context, case, kwargs):
    """Ask for the model that is served, where one is asked for."""
    if isinstance(case.body, dict) and isinstance(case.body.get("model"), str) and case.body["model"]:
        case.body["model"] = "scripted"
    if isinstance(case.query, dict) and case.query.get("model"):
        case.query["model"] = "scripted"
'''
# Positive data are refused for many a reason that no schema says: the engine's abilities, fields against each other.
CHECKS = ("-c", "all", "--exclude-checks", "positive_data_acceptance")
# No finding is what a busy machine makes slow, nor that hardly anything violates a schema: an item may have any type.
PATIENCE = ("--request-timeout", "120", "--suppress-health-check", "too_slow,filter_too_much")


def found(output: str) -> str:
    """What schemathesis says of failures and errors, from the first operation on; all where it says nothing of any."""
    part = re.search(r"^=+ (?:FAILURES|ERRORS) =+$(.*?)^=+ (?:WARNINGS|SUMMARY) =+$", output, re.DOTALL | re.MULTILINE)
    return "\n".join(line.strip("_ ") for line in part[1].strip().splitlines()) if part else output


@pytest.mark.parametrize(
    "amount",
    [
        pytest.param(("--phases", "fuzzing", "-n", "1"), id="short"),
        pytest.param(
            ("--phases", "coverage,fuzzing,stateful", "-n", str(examples(40))), id="long", marks=pytest.mark.long
        ),
    ],
)
@pytest.mark.skipif(sys.version_info < (3, 11), reason="schemathesis has no release for Python 3.10")
async def test_schemathesis_finds_nothing(folder: Path, tmp_path: Path, amount: tuple[str, ...]) -> None:
    (tmp_path / "ask_for_the_model.py").write_text(HOOKS)
    async with gateway(folder, served=True, **KEYS) as running:
        # Without the examples, which tests/clients ask: a change of theirs is judged by the branch of the schema that
        # it was made in, though another may allow it.
        document = await document_of(running)
        for each in objects(document["paths"]):
            each.pop("examples", None)
        (tmp_path / "openapi.json").write_text(json.dumps(document))
        command = [
            str(Path(sys.executable).with_name("schemathesis")), "run", str(tmp_path / "openapi.json"),
            "--url", str(running.client.base_url), "-H", "Authorization: Bearer key", *CHECKS, *PATIENCE, *amount,
            "--generation-deterministic", "--no-shrink",
        ]  # fmt: skip
        environment = {**os.environ, "SCHEMATHESIS_HOOKS": "ask_for_the_model", "PYTHONPATH": str(tmp_path)}
        pipe = asyncio.subprocess.PIPE
        search = await asyncio.create_subprocess_exec(
            *command, stdout=pipe, stderr=asyncio.subprocess.STDOUT, cwd=tmp_path, env=environment
        )
        output = (await search.communicate())[0].decode()
        assert search.returncode == 0, found(output)
        assert "Tested: 52" in output, output
        assert running.engine.requests
