"""`gateway check URL`: what a running gateway serves with losses is found, in its own words."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from gateway_ops.checking.endpoint import describe_gateway
from gateway_ops.checking.findings import Finding, Severity
from tests.app.harness import gateway
from tests.app.scripted import MODEL, TOKENS

LOSS = "a streamed answer comes as one event at its end: 'tensorrt_llm' is not decoupled"


async def test_losses_of_a_model_are_findings(folder: Path) -> None:
    async with gateway(folder, served=True, features=dataclasses.replace(TOKENS, losses=(LOSS,))) as running:
        url = str(running.client.base_url)
        findings, _ = await describe_gateway(url, None)
        assert findings == [Finding(Severity.WARNING, f"{url.rstrip('/')} {MODEL}", f"{LOSS}.")]
