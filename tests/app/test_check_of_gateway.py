"""`gateway check URL`: what a running gateway serves with losses is found, in its own words."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from gateway_ops.checking.endpoint import describe_gateway
from gateway_ops.checking.findings import Finding, Severity
from tests.app.harness import gateway
from tests.app.scripted import MODEL, TOKENS

LOSS = "a streamed answer comes as one event at its end: 'tensorrt_llm' is not decoupled"


async def test_losses_of_a_model_are_findings(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A warning where something cures it, as for a repository; in the log all of a model are one record."""
    features = dataclasses.replace(TOKENS, losses={LOSS: "Set it.", "log-probs are refused": ""})
    async with gateway(folder, served=True, features=features) as running:
        url = str(running.client.base_url)
        findings, _ = await describe_gateway(url, None)
        where = f"{url.rstrip('/')} {MODEL}"
        assert findings == [
            Finding(Severity.WARNING, where, f"{LOSS}.", "Set it."),
            Finding(Severity.INFO, where, "log-probs are refused."),
        ]
    said = [record.getMessage() for record in caplog.records if LOSS in record.getMessage()]
    assert said == [f"model {MODEL} loses something of its answers: {LOSS} (Set it); log-probs are refused"]
