"""``gateway serve --workers``: several processes that behave as one."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.ports import free_port
from tests.scripted_engine.replay import ScriptedServer, turn
from tests.stack import GatewayProcess
from tests.waiting import wait_until
from tests.warm_gateways import WarmGateways

MODEL = "tiny"
COUNT = 3
LONG = {"messages": [{"role": "user", "content": "go on"}], "stream": True}
SHORT = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
SETTINGS = """\
server: {{reload_s: 0}}
models:
- {{name: {name}, triton: {{url: '{url}'}}, tokenizer: '{folder}', max_seq_len: 2048}}
"""


@pytest.fixture(scope="module")
def file(scripted_triton: ScriptedServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("workers") / "gateway.yaml"
    folder = scripted_triton.model_dir
    path.write_text(SETTINGS.format(name=MODEL, url=scripted_triton.grpc_url, folder=folder))
    scripted_triton.play(
        turn(text="Hello<|im_end|>"), turn("go on", text="one two<|im_end|>", until=str(path.with_name("released")))
    )
    return path


@pytest.fixture
def released(file: Path) -> Iterator[Path]:
    """A file whose presence lets long answers end, as they do behind the test."""
    path = file.with_name("released")
    path.unlink(missing_ok=True)
    yield path
    path.touch()


def start(file: Path, log: Path, workers: int = COUNT, **environment: str) -> GatewayProcess:
    return GatewayProcess(log, GATEWAY_CONFIG=str(file), GATEWAY_WORKERS=str(workers), **environment)


@pytest.fixture(scope="module")
def shared(file: Path) -> Iterator[GatewayProcess]:
    with start(file, file.with_name("log")) as process:
        yield process


@pytest.fixture
def pair(file: Path, tmp_path: Path) -> Iterator[GatewayProcess]:
    """One of two workers, which a test ends."""
    with start(file, tmp_path / "log", 2) as process:
        yield process


def worker_pids(gateway: GatewayProcess) -> list[int]:
    tasks = Path(f"/proc/{gateway._process.pid}/task").glob("*/children")
    return [int(pid) for task in tasks for pid in task.read_text().split()]


def degraded(gateway: GatewayProcess) -> bool:
    """Whether a worker lacks, of which the others tell; the one that replaces it tells the same."""
    answer = httpx.get(f"{gateway.url}/health/ready", timeout=30)
    assert answer.status_code == 200
    return "degraded" in answer.json()["models"][MODEL]


def stream(gateway: GatewayProcess, begun: Callable[[], object] = lambda: None) -> bool:
    """One long stream on a connection of its own; whether it came to its end."""
    said = b""
    try:
        with httpx.stream("POST", f"{gateway.url}/v1/chat/completions", json=LONG | {"model": MODEL}) as answer:
            for part in answer.iter_raw():
                if not said:
                    begun()
                said += part
    except httpx.TransportError:
        return False
    return said.endswith(b"data: [DONE]\n\n")


def test_counts_of_all_workers_add_up_and_a_killed_one_is_replaced(shared: GatewayProcess, released: Path) -> None:
    gateway = shared
    before = worker_pids(gateway)
    assert len(before) == COUNT
    for _ in range(6):
        answer = gateway.post({"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2})
        assert answer.status_code == 200

    def answered() -> set[float]:
        """The same count, asked of whichever worker each new connection reaches."""
        return {gateway.metric("gateway_requests_total", 'endpoint="/v1/chat/completions"') for _ in range(6)}

    assert answered() == {6}
    with ThreadPoolExecutor(6) as pool:
        streams = [pool.submit(stream, gateway) for _ in range(6)]
        wait_until(lambda: gateway.metric("gateway_requests_in_flight") == 6)
        os.kill(before[0], signal.SIGKILL)
        wait_until(lambda: before[0] not in worker_pids(gateway))
        released.touch()
        outcomes = [each.result() for each in streams]
    assert any(outcomes)  # the other workers' streams went on
    wait_until(lambda: len(worker_pids(gateway)) == COUNT and not degraded(gateway))
    after = worker_pids(gateway)
    assert len(after) == COUNT
    assert before[0] not in after
    assert gateway.metric("gateway_requests_in_flight") == 0  # those of the dead worker are gone with it
    assert answered() == {6 + sum(outcomes)}


def test_requests_wait_for_the_worker_that_replaces_a_dead_one(shared: GatewayProcess) -> None:
    """Running answers are lost with it; all others are served, those in its queue too, and where all workers died."""
    gateway = shared
    wait_until(lambda: gateway.metric("gateway_requests_in_flight") == 0)
    over = False

    def ask_on() -> list[int]:
        seen = []
        while not over:
            try:
                seen.append(gateway.post(SHORT).status_code)
            except httpx.TransportError:  # noqa: PERF203 - each request is one
                seen.append(0)
        return seen

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask_on) for _ in range(4)]
        for count in (1, COUNT):
            before = worker_pids(gateway)
            for pid in before[:count]:
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: len(pids := worker_pids(gateway)) == COUNT and not {*before[:count]} & {*pids})  # noqa: B023
            gateway.wait("/health/ready", 200)
        over = True
        seen = [status for each in asking for status in each.result()]
    assert set(seen) <= {0, 200}
    assert seen.count(0) <= 4 * (1 + COUNT)  # what ran as a worker was killed, one for each client


@pytest.mark.long
def test_a_worker_takes_connections_without_triton_after_a_while(tmp_path: Path, tiny_model_dir: Path) -> None:
    settings = SETTINGS.format(name=MODEL, url="127.0.0.1:1", folder=tiny_model_dir)
    (tmp_path / "gateway.yaml").write_text(f"{settings}timeouts: {{discovery_s: 4}}\n")
    gateway = start(tmp_path / "gateway.yaml", tmp_path / "log", GATEWAY_INTERNAL_PORT=str(free_port()))
    try:
        gateway.start(ready=False)
        for pid in worker_pids(gateway):
            os.kill(pid, signal.SIGKILL)
        gateway.wait("/metrics", 200)  # by the internal port, which does not wait
        wait_until(lambda: "starting" not in gateway.wait("/health/ready", 503).text)
        assert not [line for line in gateway.log_lines() if "is not ready yet" in line]
        gateway.logged("is not ready yet", count=COUNT)
        assert httpx.get(f"{gateway.url}/health/live").status_code == 200
    finally:
        gateway.stop()


def test_workers_know_the_prompts_of_each_other(shared: GatewayProcess) -> None:
    """Each request has a connection of its own, and so whichever worker takes it."""
    before = shared.metric("gateway_tokenized_tokens_total", 'source="cache"')
    content = " ".join(f"of all workers {number}" for number in range(45))
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": content},
                {"role": "user", "content": "Go on"}]  # fmt: skip
    prompt = 0
    for asked in range(1, 13):
        answer = shared.post({"model": MODEL, "messages": messages, "max_tokens": 1})
        prompt = answer.json()["usage"]["prompt_tokens"]
        known = shared.metric("gateway_tokenized_tokens_total", 'source="cache"') - before
        assert known >= 0.9 * prompt * (asked - 1)
    assert prompt > 500


def test_memory_is_that_of_all_workers(shared: GatewayProcess) -> None:
    def agree() -> bool:
        pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in worker_pids(shared)]
        held = sum(pages) * os.sysconf("SC_PAGE_SIZE")
        return abs(shared.metric("gateway_memory_bytes") - held) < 0.1 * held

    wait_until(agree)
    assert shared.metric("gateway_memory_limit_bytes") > shared.metric("gateway_memory_bytes")


@pytest.mark.long  # a process without workers is asked in each run
def test_sighup_ends_no_worker_while_it_starts(file: Path, tmp_path: Path) -> None:
    gateway = start(file, tmp_path / "log", 2)
    gateway.launch()
    try:
        wait_until(lambda: len(worker_pids(gateway)) == 2)
        begun = worker_pids(gateway)
        while not all("/site-packages/" in Path(f"/proc/{pid}/maps").read_text() for pid in begun):
            gateway.signal(signal.SIGHUP)  # until all of them load their first libraries
        gateway.wait("/health/ready", 200)
        assert worker_pids(gateway) == begun
    finally:
        assert gateway.stop() == 0
    assert not [line for line in gateway.log_lines() if "replaced" in line]


def test_a_reload_reaches_every_worker(shared: GatewayProcess, file: Path) -> None:
    gateway = shared
    text = file.read_text()
    file.write_text(text.replace(f"name: {MODEL},", f"name: {MODEL}, aliases: [other],"))
    gateway.signal(signal.SIGHUP)
    wait_until(lambda: gateway.metric("gateway_settings_reloads_total", 'outcome="applied"') == COUNT)
    statuses = {httpx.get(f"{gateway.url}/v1/models/other").status_code for _ in range(20)}
    assert statuses == {200}
    file.write_text("models: 5")
    gateway.signal(signal.SIGHUP)
    wait_until(lambda: gateway.metric("gateway_settings_last_reload_successful") == 0)
    gateway.wait("/health/ready", 200)
    file.write_text(text)


def test_running_answers_end_before_the_workers_do(pair: GatewayProcess, released: Path) -> None:
    gateway = pair
    pids = worker_pids(gateway)
    with ThreadPoolExecutor(4) as pool:
        begun: list[int] = []
        streams = [pool.submit(stream, gateway, lambda: begun.append(1)) for _ in range(4)]
        wait_until(lambda: len(begun) == 4)
        gateway.signal(signal.SIGTERM)
        assert not any(each.done() for each in streams)  # they run on
        released.touch()
        assert all(each.result() for each in streams)
    assert gateway.stop() == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    with pytest.raises(httpx.ConnectError):
        httpx.get(gateway.url)


def test_workers_end_with_their_supervisor(pair: GatewayProcess) -> None:
    pids = worker_pids(pair)
    process, pair._process = pair._process, None
    process.kill()
    process.wait()

    def runs(pid: int) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        return False

    wait_until(lambda: not any(map(runs, pids)))


@pytest.mark.parametrize(
    ("workers", "tokenizer", "port", "said"),
    [
        ("1", "/nowhere", 0, "tokenizer"),
        ("2", "/nowhere", 0, "tokenizer"),
        pytest.param("1", "", 1, "127.0.0.1 port", marks=pytest.mark.long),
        ("2", "", 1, "127.0.0.1 port"),
    ],
)
def test_what_no_worker_can_serve_is_said_once(
    workers: str, tokenizer: str, port: int, said: str, tiny_model_dir: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        own = {"MODEL": "m", "TRITON_URL": "127.0.0.1:1", "MAX_SEQ_LEN": "100", "HOST": "127.0.0.1"}
        own |= {"TOKENIZER": tokenizer or str(tiny_model_dir), "PORT": str(taken.getsockname()[1] if port else 0)}
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GATEWAY_")}
        environment |= {f"GATEWAY_{name}": value for name, value in own.items()}
        done = WarmGateways.of_this_process().run(["serve", "--workers", workers], environment)
    assert done.returncode == 1
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert said in errors[0]
    assert "Traceback" not in done.stderr
