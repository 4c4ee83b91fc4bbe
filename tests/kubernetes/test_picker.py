"""What llm-d's endpoint picker finds on ``/metrics`` with the configuration that the manifests give it."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from gateway.generation import EngineChunk
from gateway.generation.health import READY
from gateway.telemetry.metrics import Metrics, ModelSnapshot
from gateway.telemetry.slim_page import EngineLoad, Engines, ModelQueue, load_families, slim_page
from gateway_ops.local_stack.tritonserver import TritonServer
from tests.app.harness import Gateway, gateway
from tests.app.scripted import MODEL, ByteIds, write_tokenizer
from tests.doubles.llmapi.server import LlmapiServer
from tests.kubernetes.manifests import environment, gateways, picker_config, settings_text
from tests.kubernetes.picker import BUILT_IN, LABEL, SPECS, PageError, Picker, Read
from tests.ports import free_port
from tests.stack import GatewayProcess
from tests.waiting import until

ENGINE_FIELDS = {"name", "loraSpec", *SPECS}
# Of the plugins of llm-d/llm-d-router at commit ebab687 those that are used, by the slot that they are for.
PLUGINS = {
    "queue-scorer": "scorer", "kv-cache-utilization-scorer": "scorer", "prefix-cache-scorer": "scorer",
    "lora-affinity-scorer": "scorer", "metrics-data-source": "source", "core-metrics-extractor": "extractor",
}  # fmt: skip
PICKER = Picker(picker_config())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer folder in which every byte is a token."""
    return write_tokenizer(tmp_path_factory.mktemp("bytes"))


@contextmanager
def deployed(overlay: str, folder: Path, triton: dict[str, Any], model: dict[str, Any]) -> Iterator[GatewayProcess]:
    """A gateway with the settings of an overlay, but before another Triton and with another model."""
    settings = yaml.safe_load(settings_text(overlay))
    settings["models"][0] |= model
    settings["models"][0]["triton"] |= triton
    (folder / "gateway.yaml").write_text(yaml.safe_dump(settings))
    given = environment(gateways(overlay).containers()["gateway"])
    own = {"GATEWAY_CONFIG": str(folder / "gateway.yaml"), "GATEWAY_INTERNAL_PORT": str(free_port())}
    own |= {"GATEWAY_API_KEYS": "key", "GATEWAY_LAME_DUCK_S": "0"}
    with GatewayProcess(folder / "log", **given | own) as process:
        yield process


def scraped(process: GatewayProcess, overlay: str) -> Read:
    """What the picker knows after a scrape of the port that serves, without a key."""
    page = httpx.get(f"{process.url}/metrics", timeout=10).raise_for_status()
    return PICKER.read(page.text, gateways(overlay).labels)


def test_every_value_is_found_before_an_engine_with_tensorrt_llm_s_metrics(
    triton: TritonServer, tmp_path: Path, tiny_model_dir: Path
) -> None:
    model = {"tokenizer": str(tiny_model_dir), "max_seq_len": 512}
    urls = {"url": triton.grpc_url, "metrics_url": triton.metrics_url}
    body = {"model": "llm", "prompt": "Hi", "max_tokens": 400, "ignore_eos": True}
    with deployed("pool", tmp_path, urls, model) as process, ThreadPoolExecutor() as pool:
        idle = scraped(process, "pool")
        assert idle.errors == []
        assert set(idle.values) == set(SPECS)
        assert idle.values["queuedRequestsSpec"] == idle.values["runningRequestsSpec"] == 0
        assert idle.values["cacheBlockSizeSpec"] > 0
        assert idle.values["cacheNumBlocksSpec"] > 0
        post = functools.partial(
            httpx.post, f"{process.url}/v1/completions", json=body, headers={"x-api-key": "key"}, timeout=120
        )
        seen = [idle]
        ends = time.monotonic() + 60
        while _asked(seen[-1]) != 3:  # a busy machine may begin them one after another
            assert time.monotonic() < ends
            answers = [pool.submit(post) for _ in range(3)]
            while not all(answer.done() for answer in answers) and _asked(seen[-1]) != 3:
                seen.append(scraped(process, "pool"))
            assert [answer.result().status_code for answer in answers] == [200] * 3
    assert max(map(_asked, seen)) == 3
    assert all(0 <= read.values["kvUsageSpec"] <= 1 for read in seen)
    assert [read.errors for read in seen if read.errors] == []


def test_every_value_is_found_before_the_llm_api(llmapi_triton: LlmapiServer, tmp_path: Path) -> None:
    model = {"tokenizer": str(llmapi_triton.model_dir), "max_seq_len": 1024}
    server = llmapi_triton.triton
    urls = {"url": server.grpc_url, "metrics_url": server.metrics_url, "model": llmapi_triton.model("1.2")}
    with deployed("pool-llmapi", tmp_path, urls, model) as process:
        assert "nv_trt_llm" not in httpx.get(server.metrics_url).text
        read = scraped(process, "pool-llmapi")
    assert read.errors == []
    assert read.values == {"queuedRequestsSpec": 0, "runningRequestsSpec": 0}


def _asked(read: Read) -> float:
    return read.values["runningRequestsSpec"] + read.values["queuedRequestsSpec"]


async def test_what_waits_and_runs_under_the_llm_api_is_the_gateway_s_own_count(folder: Path) -> None:
    gate, ids = asyncio.Event(), ByteIds(folder).of("Hi")
    script: Any = lambda _: [gate, EngineChunk(ids=ids, final=True)]  # noqa: E731
    async with gateway(folder, script, admission={"max_running": 1, "max_wait_s": None}) as running:
        tasks = [asyncio.create_task(running.chat()) for _ in range(3)]
        await until(lambda: running.model.admission.totals().waiting == 2)
        for shown in (await page(running), slim_page({MODEL: READY}, {MODEL: running.model.queue()}, Engines())):
            read = PICKER.read(shown, gateways("pool-llmapi").labels)
            assert read.values == {"queuedRequestsSpec": 2, "runningRequestsSpec": 1}
            assert f'gateway_requests_in_flight{{model="{MODEL}"}} 3.0' in shown
            assert "nv_trt_llm" not in shown  # the engine's names are the engine's
        gate.set()
        assert {answer.status_code for answer in await asyncio.gather(*tasks)} == {200}
        after = PICKER.read(await page(running), gateways("pool-llmapi").labels)
    assert after.values == {"queuedRequestsSpec": 0, "runningRequestsSpec": 0}


async def page(running: Gateway) -> str:
    """All metrics."""
    return (await running.client.get("/metrics")).text


async def test_adapters_are_told_by_the_names_that_clients_ask_for(folder: Path) -> None:
    gate, ids = asyncio.Event(), ByteIds(folder).of("Hi")
    script: Any = lambda _: [gate, EngineChunk(ids=ids, final=True)]  # noqa: E731
    changes: dict[str, Any] = {"lora": {"task_id": 7}, "admission": {"max_running": 1, "max_wait_s": None}}
    async with gateway(folder, script, **changes) as running:
        read = PICKER.read(await page(running), gateways("pool").labels)
        assert (read.active, read.waiting, read.max_adapters) == (set(), set(), 1)
        tasks = [asyncio.create_task(running.chat()) for _ in range(2)]
        await until(lambda: running.model.admission.totals().waiting == 1)
        read = PICKER.read(await page(running), gateways("pool").labels)
        assert (read.active, read.waiting, read.max_adapters) == ({MODEL}, {MODEL}, 1)
        gate.set()
        await asyncio.gather(*tasks)


MODELS = {
    "base": ModelQueue(running=5, waiting=2),
    "french": ModelQueue(running=1, waiting=0, adapter=True),
    'pi"rate': ModelQueue(running=0, waiting=3, adapter=True),
    "latin": ModelQueue(adapter=True),
}


def test_several_models_and_tritons_are_one_member() -> None:
    engines = EngineLoad(1, 10, 40) + EngineLoad(1, 30, 40)
    for shown in (load_families(MODELS, engines), slim_page(dict.fromkeys(MODELS, READY), MODELS, Engines(engines))):
        read = PICKER.read(shown + BLOCKS, {LABEL: "triton-openai-gateway"})
        assert read.errors == []
        assert (read.values["queuedRequestsSpec"], read.values["runningRequestsSpec"]) == (7, 4)
        assert read.values["kvUsageSpec"] == 0.5
        assert (read.active, read.waiting, read.max_adapters) == ({"french"}, {'pi"rate'}, 3)


BLOCKS = """\
# TYPE nv_trt_llm_kv_cache_block_metrics gauge
nv_trt_llm_kv_cache_block_metrics{endpoint="t:8001",kv_cache_block_type="max",model="tensorrt_llm",version="1"} 40
nv_trt_llm_kv_cache_block_metrics{endpoint="t:8001",kv_cache_block_type="tokens_per",model="tensorrt_llm"} 64
"""


def test_no_generation_counts_twice() -> None:
    """The engine's figure may be older than what the gateway knows: of one that has ended nothing waits."""
    read = PICKER.read(load_families({"m": ModelQueue(running=2)}, EngineLoad(waiting=9)) + BLOCKS, {})
    assert (read.values["queuedRequestsSpec"], read.values["runningRequestsSpec"]) == (2, 0)
    assert read.errors == ["kvUsageSpec"]  # nobody told it: none is invented


def test_names_of_the_whole_page_are_each_said_once() -> None:
    """A second TYPE line of a family would make the picker drop the page."""
    metrics = Metrics()
    metrics.for_model("m")
    own = metrics.render({"m": READY}, {"m": ModelSnapshot()})[0].decode()
    assert PICKER.read(own + load_families(MODELS, EngineLoad(0, 1, 2)) + BLOCKS, {}).errors == []
    with pytest.raises(PageError):
        PICKER.read(own + load_families(MODELS, EngineLoad()) * 2, {})


def test_the_picker_s_own_rules() -> None:
    labels = {LABEL: "triton-tensorrt-llm"}
    family = "nv_trt_llm_request_metrics"
    waiting = f'{family}{{model="a",request_type="waiting",version="1"}} 3\n'
    assert PICKER.read(waiting, labels).values == {"queuedRequestsSpec": 0}  # without its TYPE
    typed = f"# TYPE {family} gauge\n{waiting}" + waiting.replace("} 3", "} 9")
    assert PICKER.read(typed, labels).values == {"queuedRequestsSpec": 3}  # the first of equal ones
    assert PICKER.read(typed + waiting.replace("} 3", "} 5 17"), labels).values == {"queuedRequestsSpec": 5}
    assert PICKER.read("", labels).errors == list(SPECS)
    assert PICKER.read(typed, {}).errors  # the default engine is ours
    assert set(BUILT_IN["triton-tensorrt-llm"]) == set(SPECS)


def test_the_configuration_names_what_the_picker_has() -> None:
    config = picker_config()
    assert (config["apiVersion"], config["kind"]) == ("llm-d.ai/v1alpha1", "EndpointPickerConfig")
    types = [plugin["type"] for plugin in config["plugins"]]
    assert set(types) == set(PLUGINS)
    assert len(types) == len(set(types))
    for profile in config["schedulingProfiles"]:
        assert {PLUGINS[plugin["pluginRef"]] for plugin in profile["plugins"]} == {"scorer"}
    (extractor,) = [plugin for plugin in config["plugins"] if plugin["type"] == "core-metrics-extractor"]
    engines = {engine["name"]: engine for engine in extractor["parameters"]["engineConfigs"]}
    assert all(set(engine) <= ENGINE_FIELDS for engine in engines.values())
    assert {gateways(overlay).labels[LABEL] for overlay in ("pool", "pool-llmapi", "multi-node")} == set(engines)
