"""Triton's metrics relayed: families once, samples by endpoint, an absent Triton said to be absent."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.telemetry.triton_metrics import TritonMetrics

TEXT = """\
# HELP nv_inference_request_success Number of successful inference requests, all batch sizes
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="ensemble",version="1"} 7
nv_inference_request_success{model="tensorrt_llm",version="1"} 9
# HELP nv_energy_consumption GPU energy
# TYPE nv_energy_consumption counter
# HELP nv_cpu_utilization CPU utilization rate [0.0 - 1.0]
# TYPE nv_cpu_utilization gauge
nv_cpu_utilization 0.25
# HELP nv_latency A histogram
# TYPE nv_latency histogram
nv_latency_count{model="a"} 2
nv_latency_sum{model="a"} 5
nv_latency_bucket{model="a",le="100"} 1
nv_latency_bucket{model="a",le="+Inf"} 2
# HELP other Not Triton's
# TYPE other gauge
other 1
"""


@pytest.fixture
def triton() -> Iterator[str]:
    """Where an HTTP server gives these metrics."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(TEXT.encode())

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    thread.join()
    server.server_close()


async def test_samples_are_told_apart_by_endpoint(triton: str) -> None:
    relay = TritonMetrics(lambda: {"a:8001": triton, "b:8001": triton, "gone:8001": "http://127.0.0.1:1/metrics"})
    text = (await relay.render()).decode()
    families = list(text_string_to_metric_families(text))
    assert len(families) == len({family.name for family in families})
    found = {
        (sample.name.removesuffix("_total"), *sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }
    assert [found["gateway_triton_metrics_up", ("endpoint", name)] for name in ("a:8001", "b:8001", "gone:8001")] == [
        1, 1, 0,
    ]  # fmt: skip
    for name in ("a:8001", "b:8001"):
        labels = ("endpoint", name), ("model", "tensorrt_llm"), ("version", "1")
        assert found[("nv_inference_request_success", *labels)] == 9
        assert found["nv_cpu_utilization", ("endpoint", name)] == 0.25
        assert found["nv_latency_bucket", ("endpoint", name), ("le", "100"), ("model", "a")] == 1
    assert "other" not in text
    assert {family.name: family.type for family in families}["nv_latency"] == "histogram"


# What TensorRT-LLM's own backend and a GPU add, by the READMEs: no engine of this project makes these families.
ELSEWHERE = {
    'nv_trt_llm_runtime_memory_metrics{memory_type="gpu",model="tensorrt_llm",version="1"}': "1610236",
    'nv_trt_llm_inflight_batcher_metrics{inflight_batcher_specific_metric="paused_requests",model="tensorrt_llm"}': "0",
    'nv_trt_llm_v1_metrics{model="tensorrt_llm",v1_specific_metric="total_context_tokens",version="1"}': "5",
    'nv_trt_llm_disaggregated_serving_metrics{disaggregated_serving_type="request_count",model="tensorrt_llm"}': "2",
    'nv_gpu_utilization{gpu_uuid="GPU-1"}': "0.5",
    'nv_gpu_memory_used_bytes{gpu_uuid="GPU-1"}': "1000",
}
LENGTHS = ("nv_llm_input_token_len", "nv_llm_output_token_len")


def tensorrt_llm_s() -> str:
    lines = []
    for sample, value in ELSEWHERE.items():
        family = sample.partition("{")[0]
        lines += [f"# HELP {family} Of the engine", f"# TYPE {family} gauge", f"{sample} {value}"]
    for family in LENGTHS:
        lines += [f"# HELP {family} Tokens", f"# TYPE {family} histogram"]
        lines += [f'{family}_count{{model="tensorrt_llm"}} 3', f'{family}_sum{{model="tensorrt_llm"}} 30']
        lines += [f'{family}_bucket{{model="tensorrt_llm",le="+Inf"}} 3']
    return "\n".join(lines) + "\n"


async def test_families_that_only_tensorrt_llm_and_gpus_have_are_relayed_as_they_are(
    triton: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "TEXT", tensorrt_llm_s())
    lines = (await TritonMetrics(lambda: {"a:8001": triton}).render()).decode().splitlines()
    for sample, value in ELSEWHERE.items():
        relayed = sample.replace("{", '{endpoint="a:8001",', 1)
        assert f"{relayed} {value}" in lines
    for family in LENGTHS:
        assert f"# TYPE {family} histogram" in lines
        assert f'{family}_bucket{{endpoint="a:8001",model="tensorrt_llm",le="+Inf"}} 3' in lines
        assert f'{family}_sum{{endpoint="a:8001",model="tensorrt_llm"}} 30' in lines


async def test_without_endpoints_there_is_nothing() -> None:
    assert await TritonMetrics(dict).render() == b""
