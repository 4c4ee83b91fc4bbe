"""Leader mode with a stand-in for mpirun: two ranks of the real Triton, of which one answers clients.

The CPU engine stands for TensorRT-LLM's. It knows nothing of other ranks, and so stays when rank 0 has ended, where
TensorRT-LLM's workers would end with it.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from launched import Launched, command_of, render

from tests.reference_engine import put_reference_engine

TENSORRT = {"engine": "tensorrt", "role": "draft", "triton": {"max_batch_size": 8}}


@pytest.fixture
def leader(tmp_path: Path, tiny_model_dir: Path, repository: Path) -> Path:
    """A deployment for two GPUs, with the CPU engine where TensorRT-LLM's would be."""
    engine = tmp_path / "engine"
    engine.mkdir()
    for rank in range(2):
        (engine / f"rank{rank}.engine").write_bytes(b"")
    built = {"version": "1.2.1", "build_config": {}, "pretrained_config": {"mapping": {"tp_size": 2}}}
    (engine / "config.json").write_text(json.dumps(built))
    model = {"source": str(tiny_model_dir)}
    file = render(
        tmp_path, {**TENSORRT, "name": "one", "model": model, "engine_dir": str(engine), "parallelism": {"tp": 2}}
    )
    put_reference_engine(tmp_path / "repository" / "tensorrt_llm", repository, tiny_model_dir)
    return file


def rank_of(pid: int) -> str:
    variables = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return next(one.partition("=")[2] for one in variables if one.startswith("OMPI_COMM_WORLD_RANK="))


def test_a_rank_that_dies_takes_all_with_it_and_sigterm_goes_to_the_one_that_answers(
    leader: Path, mpirun: Path, tritonserver: Path, gpus: Callable[[int], Path]
) -> None:
    gpus(2)
    with Launched(leader, "--restart", "on-failure:1") as launch:
        launch.wait_for("ready: tensorrt_llm at 127.0.0.1")
        printed = "".join(launch.said)
        assert "# one: leader mode, 2 ranks, 2 GPUs\nmpirun --allow-run-as-root -n 1 " in printed
        assert "differs from the file" in printed
        ranks = {rank_of(pid): pid for pid in launch.servers() if "mpirun" not in command_of(pid)}
        assert set(ranks) == {"0", "1"}
        assert "--load-model=tensorrt_llm --allow-http=false" in command_of(ranks["1"])
        prefixes = {word for pid in ranks.values() for word in command_of(pid).split() if "shm-region" in word}
        assert len(prefixes) == 2

        os.kill(ranks["1"], signal.SIGKILL)
        launch.wait_for("tritonserver ended with status 137")
        launch.wait_for("starting again in 1 s (1 of 1)")
        launch.wait_for("ready: ")
        assert httpx.get(f"{launch.url}/v2/models/tensorrt_llm/ready").status_code == 200
        launch.process.send_signal(signal.SIGTERM)
        launch.wait_for("rank 0 has ended; ending the other ranks")
        assert launch.wait()[0] == 0
        assert launch.left() == []


# TensorRT-LLM's program, in so far as it matters here: rank 0 starts what follows below a shell, the others work for it
# until they are told to end.
LLMAPI_LAUNCH = """\
if [ "$OMPI_COMM_WORLD_RANK" != 0 ]; then
    trap 'echo heeded SIGTERM >>"$NOTES"; exit 15' TERM
    while [ ! -e "$ENDED" ]; do sleep 0.05; done
    exit 0
fi
status=0
"$@" || status=$?
touch "$ENDED"
exit "$status"
"""


def test_of_the_llm_apis_ranks_the_one_with_triton_is_told_to_end(
    tmp_path: Path,
    tiny_model_dir: Path,
    repository: Path,
    mpirun: Path,
    tritonserver: Path,
    gpus: Callable[[int], Path],
    programs: Callable[[str, str], Path],
) -> None:
    gpus(2)
    programs("trtllm-llmapi-launch", LLMAPI_LAUNCH)
    sizes = {"parallelism": {"tp": 2}, "limits": {"max_seq_len": 64}, "triton": {"max_batch_size": 8}}
    model = {"source": str(tiny_model_dir)}
    file = render(tmp_path, {"name": "one", "engine": "llmapi", "role": "draft", "model": model, **sizes})
    put_reference_engine(tmp_path / "repository" / "tensorrt_llm", repository, tiny_model_dir)
    notes, ended = tmp_path / "notes", tmp_path / "ended"
    with Launched(file, "--llmapi-ranks", NOTES=str(notes), ENDED=str(ended)) as launch:
        launch.wait_for("ready: tensorrt_llm at 127.0.0.1")
        assert "# one: the LLM API's ranks, 2 ranks, 2 GPUs\nmpirun --allow-run-as-root -n 2 " in "".join(launch.said)
        launch.process.send_signal(signal.SIGTERM)
        status, said = launch.wait()
        assert (status, "killed" in said) == (0, False)
        assert (notes.exists(), ended.exists()) == (False, True)
        assert launch.left() == []
