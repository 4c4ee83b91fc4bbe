"""Real Triton servers for the session, each with all models of the repository."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Several processes share the cores; a second thread of BLAS would mostly wait. Before NumPy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Envoy and kubectl, where `make build/programs-venv/.done` has put them.
os.environ["PATH"] += f"{os.pathsep}{Path(__file__).parents[1] / 'build' / 'programs-venv' / 'bin'}"

import certifi
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from gateway_ops.local_stack.minilm import ensure_embedding_folder
from gateway_ops.local_stack.smollm2 import ensure_model_folder
from gateway_ops.local_stack.tritonserver import EMBEDDING, EMBEDDING_VARIABLE, MODELS, TritonServer
from tests import rings
from tests.app.scripted import write_tokenizer
from tests.doubles.llmapi.server import LlmapiServer, misconfigured, one_of_each_version, write_llmapi_model
from tests.doubles.stock.server import StockServer
from tests.doubles.text.text_server import TextServer, one_of_each
from tests.scripted_engine.replay import ScriptedServer, TextModelsServer, write_scripted_model
from tests.stack import TRANSPORT, GatewayProcess
from tests.subjects import SUBJECTS, subject_of
from tests.tiny_model import write_tiny_model

ROOT = Path(__file__).parent
REPOSITORY = ROOT.parent / "triton_repo"
LOG_TAIL = 6000
# Tests that share what is slow to start; the first group that a file is of counts.
_TOGETHER = (
    (
        # Of the clients those before the scripted engine, which take as long as the others.
        "tests/clients/programs/", "tests/clients/page/", "tests/clients/test_chat_command.py",
        "tests/clients/test_given_up.py", "tests/clients/test_languages.py", "tests/clients/test_record_command.py",
        "tests/clients/test_report_command.py", "tests/clients/test_responses_", "tests/clients/test_stalls.py",
        "tests/clients/test_thoughts_on_triton.py", "tests/clients/test_top_command.py",
    ),
    ("tests/clients/",),
    (
        "tests/dialects/", "tests/doubles/", "tests/integration/test_llmapi_dialect.py",
        "tests/integration/test_plain_text_models.py", "tests/integration/test_vllm_dialect.py",
    ),
    ("tests/integration/", "tests/bench/test_load_tool.py"),
    ("tests/encoders/",),
    ("tests/release/",),
    ("tests/sdks/",),
    (  # which take no servers, but transformers
        "tests/tokens/test_by_transformers.py", "tests/tokens/test_conversion.py",
        "tests/prompt/test_templates_by_transformers.py",
    ),
)  # fmt: skip
# What takes longest begins first, so that no worker is left alone with it at the end; what compares speeds is last.
_FIRST = (
    "tests/clients/", "tests/integration/", "tests/workers/", "tests/faults/test_end", "tests/families/test_linear.py",
    "tests/openai/test_document.py", "tests/triton/test_h2_fuzz.py",
)  # fmt: skip
_LAST = "tests/faults/test_fairness.py"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run take the tests of one subject alone; see `tests.subjects`."""
    parser.addoption("--subject", choices=SUBJECTS, help="run the tests of this subject alone")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files of other subjects, which are not even imported."""
    wanted = config.getoption("--subject")
    if wanted is None or collection_path.suffix != ".py":
        return None
    return subject_of(collection_path.relative_to(ROOT).as_posix()) != wanted or None


def pytest_configure(config: pytest.Config) -> None:
    """Settings of property tests, to which a module's own add: what a busy machine makes slow is no failure.

    ``make test`` takes the same examples in every run, so that a change alone makes it fail, and a third of the number;
    so does a run with a seed. Longer runs take others, and keep those that fail, for a second run to begin with them.
    """
    same = config.getoption("markexpr") == "not long"
    rings.begin(short=same or config.getoption("hypothesis_seed") is not None)
    settings.register_profile(
        "tests",
        max_examples=rings.examples(100),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=same,
        database=None if same else DirectoryBasedExampleDatabase(config.rootpath / ".hypothesis" / "examples"),
    )
    settings.load_profile("tests")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each worker whole files, and some groups of files as a whole: they start their servers once."""
    config.option.loadscopereorder = False  # as they are collected, see below
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - only there with pytest -n

    class ByServers(LoadScopeScheduling):  # type: ignore[misc] # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            return _together(nodeid)

    return ByServers(config, log)


def _together(nodeid: str) -> str:
    """The group of a test, or its file."""
    file = nodeid.split("::", maxsplit=1)[0]
    return next((group[0] for group in _TOGETHER if file.startswith(group)), file)


def _place(nodeid: str) -> int:
    """The place of a test's group among those that begin first, that of all others, or the last."""
    group = _together(nodeid)
    others = len(_FIRST) + (group == _LAST)
    return next((place for place, name in enumerate(_FIRST) if group.startswith(name)), others)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let each worker begin a folder elsewhere, so that they do not all compile the same module at the same time."""
    report = yield
    worker = getattr(collector.config, "workerinput", None)
    if worker and isinstance(collector, pytest.Directory):
        start = len(report.result) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
        report.result = [*report.result[start:], *report.result[:start]]
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Order the tests of several workers, the same in each; one process takes them as they lie."""
    several = hasattr(config, "workerinput")
    if several:
        items.sort(key=lambda item: item.path)
    yield
    if several:
        items.sort(key=lambda item: _place(item.nodeid))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep modules and tests from the garbage collector: a million objects, which it would look at again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the ends of the logs of servers and gateways that a failed test used to its report."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for name, value in item.funcargs.items():
            log = _log_of(value)
            if log is not None:
                report.sections.append((f"log of {name}", log[-LOG_TAIL:]))
    return report


def _log_of(value: object) -> str | None:
    if isinstance(value, ScriptedServer | TextModelsServer | StockServer):
        value = value.triton
    if isinstance(value, TritonServer):
        return value.log()
    value = getattr(value, "gateway", value)  # of a fixture that has one
    return "\n".join(value.log_lines()) if isinstance(value, GatewayProcess) and value.log.exists() else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests measured and recorded as ``measured``."""
    reports = terminalreporter.getreports("passed")
    lines = [value for report in reports for name, value in report.user_properties if name == "measured"]
    if lines:
        terminalreporter.section("measured")
    for line in lines:
        terminalreporter.line(str(line))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer folder in which every byte is a token."""
    return write_tokenizer(tmp_path_factory.mktemp("bytes"))


@pytest.fixture(scope="session", autouse=True)
def _transport() -> None:
    """Reach Triton as the environment of the tests says, where a test does not."""
    if TRANSPORT in os.environ:
        from gateway.triton import TritonBackend  # noqa: PLC0415 - most tests need no gRPC

        defaults: dict[str, Any] = TritonBackend.__init__.__kwdefaults__ or {}
        defaults["transport"] = os.environ[TRANSPORT]


@pytest.fixture(scope="session", autouse=True)
def _state_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the state of gateways that tests start out of the user's home."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state-home"))


@pytest.fixture(scope="session", autouse=True)
def _one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let clients trust one public authority: to load all takes each client 50 ms, and no test asks them for any."""
    first, end, _ = Path(certifi.where()).read_text(encoding="utf-8").partition("-----END CERTIFICATE-----\n")
    file = tmp_path_factory.mktemp("authority") / "one.pem"
    file.write_text(f"{first}{end}", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certifi, "where", lambda: str(file))
        yield


@pytest.fixture(scope="session")
def repository() -> Path:
    """The project's model repository."""
    return REPOSITORY


@pytest.fixture(scope="session")
def chat_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It without the encoder, whose process a server of other tests need not start."""
    folder = tmp_path_factory.mktemp("chat-repository")
    for model in MODELS:
        (folder / model).symlink_to(REPOSITORY / model)
    return folder


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A generated model of under 1 MB; its words mean nothing."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    write_tiny_model(folder)
    return folder


@pytest.fixture(scope="session")
def smollm2_dir() -> Path:
    """SmolLM2-135M-Instruct as a Hugging Face style folder, for tests in which content matters."""
    return ensure_model_folder()


def _server(repository: Path, model_dir: Path, log: Path, embedding: Path | None = None) -> TritonServer:
    env = {} if embedding is None else {EMBEDDING_VARIABLE: str(embedding)}
    return TritonServer(repository, model_dir=model_dir, env=env, log_path=log)


@contextmanager
def _running(server: TritonServer) -> Iterator[None]:
    try:
        yield
    finally:
        server.kill()  # quicker than a shutdown, and nothing is left to be kept


def _start(server: TritonServer, models: Sequence[str] = MODELS) -> None:
    server.start()
    server.wait_ready(models)


@pytest.fixture(scope="session")
def triton(
    chat_repository: Path, tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TritonServer]:
    """A running Triton on the tiny model."""
    server = _server(chat_repository, tiny_model_dir, tmp_path_factory.mktemp("triton") / "triton.log")
    with _running(server):
        _start(server)
        yield server


@pytest.fixture
def own_triton(chat_repository: Path, tiny_model_dir: Path, tmp_path: Path) -> Iterator[TritonServer]:
    """A Triton of the test's own on the tiny model: one that it hurts, or whose calls it cancels by the hundred.

    That ends Triton 2.51 now and then (docs/contributing/wire-contract.md, 9.1), and would end the tests beside it.
    """
    server = _server(chat_repository, tiny_model_dir, tmp_path / "triton.log")
    try:
        _start(server)
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def triton_smollm2(smollm2_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """A running Triton on SmolLM2-135M-Instruct and all-MiniLM-L6-v2."""
    log = tmp_path_factory.mktemp("triton-smollm2") / "triton.log"
    server = _server(REPOSITORY, smollm2_dir, log, ensure_embedding_folder())
    with _running(server):
        _start(server, (*MODELS, EMBEDDING))
        yield server


@pytest.fixture(scope="session")
def _plays() -> list[Callable[[], None]]:
    """The ``play`` of each scripted server that runs."""
    return []


@pytest.fixture(scope="module", autouse=True)
def _played_out(_plays: list[Callable[[], None]]) -> Iterator[None]:
    """Take what a module told servers to play away: the next one on this worker begins with none."""
    yield
    for play in _plays:
        play()


@pytest.fixture(scope="module", autouse=True)
def _passed_over() -> Iterator[None]:
    """Keep what a module leaves from the garbage collector, as modules and tests are: it would look at that again."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def scripted_triton(
    chat_repository: Path, _plays: list[Callable[[], None]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ScriptedServer]:
    """A running Triton that replays what a test tells it to; see `ScriptedServer`."""
    model_dir = tmp_path_factory.mktemp("scripted-model")
    write_scripted_model(model_dir)
    server = ScriptedServer(chat_repository, model_dir, tmp_path_factory.mktemp("triton-scripted"))
    with _running(server.triton):
        _start(server.triton)
        _plays.append(server.play)
        yield server


@pytest.fixture(scope="session")
def llmapi_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tokenizer of the doubles of the stock LLM API model; it adds a BOS."""
    folder = tmp_path_factory.mktemp("llmapi-doubles-model")
    write_llmapi_model(folder)
    return folder


@pytest.fixture(scope="session")
def llmapi_triton(
    llmapi_model_dir: Path, _plays: list[Callable[[], None]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LlmapiServer]:
    """A running Triton with the stock LLM API model of each version; see `LlmapiServer`."""
    server = LlmapiServer(tmp_path_factory.mktemp("llmapi-doubles"), one_of_each_version(), llmapi_model_dir)
    with server:
        _plays.append(server.play)
        yield server


@pytest.fixture(scope="session")
def misconfigured_llmapi_triton(
    llmapi_model_dir: Path, _plays: list[Callable[[], None]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LlmapiServer]:
    """The same with settings that harm; see `misconfigured`."""
    server = LlmapiServer(tmp_path_factory.mktemp("llmapi-harmed"), misconfigured(), llmapi_model_dir)
    with server:
        _plays.append(server.play)
        yield server


@pytest.fixture(scope="session")
def text_triton(
    llmapi_model_dir: Path, _plays: list[Callable[[], None]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TextServer]:
    """A running Triton with models of the vLLM backend and plain text models; see `TextServer`."""
    server = TextServer(tmp_path_factory.mktemp("text-doubles"), llmapi_model_dir, **one_of_each())
    with server:
        _plays.append(server.play)
        yield server


@pytest.fixture(scope="session")
def stock_triton(_plays: list[Callable[[], None]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[StockServer]:
    """A running Triton with doubles of upstream's stock models, each made when it is first asked for."""
    server = StockServer(tmp_path_factory.mktemp("triton-stock"))
    with _running(server.triton):
        server.start()
        _plays.append(server.play)
        yield server
