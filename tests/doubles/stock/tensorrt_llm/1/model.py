"""The model ``tensorrt_llm`` of the doubles: a scripted engine with the tensors and habits of TensorRT-LLM's backend.

``double.json`` beside this file has ``version`` (of TensorRT-LLM), ``tokenizer`` and ``engine_dir``. The environment
has the files of the script and of the journal; see `server.StockServer`.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray
from tokenizers import Tokenizer

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, os.environ["DOUBLE_TURNS"])

from answers import answer, log_prob
from asked import Asked, Limits, RejectedError, parse, shown
from turns import Script

Tensors = dict[str, NDArray[Any]]

_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
_STEP_S = 0.005
_CANCEL_CHECK_S = 0.05
_AFTER_CANCEL_S = 0.002  # a response sent immediately after learning of a cancel is lost at times (tritonserver 2.51)


class TritonPythonModel:
    """Plays turns, each request in a thread of its own."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read what the double is, its configuration, and the script."""
        config = json.loads(args["model_config"])
        double = json.loads(Path(__file__).with_name("double.json").read_text(encoding="utf-8"))
        parameters = {name: value["string_value"] for name, value in config.get("parameters", {}).items()}
        engine = json.loads((Path(double["engine_dir"]) / "config.json").read_text(encoding="utf-8"))
        self._name = args["model_name"]
        self._version = tuple(int(part) for part in double["version"].split("."))
        self._decoupled = bool(config.get("model_transaction_policy", {}).get("decoupled"))
        self._limits = Limits(
            max_seq_len=engine["build_config"]["max_seq_len"],
            vocab_size=engine["pretrained_config"]["vocab_size"],
            guided=parameters.get("guided_decoding_backend") == "xgrammar",
            echo=parameters.get("exclude_input_in_output") != "true",
        )
        self._normalizes = parameters.get("normalize_log_probs") not in ("false", "False", "FALSE", "0")
        folder = Path(double["tokenizer"])
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        named = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        self._eos = self._tokenizer.token_to_id(named["eos_token"])
        self._script = Script(Path(os.environ["SCRIPT_FILE"]), self._tokenizer)
        self._journal = Path(os.environ["JOURNAL_FILE"])
        self._cached_loras: set[int] = set()
        self._stopped: set[str] = set()
        self._live: set[str] = set()
        self._lock = threading.Lock()
        self._players = ThreadPoolExecutor(64, "player")

    def execute(self, requests: list[Any]) -> list[Any] | None:
        """Take requests: decoupled, their answers are sent later; else they are the result."""
        if self._decoupled:
            for request in requests:
                self._take(request)
            return None
        return [self._answer_whole(request) for request in requests]

    def finalize(self) -> None:
        """Let what plays come to its end."""
        with self._lock:
            self._stopped |= self._live
        self._players.shutdown(wait=False)

    def _take(self, request: Any) -> None:
        sender = request.get_response_sender()
        try:
            tensors = _inputs(request)
            if "stop" in tensors and tensors["stop"].any():
                self._stop(request.request_id())
                sender.send(pb_utils.InferenceResponse([]), flags=_FINAL)
                return
            asked, turn = self._accept(request.request_id(), tensors)
        except RejectedError as error:
            sender.send(_error(str(error)), flags=_FINAL)
            return
        self._players.submit(_Player(self, asked, turn, sender).play)

    def _answer_whole(self, request: Any) -> Any:
        try:
            asked, turn = self._accept(request.request_id(), _inputs(request))
        except RejectedError as error:
            return _error(str(error))
        ids, _ = self.draw(asked, turn)
        if turn.get("fail_after", len(ids)) < len(ids):
            self.ended(asked, "failed", turn["fail_after"])
            return _error(_failed(asked))
        if {"stall_after", "hold"} & turn.keys():  # it would block the one thread that takes requests, stops too
            self.ended(asked, "failed", 0)
            return _error("a model that is not decoupled cannot play a stall")
        self.ended(asked, "finished", len(ids))
        return pb_utils.InferenceResponse(_tensors(self.outputs(asked, ids, len(ids), final=True)))

    def _accept(self, request_id: str, tensors: Tensors) -> tuple[Asked, dict[str, Any]]:
        asked = parse(request_id, tensors, self._limits)
        if asked.streaming and not self._decoupled:
            raise RejectedError("Streaming is only supported in decoupled mode.")
        self._check_lora(asked)
        turn = self._script.turn(asked.prompt)
        if turn is None:
            if asked.max_tokens > 2:
                raise RejectedError("no turn of the script matches the prompt")
            turn = {"ids": asked.prompt[:1] * 2, "chunk": [1]}
        with self._lock:
            if asked.id in self._live:
                raise RejectedError(f"requestId {asked.id} is already in progress, request is ignored.")
            self._live |= {asked.id} - {""}
        self._write_asked(asked, turn)
        return asked, turn

    def _check_lora(self, asked: Asked) -> None:
        task = asked.effective["lora_task_id"]
        if task is None:
            return
        if "lora_weights" in asked.tensors:
            self._cached_loras.add(task)
        if task not in self._cached_loras:
            raise RejectedError(f"LoRA task {task} not found in cache. Please send LoRA weights with request")

    def _stop(self, request_id: str) -> None:
        if not request_id:
            raise RejectedError("Trying to stop a request but request ID is not provided")
        with self._lock:
            self._stopped |= {request_id} & self._live

    def is_stopped(self, asked: Asked) -> bool:
        """Whether a ``stop`` request has named it."""
        with self._lock:
            return asked.id in self._stopped

    def draw(self, asked: Asked, turn: dict[str, Any]) -> tuple[list[int], str]:
        """The answer's ids and what ends it."""
        return answer(turn, asked, self._tokenizer, self._eos)

    def ended(self, asked: Asked, how: str, sent: int) -> None:
        """Note the end of a request: ``finished``, ``cancelled``, ``stopped`` or ``failed``."""
        with self._lock:
            self._live.discard(asked.id)
            self._stopped.discard(asked.id)
        self._note({"event": "ended", "model": self._name, "id": asked.id, "how": how, "tokens": sent})

    def outputs(
        self, asked: Asked, new: list[int], said: int, *, final: bool, all_ids: list[int] | None = None
    ) -> Tensors:
        """The outputs of one response with the ids ``new``, the last of ``said`` that were generated so far."""
        generated = new if all_ids is None else all_ids[:said]
        ids = asked.prompt + new if asked.echo else new
        tensors: Tensors = {
            "output_ids": np.array(ids, np.int32).reshape(1, 1, -1),
            "sequence_length": np.array([[len(ids)]], np.int32),
        }
        if "return_log_probs" in asked.shown:
            alone = self._normalizes and asked.effective.get("greedy")  # among the candidates that are left
            scores = [0.0 if alone else log_prob(token) for token in generated]
            tensors["output_log_probs"] = np.array(scores, np.float32).reshape(1, 1, -1)
            tensors["cum_log_probs"] = np.array([[sum(scores)]], np.float32)
        if "return_num_input_tokens" in asked.shown:
            tensors["num_input_tokens"] = np.array([[len(asked.prompt)]], np.int32)
        if "return_num_output_tokens" in asked.shown:
            tensors["num_output_tokens"] = np.array([[len(ids)]], np.int32)
        if final and {"return_perf_metrics", "return_kv_cache_reuse_stats"} & asked.shown:
            for name, value in (("alloc_total", 4), ("alloc_new", 3), ("reused", 1)):
                tensors[f"kv_cache_{name}_blocks"] = np.array([[value]], np.int32)
        return {**(_ZEROS if self._version < (0, 13) else {}), **tensors}

    def _write_asked(self, asked: Asked, turn: dict[str, Any]) -> None:
        ids, end = self.draw(asked, turn)
        self._note(
            {
                "event": "asked",
                "model": self._name,
                "id": asked.id,
                "prompt": self._script.decode(asked.prompt),
                "prompt_ids": asked.prompt,
                "max_tokens": int(asked.tensors["request_output_len"].reshape(-1)[0]),
                "end_id": asked.end_id,
                "stop_words": asked.stop_words,
                "temperature": asked.effective["temperature"],
                "guide": asked.effective["guide"],
                "tensors": shown(asked.tensors),
                "effective": asked.effective,
                "answer": {"ids": ids, "end": end},
            }
        )

    def _note(self, entry: dict[str, Any]) -> None:
        # One write of one line: several engines share the file.
        file = os.open(self._journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, json.dumps(entry).encode() + b"\n")
        finally:
            os.close(file)


class _Player:
    """One answer on its way."""

    def __init__(self, model: TritonPythonModel, asked: Asked, turn: dict[str, Any], sender: Any) -> None:
        self._model, self._asked, self._turn, self._sender = model, asked, turn, sender
        self._next_check = 0.0
        self._how = ""

    def play(self) -> None:
        """Send all responses."""
        turn, asked = self._turn, self._asked
        ids, end = self._model.draw(asked, turn)
        limit = min(turn.get("fail_after", len(ids)), turn.get("stall_after", len(ids)))
        sent = self._stream(ids[:limit], held=limit < len(ids) or end == "end_id" or "hold" in turn)
        if self._how:
            self._finish(ids, sent, ids[:sent] if not asked.streaming else [])
        elif "fail_after" in turn:
            self._model.ended(asked, "failed", sent)
            self._sender.send(_error(_failed(asked)), flags=_FINAL)
        elif "stall_after" in turn or turn.get("hold"):
            while not self._is_cancelled():
                time.sleep(_STEP_S)
            self._finish(ids, sent, ids[:sent] if not asked.streaming else [])
        else:
            self._how = "finished"
            self._finish(ids, len(ids), ids[sent:] if asked.streaming else ids)

    def _stream(self, ids: list[int], *, held: bool) -> int:
        """Send all but the last response; the last one is sent here as well when something else comes after it."""
        sent = 0
        for size in itertools.cycle(self._turn["chunk"]):
            if self._is_cancelled() or sent >= len(ids) or (sent + size >= len(ids) and not held):
                return sent
            size = min(size, len(ids) - sent)  # noqa: PLW2901
            sent += size
            if self._asked.streaming:
                outputs = self._model.outputs(self._asked, ids[sent - size : sent], sent, final=False, all_ids=ids)
                self._send(outputs)
            if pause := self._turn.get("pause"):
                time.sleep(pause)
        raise AssertionError

    def _finish(self, ids: list[int], said: int, new: list[int]) -> None:
        self._model.ended(self._asked, self._how, said)
        self._send(self._model.outputs(self._asked, new, said, final=True, all_ids=ids), flags=_FINAL)

    def _send(self, outputs: Tensors, flags: int = 0) -> None:
        tensors = _tensors(outputs)  # kept until all is sent: those that nobody asked for die else (wire contract 9.1)
        self._sender.send(pb_utils.InferenceResponse(tensors), flags=flags)

    def _is_cancelled(self) -> bool:
        if self._model.is_stopped(self._asked):
            self._how = "stopped"
        elif time.monotonic() >= self._next_check:
            self._next_check = time.monotonic() + _CANCEL_CHECK_S
            if self._sender.is_cancelled():
                self._how = "cancelled"
                time.sleep(_AFTER_CANCEL_S)
        return bool(self._how)


_ZEROS: Tensors = {
    "cum_log_probs": np.zeros((1, 1), np.float32),
    "output_log_probs": np.zeros((1, 1, 1), np.float32),
    "context_logits": np.zeros((1, 1, 1), np.float32),
    "generation_logits": np.zeros((1, 1, 1, 1), np.float32),
    "batch_index": np.zeros((1, 1), np.int32),
}


def _inputs(request: Any) -> Tensors:
    return {tensor.name(): np.array(tensor.as_numpy()) for tensor in request.inputs()}


def _tensors(outputs: Tensors) -> list[Any]:
    return [pb_utils.Tensor(name, array) for name, array in outputs.items()]


def _failed(asked: Asked) -> str:
    return f"Executor failed process requestId {asked.id or 1} due to the following error: the script says so"


def _error(message: str) -> Any:
    return pb_utils.InferenceResponse([], error=pb_utils.TritonError(message))
