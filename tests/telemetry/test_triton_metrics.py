"""Triton's metrics relayed: families once, samples by endpoint, an absent Triton said to be absent."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.telemetry.slim_page import EngineLoad
from gateway.telemetry.triton_metrics import TritonMetrics
from tests.certificates import Authority
from tests.handler_server import HandlerServer

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

    with HandlerServer(Handler) as server:
        yield f"{server.url}/metrics"


def of_three(url: str) -> TritonMetrics:
    """The relay of two endpoints and of one that is away."""
    return TritonMetrics(lambda: {"a:8001": url, "b:8001": url, "gone:8001": "http://127.0.0.1:1/metrics"})


async def test_samples_are_told_apart_by_endpoint(triton: str) -> None:
    relay = of_three(triton)
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


async def test_the_engines_own_families_are_kept_apart(triton: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "TEXT", TEXT.replace('"ensemble"', '"nv_trt_llm_mine"') + tensorrt_llm_s())
    relay = TritonMetrics(lambda: {"a:8001": triton, "gone:8001": "http://127.0.0.1:1/metrics"})
    page = (await relay.render()).decode()
    lines = relay.engines.families.splitlines()
    assert lines
    assert all(line.removeprefix("# HELP ").removeprefix("# TYPE ").startswith("nv_trt_llm_") for line in lines)
    assert [line for line in lines if line not in page.splitlines()] == []
    for sample in (each for each in ELSEWHERE if each.startswith("nv_trt_llm_")):
        family, _, labels = sample.partition("{")
        assert f"# TYPE {family} gauge" in lines
        assert sum(line.startswith(f'{family}{{endpoint="a:8001",{labels}') for line in lines) == 1


async def test_without_endpoints_there_is_nothing() -> None:
    assert await TritonMetrics(dict).render() == b""


class Clock:
    """Time as a test has it."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


async def settled(relay: TritonMetrics) -> bytes:
    """What it says once it has read."""
    await relay.close()
    return await relay.render()


async def test_a_triton_is_read_once_a_second_however_often_it_is_asked_for(
    triton: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, asked = Clock(), 0

    def endpoints() -> dict[str, str]:
        nonlocal asked
        asked += 1
        return {"a:8001": triton}

    relay = TritonMetrics(endpoints, clock=clock)
    pages = await asyncio.gather(*(relay.render() for _ in range(50)))
    assert (asked, len(set(pages)), b"nv_cpu_utilization" in pages[0]) == (1, 1, True)
    clock.now += 0.9
    await relay.render()
    assert asked == 1
    monkeypatch.setitem(globals(), "TEXT", TEXT.replace(" 0.25", " 0.75"))
    clock.now += 0.2
    assert b'nv_cpu_utilization{endpoint="a:8001"} 0.25' in await relay.render()  # at once, and it is read anew
    assert b'nv_cpu_utilization{endpoint="a:8001"} 0.75' in await settled(relay)
    assert asked == 2


async def test_who_asks_after_a_pause_gets_what_holds_now(triton: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    relay = TritonMetrics(lambda: {"a:8001": triton}, clock=clock)
    await relay.render()
    monkeypatch.setitem(globals(), "TEXT", TEXT.replace(" 0.25", " 0.75"))
    clock.now += 10
    assert b'nv_cpu_utilization{endpoint="a:8001"} 0.75' in await relay.render()


ENGINE = 'nv_trt_llm_request_metrics{{model="{}",request_type="{}",version="1"}} {}\n'
TWO = (
    ENGINE.format("tensorrt_llm", "max", 8)
    + ENGINE.format("tensorrt_llm", "active", 3)
    + ENGINE.format("other", "max", 4)
)
ONE = ENGINE.format("tensorrt_llm", "max", "64.000000")


@pytest.mark.parametrize(
    ("text", "endpoints", "model", "slots"),
    [
        (TWO, ["a:8001"], "tensorrt_llm", 8),
        (TWO, ["a:8001"], "ensemble", None),  # which of the two engines is behind it?
        (ONE, ["a:8001"], "ensemble", 64),
        (ONE, ["a:8001", "b:8001"], "ensemble", 128),
        (ONE, ["a:8001", "gone:8001"], "ensemble", 64),
        (ONE, [], "ensemble", None),
        (ENGINE.format("tensorrt_llm", "max", 0), ["a:8001"], "tensorrt_llm", None),
    ],
)
async def test_engines_tell_how_many_requests_they_run(
    triton: str, monkeypatch: pytest.MonkeyPatch, text: str, endpoints: list[str], model: str, slots: int | None
) -> None:
    monkeypatch.setitem(globals(), "TEXT", "# TYPE nv_trt_llm_request_metrics gauge\n" + text)
    relay = of_three(triton)
    assert relay.engine_limit(endpoints, model) is None  # nobody has been asked yet; now they are
    await relay.close()
    assert relay.engine_limit(endpoints, model) == slots


BLOCKS = 'nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="{}",model="tensorrt_llm",version="1"}} {}\n'


@pytest.mark.parametrize(
    ("text", "load"),
    [
        (ENGINE.format("tensorrt_llm", "waiting", 3) + ENGINE.format("other", "waiting", 1), EngineLoad(waiting=8)),
        (BLOCKS.format("used", 10) + BLOCKS.format("max", 40), EngineLoad(0, 20, 80)),
        (BLOCKS.format("max", 40), EngineLoad()),  # how much of it is used nobody says
        (BLOCKS.format("used", "NaN") + BLOCKS.format("max", 40), EngineLoad()),
        (BLOCKS.format("used", "+Inf") + BLOCKS.format("max", "forty"), EngineLoad()),
        ("", EngineLoad()),
    ],
)
async def test_the_load_of_all_engines_is_added_up(
    triton: str, monkeypatch: pytest.MonkeyPatch, text: str, load: EngineLoad
) -> None:
    monkeypatch.setitem(globals(), "TEXT", text)
    relay = of_three(triton)
    await relay.fresh()
    assert relay.engines.load == load


async def test_what_an_engine_runs_is_known_while_its_metrics_cannot_be_read(
    triton: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "TEXT", "# TYPE nv_trt_llm_request_metrics gauge\n" + ONE)
    urls = {"a:8001": triton}
    clock = Clock()
    relay = TritonMetrics(lambda: urls, clock=clock)
    await relay.render()
    for text, url in ((ONE, "http://127.0.0.1:1/metrics"), ("", triton)):
        monkeypatch.setitem(globals(), "TEXT", text)
        urls["a:8001"] = url
        clock.now += 10
        await relay.render()
        assert relay.engine_limit(["a:8001"], "tensorrt_llm") == 64
    urls.clear()
    clock.now += 10
    await relay.render()
    assert relay.engine_limit(["a:8001"], "tensorrt_llm") is None


async def test_a_proxy_with_tls_is_trusted_by_the_same_authority_as_triton(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("proxy")
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown.load_cert_chain(pair.certificate, pair.key)

    async def give(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + TEXT.encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(give, "127.0.0.1", 0, ssl=shown)
    async with server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/metrics"
        urls = {"a:8001": url, "b:8001": url}
        trust = {"a:8001": ssl.create_default_context(cafile=authority.path)}
        lines = (await TritonMetrics(lambda: urls, trust=lambda: trust).render()).decode().splitlines()
    assert 'gateway_triton_metrics_up{endpoint="a:8001"} 1' in lines
    assert 'gateway_triton_metrics_up{endpoint="b:8001"} 0' in lines
