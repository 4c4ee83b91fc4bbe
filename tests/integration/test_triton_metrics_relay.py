"""The real Triton's metrics through the gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from gateway.telemetry.triton_metrics import TritonMetrics
from tests.stack import GatewayProcess


def test_triton_s_metrics_are_relayed(triton: Any, tiny_model_dir: Path, tmp_path: Path) -> None:
    with GatewayProcess.of_model(
        tmp_path / "log", "tiny", triton.grpc_url, tiny_model_dir, 512, GATEWAY_TRITON_METRICS_URL=triton.metrics_url
    ) as gateway:
        body = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
        assert httpx.post(f"{gateway.url}/v1/chat/completions", json=body, timeout=60).status_code == 200
        families = text_string_to_metric_families(httpx.get(f"{gateway.url}/metrics", timeout=10).text)
    samples = [sample for family in families for sample in family.samples]
    relayed = [sample for sample in samples if sample.labels.get("endpoint") == triton.grpc_url]
    assert {"gateway_triton_metrics_up", "nv_trt_llm_request_metrics"} <= {sample.name for sample in relayed}
    models = {sample.labels.get("model") for sample in relayed if sample.name.startswith("nv_inference_count")}
    assert {"ensemble", "tensorrt_llm"} <= models
    assert any(sample.name == "gateway_completion_tokens_total" for sample in samples)


async def test_the_real_engine_tells_how_many_requests_it_runs(triton: Any) -> None:
    relay = TritonMetrics(lambda: {triton.grpc_url: triton.metrics_url})
    page = (await relay.render()).decode()
    (most,) = [line for line in page.splitlines() if 'request_type="max"' in line and "nv_trt_llm_request" in line]
    slots = relay.engine_limit([triton.grpc_url], "ensemble")
    await relay.close()
    assert slots == float(most.rpartition(" ")[2]) > 0
