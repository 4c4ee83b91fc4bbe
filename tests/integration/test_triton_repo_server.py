"""The process that serves the repository: ready by name, gone when it should be, never somebody else's."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from kserve import Kserve

from gateway_ops.local_stack.triton_installation import TritonStartError, find_tritonserver
from gateway_ops.local_stack.tritonserver import MODELS, TritonServer, decisive_log_lines, free_ports
from tests.bound_process import BoundProcess
from tests.waiting import wait_until

PARENT = """
import sys, threading
from pathlib import Path
from gateway_ops.local_stack.tritonserver import TritonServer
server = TritonServer(Path(sys.argv[1]), model_dir=Path(sys.argv[2]), log_path=Path(sys.argv[3]))
starter = threading.Thread(target=server.start)
starter.start()
starter.join()
server.wait_ready()
print(server.pid, server.grpc_url, flush=True)
sys.stdin.read()
"""


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"


def answers(server: TritonServer) -> bool:
    client = Kserve(server.grpc_url)
    try:
        return client.stream("ensemble", text_input="hi", max_tokens=2)[-1].final
    finally:
        client.close()


def test_killed_and_started_again_it_serves_on_the_same_ports(
    repository: Path, tiny_model_dir: Path, tmp_path: Path
) -> None:
    ready: list[str] = []
    with TritonServer(repository, model_dir=tiny_model_dir, log_path=tmp_path / "log") as server:
        server.wait_ready(progress=ready.append)
        assert sorted(ready) == sorted(MODELS)
        first, urls = server.pid, (server.http_url, server.grpc_url, server.metrics_url)
        assert first is not None
        server.kill()
        assert server.pid is None
        assert not server.running
        server.start()
        server.wait_ready()
        assert server.pid not in (None, first)
        assert (server.http_url, server.grpc_url, server.metrics_url) == urls
        assert answers(server)
        with pytest.raises(TritonStartError, match="already running"):
            server.start()
        name = server._name
        pid = server.pid
        assert pid is not None
        stubs = children(pid)
    assert gone(pid)
    wait_until(lambda: all(map(gone, stubs)))
    assert not list(Path("/dev/shm").glob(f"{name}_*"))
    server.stop()  # a second time does nothing


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_it_does_not_outlive_the_process_that_started_it(
    repository: Path, tiny_model_dir: Path, tmp_path: Path, end: signal.Signals
) -> None:
    arguments = [str(repository), str(tiny_model_dir), str(tmp_path / "log")]
    with BoundProcess(
        [sys.executable, "-c", PARENT, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline().split()[0])
        processes = [pid, *children(pid)]
        assert len(processes) == 6
        parent.send_signal(end)
        parent.wait(20)
        wait_until(lambda: all(map(gone, processes)))


def test_a_port_that_was_taken_meanwhile_is_given_up(
    repository: Path, tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", 0))
        squatter.listen()
        taken = squatter.getsockname()[1]
        offers = [[free_ports(1)[0], taken, free_ports(1)[0]]]
        monkeypatch.setattr(
            "gateway_ops.local_stack.tritonserver.free_ports",
            lambda count: offers.pop() if offers else free_ports(count),
        )
        with TritonServer(repository, model_dir=tiny_model_dir, log_path=tmp_path / "log") as server:
            assert server.grpc_url.endswith(f":{taken}")
            server.wait_ready()
            assert not server.grpc_url.endswith(f":{taken}")
            assert answers(server)


def test_a_start_at_which_triton_stumbles_is_made_again(repository: Path, tiny_model_dir: Path, tmp_path: Path) -> None:
    """The log is that of a start that ended so; it cannot be brought about."""
    log = tmp_path / "log"
    with TritonServer(repository, model_dir=tiny_model_dir, log_path=log) as server:
        first = server.pid
        server.kill()
        log.write_text("terminate called after throwing an instance of 'boost::interprocess::lock_exception'\n")
        server.wait_ready()
        assert server.pid not in (None, first)
        assert answers(server)


def test_the_deadline_names_the_models_that_are_not_ready(
    triton: TritonServer, repository: Path, tiny_model_dir: Path, tmp_path: Path
) -> None:
    with pytest.raises(TritonStartError, match=r"not ready after 0\.3 s: no_such_model"):
        triton.wait_ready(["ensemble", "no_such_model"], deadline_s=0.3)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway_ops.local_stack.triton_installation._DISTRIBUTION", "no-such-distribution")
    with pytest.raises(TritonStartError, match="install it by pip install nvidia-pytriton"):
        find_tritonserver()


def test_the_log_path_is_readable_by_its_owner_only(repository: Path) -> None:
    server = TritonServer(repository, model_dir=None)
    try:
        assert server.log() == ""
        assert server.log_path.stat().st_mode & 0o077 == 0
    finally:
        server.log_path.unlink()


def test_decisive_lines_are_load_errors_without_frames() -> None:
    log = (
        'I1121 10:00:00.000000 1 server.cc:1] "fine"\n'
        "E1121 10:00:01.000000 1 model_lifecycle.cc:641] \"failed to load 'preprocessing' version 1: Internal: "
        'TritonModelException: MODEL_DIR is not set\\n\\nAt:\\n  /models/preprocessing/1/model.py(31): initialize\\n"\n'
        "error: creating server: Internal - failed to load all models\n"
    )
    assert decisive_log_lines(log) == [
        "failed to load 'preprocessing' version 1: Internal: TritonModelException: MODEL_DIR is not set"
    ]
    assert decisive_log_lines("error: creating server: disk is full\n") == ["error: creating server: disk is full"]
    assert decisive_log_lines("one\ntwo\n", limit=1) == ["two"]
