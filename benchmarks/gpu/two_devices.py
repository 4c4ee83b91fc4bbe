"""`gateway launch` with two instances of the engine ``transformers``, each on its own GPU: needs two GPUs and torch.

python benchmarks/gpu/two_devices.py [MODEL_FOLDER]

It prints what each GPU holds, sends requests to both, kills the process of one instance, ends the launch by SIGTERM;
without a model it writes a tiny one with random weights. The stub's Python must see torch, transformers and NumPy < 2.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import Request, urlopen

import yaml

from tests.tiny_model import write_tiny_model

GATEWAY = Path(sys.executable).with_name("gateway")
HTTP, GRPC, METRICS = 18000, 18001, 18002
REQUESTS, TOKENS = 16, 64


def settings(model: Path) -> str:
    """One deployment, two instances, a GPU for each."""
    deployment: dict[str, object] = {"name": "pair", "engine": "transformers", "model": {"source": str(model)}}
    deployment["triton"] = {"max_batch_size": 8, "gpu_ids": [[0], [1]]}
    deployment["kv_cache"] = {"free_gpu_mem_fraction": 0.2}
    return yaml.safe_dump({"deployments": [deployment]})


def gpu_processes() -> str:
    """Processes on GPUs, as nvidia-smi lists them: GPU, process, memory."""
    query = ["nvidia-smi", "--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip() or "none"


def generate(number: int) -> int:
    """Send one request; the length of its text."""
    body = json.dumps({"text_input": f"request {number}: hello there", "max_tokens": TOKENS}).encode()
    with urlopen(Request(f"http://127.0.0.1:{HTTP}/v2/models/ensemble/generate", body), timeout=120) as answer:
        return len(json.load(answer)["text_output"])


def stubs(repository: Path) -> list[int]:
    """The processes of the engine's instances."""
    found = subprocess.run(
        ["pgrep", "-f", f"{repository}/tensorrt_llm/1/model.py"], capture_output=True, text=True, check=False
    )
    return [int(pid) for pid in found.stdout.split()]


def wait_for(launch: subprocess.Popen[str], words: str) -> None:
    """Read the lines of the launch until one has these words."""
    began = time.monotonic()
    assert launch.stderr is not None
    for line in launch.stderr:
        print("  " + line.rstrip()[:300], flush=True)
        if words in line:
            print(f"  ({time.monotonic() - began:.1f} s)", flush=True)
            return
    raise SystemExit(f"it never said {words!r}; status {launch.wait()}")


def use(launch: subprocess.Popen[str], repository: Path) -> None:
    """Send requests, kill one instance, end it."""
    wait_for(launch, "ready: ")
    print("on the GPUs:", gpu_processes(), sep="\n", flush=True)
    began = time.monotonic()
    with ThreadPoolExecutor(REQUESTS) as pool:
        lengths = list(pool.map(generate, range(REQUESTS)))
    print(f"{REQUESTS} answers of {min(lengths)} to {max(lengths)} characters, {time.monotonic() - began:.1f} s")
    os.kill(stubs(repository)[0], signal.SIGKILL)
    wait_for(launch, "died")
    wait_for(launch, "ready: ")
    print("on the GPUs:", gpu_processes(), sep="\n", flush=True)
    launch.send_signal(signal.SIGTERM)
    wait_for(launch, "stopping")
    print("status", launch.wait())


def main(folder: Path, model: Path) -> None:
    """Run it in a folder."""
    file, repository = folder / "gateway.yaml", folder / "repository"
    file.write_text(settings(model))
    subprocess.run([GATEWAY, "repo", file, "-o", repository], check=True)
    ports = ["--http-port", str(HTTP), "--grpc-port", str(GRPC), "--metrics-port", str(METRICS)]
    command = [GATEWAY, "launch", file, "--repository", repository, *ports, "--restart", "on-failure:1"]
    logs = ["--log-dir", str(folder / "logs")]
    with subprocess.Popen([*map(str, command), *logs], stderr=subprocess.PIPE, text=True) as launch:
        try:
            use(launch, repository)
        finally:
            launch.kill()  # its servers go with it
    print("on the GPUs:", gpu_processes(), "stubs:", stubs(repository), sep="\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        given = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(made) / "tiny"
        if len(sys.argv) == 1:
            write_tiny_model(given)
        main(Path(made), given.resolve())
