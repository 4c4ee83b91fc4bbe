"""A real Triton with upstream's stock models of several versions, and what tests tell their engines to answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from tokenizers import Tokenizer
from tritonclient.grpc import service_pb2, service_pb2_grpc

from gateway_ops.local_stack.tritonserver import TritonServer
from tests.doubles.stock.model_folders import Spelling, write_engine, write_model
from tests.doubles.stock.repository import BLS, TRIO, Stock, write_stock
from tests.scripted_engine.replay import Playing

_LOAD_TIMEOUT_S = 120.0


class StockServer(Playing):
    """A running Triton whose models are doubles of upstream's, made when they are first asked for.

    A test asks for a model by version, tells what to play, and goes through the gateway or asks the model itself::

        model = stock_triton.bls("1.2.1", accumulate=True)
        stock_triton.play(turn("weather", text="Grüße 🙂"), chunk=[1, 3])
        ... GATEWAY_MODEL="m", GATEWAY_TRITON_URL=stock_triton.grpc_url, GATEWAY_TRITON_MODEL=model,
            GATEWAY_TOKENIZER=str(stock_triton.model_dir("bytes")) ...
        assert stock_triton.requests()[0]["effective"]["temperature"] == 0.5

    The model draws its end token after a turn's text, and says the same again where that does not end the answer.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = folder
        self._repository = folder / "repository"
        self._repository.mkdir()
        self._model_dirs: dict[Spelling, Path] = {}
        self._loaded: set[str] = set()
        self._loads: list[grpc.Future[Any]] | None = None  # that are waited for together
        self.triton = TritonServer(
            self._repository,
            model_dir=None,
            engine="stock",
            env=self.environment,
            log_path=folder / "triton.log",
            options=["--model-control-mode=explicit"],
        )

    def start(self) -> None:
        """Start the server, without models."""
        self.triton.start()
        self.triton.wait_ready([])
        # Not closed: a channel of the session, whose server ends with it.
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(grpc.insecure_channel(self.grpc_url))

    @contextmanager
    def together(self) -> Iterator[None]:
        """Load the models that are asked for inside at the same time: all are ready when it ends."""
        self._loads = []
        try:
            yield
            for load in self._loads:
                load.result()
        finally:
            self._loads = None

    @property
    def grpc_url(self) -> str:
        """Where the gateway finds it."""
        return self.triton.grpc_url

    def model_dir(self, spelling: Spelling = "bytes") -> Path:
        """The folder with tokenizer and chat template of a spelling."""
        if spelling not in self._model_dirs:
            self._model_dirs[spelling] = write_model(self._folder / spelling, spelling)
        return self._model_dirs[spelling]

    def tokenizer(self, spelling: Spelling = "bytes") -> Tokenizer:
        """The tokenizer of a spelling."""
        return Tokenizer.from_file(str(self.model_dir(spelling) / "tokenizer.json"))

    def ensemble(self, version: str, **options: Any) -> str:
        """The name of the ensemble of a version, which is loaded and ready; ``options`` are those of `Stock`."""
        return self._load(Stock(version, **options), "ensemble")

    def bls(self, version: str, *, accumulate: bool = False, copy: str = "", **options: Any) -> str:
        """The name of the BLS model of a version, likewise; ``copy`` sets one apart that a test breaks."""
        stock = Stock(version, **options)
        for model in TRIO:
            self._load(stock, model)
        own = stock.name(BLS) + ("_accumulate" if accumulate else "") + copy
        return self._load(stock, BLS, own, accumulate=accumulate)

    def engine(self, version: str, **options: Any) -> str:
        """The name of the engine model of a version, likewise."""
        return self._load(Stock(version, **options), "tensorrt_llm")

    def _load(self, stock: Stock, wanted: str, own: str = "", *, accumulate: bool = False) -> str:
        names = {model: stock.name(model) for model in (*TRIO, wanted)} | ({wanted: own} if own else {})
        name = names[wanted]
        if name in self._loaded:
            return name
        folder = self.model_dir(stock.spelling)
        write_stock(
            self._repository,
            stock,
            names,
            only=[model for model, each in names.items() if not (self._repository / each).exists()],
            tokenizer=folder,
            engine_dir=self._engine_dir(stock.spelling),
            accumulate=accumulate,
        )
        self._loaded |= set(names.values()) if wanted == "ensemble" else {name}
        request = service_pb2.RepositoryModelLoadRequest(model_name=name)
        load = self._stub.RepositoryModelLoad.future(request, timeout=_LOAD_TIMEOUT_S, wait_for_ready=True)
        if self._loads is None:
            load.result()
        else:
            self._loads.append(load)
        return name

    def _engine_dir(self, spelling: Spelling) -> Path:
        folder = self._folder / f"engine-{spelling}"
        return write_engine(folder, self.tokenizer(spelling).get_vocab_size())
