"""The cost of Triton and our models for each response: CPU of tritonserver and stubs, with a free engine.

The environment variable BEFORE may name another model repository, which is then measured in the same interleaved runs:
``make bench MODE=triton BEFORE=/path/to/an/older/triton_repo``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import statistics
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
from tokenizers import Tokenizer
from tritonclient.grpc import service_pb2

from gateway_ops.local_stack.tritonserver import TritonServer
from tests.tiny_model import write_tiny_model

from .processes import BUILT, ROOT, BenchmarkError
from .relay import Tell
from .subjects import tokenizer_folder

# Streams at a time, tokens of each answer, answers of each stream.
LOADS = ((1, 200, 10), (8, 200, 2), (64, 100, 1))
PATHS = {
    "tokens": ("tensorrt_llm", ("output_ids", "sequence_length", "finish_reason")),
    "ensemble": ("ensemble", ("text_output", "output_ids", "sequence_length", "num_input_tokens", "finish_reason")),
}
SERVER = "tritonserver"
_METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
_TEXT = ROOT / "docs" / "contributing" / "wire-contract.md"  # prompts are parts of it, and so the answers
_PROMPT_TOKENS = 200
_DTYPES: dict[str, type[Any]] = {"INT32": np.int32, "BOOL": np.bool_}
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Prompt:
    """Token ids, and the text that they are made from."""

    ids: list[int]
    text: str


@dataclass(frozen=True)
class Run:
    """One load on one server: CPU microseconds for each response by process, and responses each second."""

    cpu_us: dict[str, float]
    responses_s: float


def measure(rounds: int, tell: Tell) -> dict[str, Any]:
    """Load the engine step with token ids and the ensemble with text, ``rounds`` times in turn.

    Raises:
        BenchmarkError: an answer was not whole.
    """
    repositories = {"now": ROOT / "triton_repo"}
    if before := os.environ.get("BEFORE"):
        repositories = {"before": Path(before).resolve(), **repositories}
    folder = _model_folder()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    prompts = _prompts(tokenizer)
    runs: dict[tuple[str, int, str], list[Run]] = {}
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(_start(name, path, folder)) for name, path in repositories.items()}
        for server in servers.values():
            server.wait_ready()
            for path in PATHS:
                asyncio.run(_load(server, path, prompts, (8, 50, 1)))
        for number in range(1, rounds + 1):
            begun = time.perf_counter()
            for path in PATHS:
                for load in LOADS:
                    for name, server in servers.items():
                        run = asyncio.run(_load(server, path, prompts, load))
                        runs.setdefault((path, load[0], name), []).append(run)
            tell(f"run {number} of {rounds}: {time.perf_counter() - begun:.0f} s")
    return {"rounds": rounds, "rows": [_row(*key, found) for key, found in runs.items()]}


def _model_folder() -> Path:
    """A tiny model, which loads at once, with a tokenizer of the usual size."""
    folder = BUILT / "free-model"
    source = tokenizer_folder() / "tokenizer.json"
    write_tiny_model(folder, vocab=Tokenizer.from_file(str(source)).get_vocab_size())
    shutil.copyfile(source, folder / "tokenizer.json")
    return folder


def _prompts(tokenizer: Tokenizer) -> list[Prompt]:
    ids = tokenizer.encode(_TEXT.read_text(encoding="utf-8")).ids
    parts = [ids[start : start + _PROMPT_TOKENS] for start in range(0, len(ids) - _PROMPT_TOKENS, _PROMPT_TOKENS)]
    return [Prompt(part, tokenizer.decode(part)) for part in parts]


def _start(name: str, repository: Path, folder: Path) -> TritonServer:
    logs = BUILT / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    return TritonServer(
        repository,
        model_dir=folder,
        engine="free",
        # The free engine of the same checkout: it imports modules of the repository.
        env={"ENGINE_PATH": str(repository.parent / "benchmarks" / "free_engine")},
        log_path=logs / f"triton-{name}.log",
    )


def _row(path: str, streams: int, name: str, found: list[Run]) -> dict[str, Any]:
    processes = found[0].cpu_us
    return {
        "path": path,
        "streams": streams,
        "repository": name,
        "cpu_us": {key: round(statistics.median(run.cpu_us[key] for run in found), 1) for key in processes},
        "cpu_us_sums": sorted(round(sum(run.cpu_us.values()), 1) for run in found),
        "responses_s": round(statistics.median(run.responses_s for run in found)),
    }


async def _load(server: TritonServer, path: str, prompts: list[Prompt], load: tuple[int, int, int]) -> Run:
    streams, tokens, answers = load
    processes = _processes(server)
    requests = [
        _request(path, prompts[index % len(prompts)], tokens).SerializeToString() for index in range(streams * answers)
    ]
    cpu = {name: _cpu_s(pid) for name, pid in processes.items()}
    begun = time.perf_counter()
    async with grpc.aio.insecure_channel(server.grpc_url) as channel:
        call: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(_METHOD)
        await asyncio.gather(*(_stream(call, requests[index::streams], tokens) for index in range(streams)))
    wall = time.perf_counter() - begun
    count = streams * tokens * answers
    spent = {name: (_cpu_s(pid) - cpu[name]) * 1e6 / count for name, pid in processes.items()}
    return Run(spent, count / wall)


async def _stream(infer: Any, requests: list[bytes], tokens: int) -> None:
    for request in requests:
        call = infer(request)
        count, message = 0, b""
        while (said := await call.read()) is not grpc.aio.EOF:
            count, message = count + 1, said
        if count != tokens:
            last = service_pb2.ModelStreamInferResponse.FromString(message)
            raise BenchmarkError(f"{count} responses, not {tokens}: {last.error_message}")


def _request(path: str, prompt: Prompt, tokens: int) -> service_pb2.ModelInferRequest:
    """Make a request like the gateway's."""
    model, outputs = PATHS[path]
    wire = service_pb2.ModelInferRequest(model_name=model, id=uuid.uuid4().hex)
    if path == "tokens":
        _put(wire, "input_ids", "INT32", prompt.ids)
        _put(wire, "input_lengths", "INT32", [len(prompt.ids)])
        _put(wire, "request_output_len", "INT32", [tokens])
        _put(wire, "streaming", "BOOL", [True])
    else:
        text = prompt.text.encode()
        wire.inputs.add(name="text_input", datatype="BYTES", shape=[1, 1])
        wire.raw_input_contents.append(len(text).to_bytes(4, "little") + text)
        _put(wire, "max_tokens", "INT32", [tokens])
        _put(wire, "stream", "BOOL", [True])
        _put(wire, "return_num_input_tokens", "BOOL", [True])
    _put(wire, "return_finish_reason", "BOOL", [True])
    _put(wire, "exclude_input_in_output", "BOOL", [True])
    for name in outputs:
        wire.outputs.add(name=name)
    return wire


def _put(wire: service_pb2.ModelInferRequest, name: str, dtype: str, values: list[Any]) -> None:
    wire.inputs.add(name=name, datatype=dtype, shape=[1, len(values)])
    wire.raw_input_contents.append(np.array(values, _DTYPES[dtype]).tobytes())


def _processes(server: TritonServer) -> dict[str, int]:
    """Process ids of tritonserver and, by model, of the stubs."""
    found = {SERVER: server.pid or 0}
    for task in Path(f"/proc/{server.pid}/task").glob("*/children"):
        for pid in map(int, task.read_text().split()):
            match = re.search(r"/(\w+)/\d+/model\.py\0", Path(f"/proc/{pid}/cmdline").read_text())
            if match:
                found[f"stub {match[1]}"] = pid
    return found


def _cpu_s(pid: int) -> float:
    """CPU seconds, user and system, so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
