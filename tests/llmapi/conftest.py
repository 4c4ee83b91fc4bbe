"""The engine ``llmapi``: its modules on the path, and servers of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parents[1] / "triton_repo" / "tensorrt_llm" / "1"), str(HERE.parent / "integration")]

from kserve import Kserve  # noqa: E402
from llmapi_stack import Serve, Server, copy_repository  # noqa: E402

from gateway_ops.local_stack.tritonserver import TritonServer  # noqa: E402


@pytest.fixture(scope="session")
def serve(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Serve:
    """Starts a server with an environment of its own."""

    @contextmanager
    def start(*, engine: str = "llmapi", **env: str) -> Iterator[Server]:
        folder = tmp_path_factory.mktemp("llmapi")
        journal = folder / "journal"
        env["STANDIN_JOURNAL"] = str(journal)
        repository = copy_repository(folder / "repository", standin=True)
        triton = TritonServer(
            repository, model_dir=tiny_model_dir, engine=engine, env=env, log_path=folder / "triton.log"
        )
        triton.start()
        try:
            triton.wait_ready(["tensorrt_llm"])
            client = Kserve(triton.grpc_url)
            yield Server(triton, client, journal)
            client.close()
        finally:
            triton.kill()  # what unloading does is a test of its own

    return start


@pytest.fixture(scope="session")
def server(serve: Serve) -> Iterator[Server]:
    """The engine as it comes, on the stand-in."""
    with serve() as running:
        yield running


@pytest.fixture(scope="module")
def reference(serve: Serve) -> Iterator[Server]:
    """The same model on the reference engine."""
    with serve(engine="reference") as running:
        yield running
