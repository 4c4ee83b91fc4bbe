"""Adapters and prompt tables on a real Triton through the gateway; the examples."""

from __future__ import annotations

import ast
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import yaml
from kserve import steps
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

from gateway_ops.local_stack.tritonserver import TritonServer
from tests.stack import GatewayProcess
from tests.tiny_model import write_tiny_model
from tests.warm_gateways import WarmGateways

EXAMPLES = Path(__file__).parents[2] / "examples"
GATEWAY = Path(sys.executable).with_name("gateway")


@pytest.fixture(scope="module")
def adapters(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's settings beside two adapters."""
    folder = tmp_path_factory.mktemp("lora")
    make = EXAMPLES / "lora" / "make_adapter.py"
    for seed, name in enumerate(("french", "german"), 1):
        subprocess.run([sys.executable, make, tiny_model_dir, folder / "adapters" / name, f"--seed={seed}"], check=True)
    return folder


@pytest.fixture(scope="module")
def triton(repository: Path, tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """Its configurations name the model's folder; its engine holds one of the example's adapters at a time."""
    folder = tmp_path_factory.mktemp("additions")
    deployment = {"name": "target", "engine": "reference", "model": {"source": str(tiny_model_dir)}}
    (folder / "deployment.yaml").write_text(yaml.safe_dump({"deployments": [deployment]}))
    build = ["repo", "deployment.yaml", "-o", "repository", "--repository", repository]
    WarmGateways.of_this_process().run(build, os.environ, folder=folder).check_returncode()
    env = {"ENGINE_LORA_CACHE_BYTES": "40000"}
    with TritonServer(
        folder / "repository", model_dir=None, engine=None, env=env, log_path=folder / "triton.log"
    ) as server:
        server.wait_ready()
        yield server


def serve(folder: Path, example: str, triton: TritonServer, model_dir: Path) -> GatewayProcess:
    """The gateway with an example's settings, on this Triton."""
    text = (EXAMPLES / example / "gateway.yaml").read_text()
    text = text.replace("127.0.0.1:PORT", triton.grpc_url).replace("MODEL_DIR", str(model_dir))
    settings = yaml.safe_load(text)
    by_text = [{**model, "name": f"{model['name']}-by-text", "path": "ensemble"} for model in settings["models"]]
    settings["models"] += by_text if example == "lora" else []
    return GatewayProcess(folder / "log", settings)


@pytest.fixture(scope="module")
def adapted(adapters: Path, triton: TritonServer, tiny_model_dir: Path) -> Iterator[GatewayProcess]:
    with serve(adapters, "lora", triton, tiny_model_dir) as process:
        yield process


@pytest.fixture(scope="module")
def merged(adapters: Path, tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """For each model of the LoRA example a folder whose weights are W + B @ A * alpha / r."""
    folders = {"base": tiny_model_dir}
    for name in ("french", "german"):
        adapter = load_file(adapters / "adapters" / name / "adapter_model.safetensors")
        weights = load_file(tiny_model_dir / "model.safetensors")
        for key in [key for key in adapter if "lora_A" in key]:
            target = key.removeprefix("base_model.model.").replace("lora_A.weight", "weight")
            weights[target] = weights[target] + adapter[key.replace("lora_A", "lora_B")] @ adapter[key] * np.float32(2)
        folders[name] = tmp_path_factory.mktemp(name)
        write_tiny_model(folders[name])
        save_file(weights, folders[name] / "model.safetensors", metadata={"format": "pt"})
    return folders


def expected(folder: Path, prompt: list[int], count: int) -> list[int]:
    """Greedy tokens of a model folder, by the engine in this process."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "triton_repo" / "tensorrt_llm" / "1"))
    from cpu_double.llama import Llama  # noqa: PLC0415
    from cpu_double.reference_engine import Limits, ReferenceEngine  # noqa: PLC0415 - its path is only known here
    from wire.request import Request  # noqa: PLC0415

    engine = ReferenceEngine(Llama(folder), Limits(2048))
    engine.submit(Request("", prompt, count))
    responses: list[Any] = []
    while engine.busy:
        responses += engine.step()
    return list(responses[-1].ids)


def complete(gateway: GatewayProcess, model: str, prompt: list[int], **more: Any) -> httpx.Response:
    body = {"model": model, "prompt": prompt, "max_tokens": 10, "temperature": 0, "ignore_eos": True}
    return httpx.post(f"{gateway.url}/v1/completions", json=body | {"return_token_ids": True} | more, timeout=30)


def test_adapters_by_model_name_survive_eviction(adapted: GatewayProcess, merged: dict[str, Path]) -> None:
    prompt = list(b"What is it?")
    answers = {name: expected(folder, prompt, 10) for name, folder in merged.items()}
    assert len({tuple(ids) for ids in answers.values()}) == 3
    for name in ("base", "french", "german", "french", "french", "base", "german"):
        choice = complete(adapted, name, prompt).json()["choices"][0]
        assert choice["token_ids"] == answers[name], name


def test_adapters_travel_through_the_ensemble_too(adapted: GatewayProcess) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0, "max_tokens": 8}
    for name in ("german", "french", "base", "german"):
        answers = [adapted.post(body | {"model": model}).json() for model in (name, f"{name}-by-text")]
        assert answers[0]["choices"][0]["message"] == answers[1]["choices"][0]["message"]


def test_a_stream_whose_adapter_has_left_is_whole(adapted: GatewayProcess) -> None:
    body = {"model": "french", "messages": [{"role": "user", "content": "hi"}], "temperature": 0, "max_tokens": 8}
    whole = adapted.post(body).json()["choices"][0]["message"]["content"]
    adapted.post(body | {"model": "german"})
    with httpx.stream("POST", f"{adapted.url}/v1/chat/completions", json=body | {"stream": True}, timeout=30) as stream:
        events = [line[6:] for line in stream.iter_lines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    pieces = [choice["delta"].get("content") or "" for e in events[:-1] for choice in httpx_json(e)["choices"]]
    assert "".join(pieces) == whole


def httpx_json(text: str) -> Any:
    return httpx.Response(200, text=text).json()


@pytest.mark.long
def test_the_lora_example(adapted: GatewayProcess) -> None:
    lines = run_example("lora/ask.py", f"{adapted.url}/v1")
    answers: dict[str, set[str]] = {}
    for line in lines:
        name, _, text = line.partition(": ")
        answers.setdefault(name, set()).add(text)
    assert [len(texts) for texts in answers.values()] == [1, 1, 1]
    assert len(set.union(*answers.values())) == 3


@pytest.mark.long
def test_the_embedding_bias_example(adapted: GatewayProcess) -> None:
    lines = run_example("embedding-bias/ask.py", f"{adapted.url}/v1", "base")
    answers = {name: ast.literal_eval(ids.strip()) for name, _, ids in (line.partition(":") for line in lines)}
    first = answers["plain"][0]
    assert first not in answers["forbidden"]
    assert answers["forced"] == [first] * 8


@pytest.mark.long
def test_the_early_stop_example(adapted: GatewayProcess, triton: TritonServer) -> None:
    before = steps(triton)
    (line,) = run_example("early-stop/ask.py", f"{adapted.url}/v1", "base", "--until=never", "--pieces=3")
    assert line.startswith("left after 3 pieces: ")
    # One more request after it: its own 10 steps, and few of the 1,000 that the other one asked for.
    assert complete(adapted, "base", [5]).status_code == 200
    assert 10 <= steps(triton) - before < 800


def run_example(script: str, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, EXAMPLES / script, *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def settings_with(folder: Path, triton: TritonServer, adapter: Path) -> Path:
    """Settings with a model as it is, and one with an adapter."""
    triton_of = {"triton": {"url": triton.grpc_url}}
    odd = {"name": "odd", **triton_of, "lora": {"task_id": 77, "folder": str(adapter)}}
    file = folder / "gateway.yaml"
    file.write_text(yaml.safe_dump({"models": [{"name": "base", **triton_of}, odd]}))
    return file


@pytest.mark.parametrize("half", [False, True])
def test_an_adapter_that_cannot_be_served_is_a_start_error(
    adapters: Path, triton: TritonServer, tmp_path: Path, half: bool
) -> None:
    if half:  # of a model that is half as wide
        adapter, named = tmp_path / "half", "its q_proj of layer 0 has the shape 32 -> 32"
        write_adapter(adapters, adapter, lambda key, value: value[:, ::2] if "lora_A" in key else value[::2])
    else:
        adapter, named = tmp_path / "nowhere", "nowhere"
    file = settings_with(tmp_path, triton, adapter)
    env = {"GATEWAY_CONFIG": str(file), "PATH": str(GATEWAY.parent), "GATEWAY_PORT": "0"}
    env["XDG_STATE_HOME"] = str(tmp_path)
    for command in (["serve"], ["check", file]):
        done = WarmGateways.of_this_process().run(command, env)
        assert done.returncode != 0
        said = " ".join((done.stdout + done.stderr).split())
        assert "lora.folder" in said or "gateway.yaml:6" in said
        assert named in said


def write_adapter(
    adapters: Path, target: Path, change: Callable[[str, Any], Any], modules: tuple[str, ...] = ("_proj",)
) -> None:
    """Write one of the adapters with other tensors, or with some modules only."""
    source = adapters / "adapters" / "french"
    weights = load_file(source / "adapter_model.safetensors")
    target.mkdir(parents=True)
    kept = {key: value for key, value in weights.items() if any(module in key for module in modules)}
    changed = {key: np.ascontiguousarray(change(key, value)) for key, value in kept.items()}
    save_file(changed, target / "adapter_model.safetensors")
    (target / "adapter_config.json").write_text((source / "adapter_config.json").read_text())


def test_an_adapter_that_the_engine_refuses_is_named_and_the_others_go_on(
    adapters: Path, triton: TritonServer, tmp_path: Path
) -> None:
    # Of rank 68, which only the engine knows to be too large.
    def wider(key: str, value: Any) -> Any:
        return np.repeat(value, 17, axis=0 if "lora_A" in key else 1)

    write_adapter(adapters, tmp_path / "wide", wider, modules=("layers.0.self_attn.q_proj",))
    file = settings_with(tmp_path, triton, tmp_path / "wide")
    with GatewayProcess(tmp_path / "log", GATEWAY_CONFIG=str(file)) as process:
        for more in ({}, {"stream": True}):
            answer = complete(process, "odd", [5], **more)
            assert answer.status_code == 500  # the operator's mistake, not the client's
            error = answer.json()["error"]
            assert error["code"] == "adapter_unusable"
            assert "LoRA adapter of model 'odd' (task 77)" in error["message"]
            assert "low_rank" not in answer.text
        assert complete(process, "base", [5]).status_code == 200
        assert "Invalid low_rank (68)" in (tmp_path / "log").read_text()


@pytest.fixture(scope="module")
def tuned(
    tiny_model_dir: Path, triton: TritonServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("tuned")
    make_table = runpy.run_path(str(EXAMPLES / "p-tuning" / "make_table.py"))["make_table"]
    make_table(tiny_model_dir, folder / "table.npy", "Arr, matey! ")
    with serve(folder, "p-tuning", triton, tiny_model_dir) as process:
        yield process


def test_a_table_of_a_text_acts_like_the_text(tuned: GatewayProcess, tokenizer: Tokenizer) -> None:
    text, prompt = tokenizer.encode("Arr, matey! ").ids, tokenizer.encode("Where is it?").ids
    with_table = complete(tuned, "tuned", prompt, prompt_table="pirate").json()
    spelled_out = complete(tuned, "tuned", text + prompt).json()
    assert with_table["choices"][0]["token_ids"] == spelled_out["choices"][0]["token_ids"]
    assert with_table["choices"][0]["token_ids"] != complete(tuned, "tuned", prompt).json()["choices"][0]["token_ids"]
    assert with_table["usage"]["prompt_tokens"] == len(prompt)


def test_an_unknown_table_is_refused_by_name(tuned: GatewayProcess) -> None:
    answer = complete(tuned, "tuned", [5], prompt_table="parrot")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "prompt_table"
    assert "pirate" in answer.json()["error"]["message"]


@pytest.mark.long
def test_the_p_tuning_example(tuned: GatewayProcess) -> None:
    with_table, without = run_example("p-tuning/ask.py", f"{tuned.url}/v1")
    assert with_table.startswith("pirate: ")
    assert without.startswith("None: ")
    assert with_table.partition(": ")[2] != without.partition(": ")[2]
