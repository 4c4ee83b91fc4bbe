"""A real Triton with upstream's stock models of several versions, and what tests tell their engines to answer."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
from tokenizers import Tokenizer
from tritonclient.grpc import service_pb2, service_pb2_grpc

from gateway_ops.local_stack.tritonserver import TritonServer
from tests.doubles.stock.model_folders import Spelling, write_engine, write_model
from tests.doubles.stock.repository import BLS, TRIO, Stock, write_stock

TURNS = Path(__file__).resolve().parents[2] / "scripted_engine"
_LOAD_TIMEOUT_S = 60.0
_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_END_TIMEOUT_S = 20.0
_POLL_S = 0.01


class LoadingTriton(TritonServer):
    """A tritonserver that loads a model when it is told to."""

    def _arguments(self, backends: Path) -> list[str]:
        return [*super()._arguments(backends), "--model-control-mode=explicit"]


class StockServer:
    """A running Triton whose models are doubles of upstream's, made when they are first asked for.

    A test asks for a model by version, tells what to play, and goes through the gateway or asks the model itself::

        model = stock_triton.bls("1.2.1", accumulate=True)
        stock_triton.play(turn("weather", text="Grüße 🙂"), chunk=[1, 3])
        ... GATEWAY_MODEL="m", GATEWAY_TRITON_URL=stock_triton.grpc_url, GATEWAY_TRITON_MODEL=model,
            GATEWAY_TOKENIZER=str(stock_triton.model_dir("bytes")) ...
        assert stock_triton.requests()[0]["effective"]["temperature"] == 0.5

    A turn (`tests.scripted_engine.replay.turn`) has ``match`` or ``prompt_ids``, ``text`` or ``ids``, ``chunk`` and

    - ``sampled``: true makes the answer from the prompt, the seed and the other parameters, of random length;
    - ``hold``: stay open after the last token until cancelled or stopped;
    - ``fail_after``: tokens after which the engine fails; ``stall_after``: tokens after which it says nothing more;
    - ``pause``: seconds after each response.

    The model draws its end token after the turn's text, and says the same again where that does not end the answer.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._repository = folder / "repository"
        self._repository.mkdir(parents=True)
        self._script, self._journal = folder / "script.json", folder / "journal"
        self._model_dirs: dict[Spelling, Path] = {}
        self._loaded: set[str] = set()
        self._told: list[str] = []
        self.triton = LoadingTriton(
            self._repository,
            model_dir=None,
            engine=None,
            env={
                "DOUBLE_TURNS": str(TURNS),
                "SCRIPT_FILE": str(self._script),
                "JOURNAL_FILE": str(self._journal),
            },
            log_path=folder / "triton.log",
        )
        self.play()

    def start(self) -> None:
        """Start the server, without models."""
        self.triton.start()
        self.triton.wait_ready([])
        self._channel = grpc.insecure_channel(self.grpc_url)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def stop(self) -> None:
        """End it at once: a model that hangs would hold it up."""
        self._channel.close()
        self.triton.kill()

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
        if not self.triton.running:
            self._start_again()
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
        try:
            self._tell_to_load(name)
        except grpc.RpcError as error:
            if error.code() not in _AWAY or not self._has_died():
                raise
            self._start_again()
            self._tell_to_load(name)
        self._told.append(name)
        self._loaded |= set(names.values()) if wanted == "ensemble" else {name}
        return name

    def _tell_to_load(self, name: str) -> None:
        request = service_pb2.RepositoryModelLoadRequest(model_name=name)
        self._stub.RepositoryModelLoad(request, timeout=_LOAD_TIMEOUT_S, wait_for_ready=True)

    def _has_died(self) -> bool:
        """Whether it ends by itself: races of its own do that (docs/contributing/wire-contract.md, 9.1)."""
        end = time.monotonic() + _END_TIMEOUT_S
        while self.triton.running and time.monotonic() < end:
            time.sleep(_POLL_S)
        return not self.triton.running

    def _start_again(self) -> None:
        self.triton.log_path.rename(self.triton.log_path.with_suffix(".died"))
        self.triton.start()
        self.triton.wait_ready([])
        for name in self._told:
            self._tell_to_load(name)

    def _engine_dir(self, spelling: Spelling) -> Path:
        folder = self._folder / f"engine-{spelling}"
        return write_engine(folder, self.tokenizer(spelling).get_vocab_size())

    def play(self, *turns: dict[str, Any], chunk: int | Sequence[int] = 1) -> None:
        """Replace the script of all engines, and begin a new journal.

        Args:
            turns: the last one that matches a prompt plays.
            chunk: tokens in a response, or numbers that are gone through again and again.
        """
        chunks = chunk if isinstance(chunk, int) else list(chunk)
        fresh = self._script.with_suffix(".new")
        fresh.write_text(json.dumps({"chunk": chunks, "turns": turns}), encoding="utf-8")
        self._journal.unlink(missing_ok=True)
        os.replace(fresh, self._script)  # noqa: PTH105 - an engine never sees half a script

    def requests(self) -> list[dict[str, Any]]:
        """What the engines were asked since the last `play`, without probes (ids that begin with ``probe-``).

        Each has ``model``, ``id``, ``prompt`` (decoded), ``prompt_ids``, ``max_tokens``, ``end_id``, ``stop_words``,
        ``temperature``, ``guide``; ``tensors``: all that reached the engine, by name; ``effective``: the parameters as
        the engine follows them, with its defaults; ``answer``: the ``ids`` that it has to say, and what ``end`` they
        have (``end_id``, ``stop_words``, ``length``).
        """
        return [entry for entry in self._entries("asked") if not entry["id"].startswith("probe-")]

    def endings(self, at_least: int = 0) -> list[dict[str, Any]]:
        """How requests ended: ``model``, ``id``, ``how`` (finished, cancelled, stopped, failed), ``tokens`` sent.

        Args:
            at_least: waits until so many have ended.
        """
        deadline = time.monotonic() + _END_TIMEOUT_S
        while len(found := self._entries("ended")) < at_least:
            assert time.monotonic() < deadline, f"{len(found)} requests ended, not {at_least}"
            time.sleep(_POLL_S)
        return found

    def _entries(self, event: str) -> list[dict[str, Any]]:
        lines = self._journal.read_text(encoding="utf-8").splitlines() if self._journal.exists() else []
        return [entry for entry in map(json.loads, lines) if entry["event"] == event]
