"""`gateway check URL`: what a running gateway serves with losses is found, in its own words."""

from __future__ import annotations

import dataclasses
import urllib.error
from pathlib import Path

import pytest

from gateway_ops.check.endpoint import describe_gateway
from gateway_ops.check.findings import Finding, Severity
from tests.app.harness import gateway
from tests.app.scripted import MODEL, TOKENS, write_tokenizer

LOSS = "a streamed answer is one event at the end: 'tensorrt_llm' is not decoupled"


async def test_losses_of_a_model_are_findings(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A warning where something cures it, as for a repository; in the log all of a model are one record."""
    features = dataclasses.replace(TOKENS, losses={LOSS: "Set it.", "log-probs are refused": ""})
    async with gateway(folder, served=True, features=features) as running:
        url = str(running.client.base_url)
        findings, _ = await describe_gateway(url, None)
        findings = [found for found in findings if "not compared" not in found.what]
        where = f"{url.rstrip('/')} {MODEL}"
        assert findings == [
            Finding(Severity.WARNING, where, f"{LOSS}.", "Set it."),
            Finding(Severity.INFO, where, "log-probs are refused."),
        ]
    said = [record.getMessage() for record in caplog.records if LOSS in record.getMessage()]
    assert said == [f"answers of model {MODEL} are incomplete: {LOSS} (Set it); log-probs are refused"]


async def test_a_template_that_fails_is_a_finding(tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path / "model", "{{ messages[0].rol.x }}")
    async with gateway(folder, served=True, features=TOKENS, max_seq_len=4096) as running:
        findings, _ = await describe_gateway(str(running.client.base_url), None)
    assert "Its chat template cannot render a user message." in [found.what for found in findings]


async def test_a_doubtful_family_is_a_finding(tmp_path: Path) -> None:
    folder = write_tokenizer(
        tmp_path / "model", "{{ tools }}{% for message in messages %}{{ message.content }}{% endfor %}"
    )
    async with gateway(folder, served=True, features=TOKENS, max_seq_len=4096) as running:
        url = str(running.client.base_url)
        findings, _ = await describe_gateway(url, None)
        said = (await running.client.get(f"/v1/models/{MODEL}")).json()["gateway"]
    uncompared, *findings = findings
    assert (uncompared.severity, "not compared" in uncompared.what) == (Severity.INFO, True)
    assert [(found.severity, found.where) for found in findings] == [(Severity.WARNING, f"{url.rstrip('/')} {MODEL}")]
    said_of_it = "but its chat template supports tools and its model family is unknown."
    assert findings[0].what == f"The model is treated as family plain, {said_of_it}"
    assert findings[0].fix.startswith("Set `family` if the model writes calls in a known format")
    assert (said["family"], said["family_reason"]) == ("plain", "no other family claims it")
    assert list(said["family_doubts"].values()) == [findings[0].fix]


@pytest.mark.parametrize(("key", "rejected"), [("key", 503), ("another", 401)])
async def test_what_it_refuses_is_read_and_closed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, key: str, rejected: int
) -> None:
    """Health answers 503 where a model is not ready; what is left open warns when it is freed."""
    closed = []
    close = urllib.error.HTTPError.close

    def closing(error: urllib.error.HTTPError) -> None:
        closed.append(error.code)
        close(error)

    monkeypatch.setattr(urllib.error.HTTPError, "close", closing)
    async with gateway(folder, served=True, engine_up=False, server={"api_keys": ["key"]}) as running:
        await describe_gateway(str(running.client.base_url), key)
    assert closed == [rejected]
