"""The stock LLM API model as Triton loads it: requests in, one response or several out, as its version does it.

The environment names the files of `script`: SCRIPT_FILE and JOURNAL_FILE.
"""

from __future__ import annotations

import inspect
import itertools
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import triton_python_backend_utils as pb_utils
import yaml

from tests.doubles.llmapi.engine import Adapter, Engine, Output, Run
from tests.doubles.llmapi.sampling import Sampling, read_sampling
from tests.doubles.llmapi.script import Journal
from tests.doubles.llmapi.versions import PERF_OUTPUTS, VERSIONS

_PLAYERS = 128  # requests that are answered at the same time; more of them wait
_ANSWER_OUTPUTS = ("finish_reason", "stop_reason", "cumulative_logprob")


class _Reply:
    """The way back to one caller; the lock, because Triton crashes when asked of a request that has been answered."""

    def __init__(self, sender: pb_utils.InferenceResponseSender) -> None:
        self._sender, self._is_over, self._lock = sender, False, threading.Lock()

    def send(self, response: pb_utils.InferenceResponse, *, final: bool = True) -> None:
        """Send a response, unless the final one has been sent."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = final
            try:
                self._sender.send(response, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if final else 0)
            except pb_utils.TritonModelException as error:
                pb_utils.Logger.log_error(f"a response was refused: {error}")

    def is_cancelled(self) -> bool:
        """Whether its caller has gone."""
        with self._lock:
            return not self._is_over and self._sender.is_cancelled()


@dataclass(frozen=True, slots=True)
class _Live:
    request_id: str
    reply: _Reply
    run: Run


class LlmapiModel:
    """``TritonPythonModel`` of one version; model.py makes a subclass that names it."""

    VERSION: ClassVar[str]

    @classmethod
    def auto_complete_config(cls, auto_complete_model_config: Any) -> Any:
        """Tell Triton what model.yaml says; not called where the server has that disabled."""
        settings = _read_yaml(Path(inspect.getfile(cls)).parent)["triton_config"]
        auto_complete_model_config.set_max_batch_size(settings["max_batch_size"])
        auto_complete_model_config.set_model_transaction_policy({"decoupled": settings["decoupled"]})
        return auto_complete_model_config

    def initialize(self, args: dict[str, str]) -> None:
        """Start the engine."""
        arguments = _read_yaml(Path(args["model_repository"]) / args["model_version"])
        settings = arguments.pop("triton_config")
        self._version = VERSIONS[self.VERSION]
        self._name = args["model_name"]
        self._decoupled = settings["decoupled"]  # whatever Triton has been told
        self._journal = Journal(Path(os.environ["JOURNAL_FILE"]))
        self._engine = Engine(self._version, arguments, Path(os.environ["SCRIPT_FILE"]), self._journal)
        self._keys = (f"{self._name}-{os.getpid()}-{number}" for number in itertools.count())
        self._live: dict[str, _Live] = {}
        self._lock = threading.Lock()
        self._players = ThreadPoolExecutor(_PLAYERS, "player")
        self._closing = threading.Event()
        if self._version.cancels:
            period = settings.get("cancellation_check_period_ms", 100) / 1000
            threading.Thread(target=self._watch, args=(period,), daemon=True).start()

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> None:
        """Begin to answer, in threads of their own."""
        for request in requests:
            self._players.submit(self._answer, request, next(self._keys))

    def finalize(self) -> None:
        """Abort what is still being answered."""
        self._closing.set()
        with self._lock:
            for live in self._live.values():
                live.run.abort()
        self._players.shutdown(cancel_futures=True)

    def _answer(self, request: pb_utils.InferenceRequest, key: str) -> None:
        reply, request_id = _Reply(request.get_response_sender()), request.request_id()
        stop = pb_utils.get_input_tensor_by_name(request, "stop")
        if stop is not None and stop.as_numpy()[0]:
            self._stop(request_id, reply)
            return
        self._journal.write(
            key, id=request_id, model=self._name, version=self.VERSION, inputs={}, effective={}, ignored={}
        )
        try:
            inputs = self._inputs(request)
            self._journal.write(key, inputs=inputs)
            self._generate(reply, request_id, key, inputs)
        except Exception as error:
            self._journal.write(key, error=str(error))
            problem = pb_utils.TritonError(f"Error generating request: {error}")
            reply.send(pb_utils.InferenceResponse(error=problem))
            raise
        finally:
            with self._lock:
                self._live.pop(key, None)

    def _inputs(self, request: pb_utils.InferenceRequest) -> dict[str, Any]:
        """Values of the inputs that came; a list where more than one may come, but of texts only the first is read."""
        values: dict[str, Any] = {}
        for name, _, dimension in self._version.inputs():
            tensor = pb_utils.get_input_tensor_by_name(request, name)
            if tensor is not None:
                texts = [value.decode() if isinstance(value, bytes) else value for value in tensor.as_numpy().tolist()]
                values[name] = texts if dimension == -1 and name != "text_input" else texts[0]
        return values

    def _generate(self, reply: _Reply, request_id: str, key: str, inputs: dict[str, Any]) -> None:
        sampling = read_sampling(self._version, inputs)
        streaming = inputs.get("streaming", False)
        if streaming and not self._decoupled:
            raise pb_utils.TritonModelException("Streaming is only supported in decoupled mode.")
        adapter = self._adapter(inputs) if self._version.streams else streaming
        self._tell_what_counts(key, inputs, sampling)
        run = self._engine.start(
            key, inputs["text_input"], sampling, streaming=streaming and self._version.streams, adapter=adapter
        )
        with self._lock:
            self._live[key] = _Live(request_id, reply, run)
        for output in run.outputs():
            if not streaming:
                with self._lock:
                    if self._live.pop(key, None) is None:
                        return  # it was stopped, and nobody tells its caller
            tensors = self._tensors(inputs, sampling, output)  # kept until they are sent (wire contract 9.1)
            reply.send(pb_utils.InferenceResponse(tensors), final=output.finish is not None)

    def _tell_what_counts(self, key: str, inputs: dict[str, Any], sampling: Sampling) -> None:
        idle = {name: inputs[name] for name in ("streaming", "image_url") if inputs.get(name)}
        if self._version.streams:
            idle.pop("streaming", None)
        self._journal.write(key, effective=sampling.effective, ignored=sampling.ignored | idle)

    def _adapter(self, inputs: dict[str, Any]) -> Adapter | None:
        given = {name.removeprefix("lora_"): value for name, value in inputs.items() if name.startswith("lora_")}
        source = given.pop("ckpt_source", "hf")
        if not given:
            return None
        if given.keys() != {"id", "name", "path"}:
            raise pb_utils.TritonModelException("lora_id, lora_name and lora_path must be given together")
        if source not in ("hf", "nemo"):
            raise pb_utils.TritonModelException(f"lora_ckpt_source {source} is neither hf nor nemo")
        if not Path(given["path"]).exists():
            raise pb_utils.TritonModelException(f"lora_path {given['path']} does not exist")
        return Adapter(given["id"], given["name"], given["path"])

    def _tensors(self, inputs: dict[str, Any], sampling: Sampling, output: Output) -> list[pb_utils.Tensor]:
        texts = {"text_output": output.text}
        # No log-probs can be asked for, and no stop can match: both are told as the word None.
        values = {"finish_reason": str(output.finish), "stop_reason": "None", "cumulative_logprob": "None"}
        texts |= {name: values[name] for name in _ANSWER_OUTPUTS if inputs.get(f"return_{name}")}
        if sampling.perf_metrics and output.finish:
            now = time.monotonic_ns()
            texts |= {name: str(now) if name.endswith("_ns") else "0" for name in PERF_OUTPUTS}
        return [pb_utils.Tensor(name, np.array([text.encode()], dtype=np.object_)) for name, text in texts.items()]

    def _stop(self, request_id: str, reply: _Reply) -> None:
        """Abort the request of that id, and answer the one that asked for it as if it had been meant."""
        if not request_id:
            problem = pb_utils.TritonError("A request id must be provided for request cancellation")
            reply.send(pb_utils.InferenceResponse(error=problem))
            return
        with self._lock:
            for key in [key for key, live in self._live.items() if live.request_id == request_id]:
                self._live.pop(key).run.abort()
        reply.send(_cancelled())

    def _watch(self, period: float) -> None:
        """Abort what nobody waits for any more; Triton does not tell of that unasked."""
        while not self._closing.wait(period):
            with self._lock:
                for key in [key for key, live in self._live.items() if live.reply.is_cancelled()]:
                    live = self._live.pop(key)
                    live.run.abort()
                    live.reply.send(_cancelled())


def _cancelled() -> pb_utils.InferenceResponse:
    error = pb_utils.TritonError("Request cancelled by client", pb_utils.TritonError.CANCELLED)
    return pb_utils.InferenceResponse(error=error)


def _read_yaml(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((folder / "model.yaml").read_text(encoding="utf-8"))
    return content
