"""The stock LLM API model as Triton loads it: requests in, one response or several out, as its version does it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import triton_python_backend_utils as pb_utils
import yaml

from tests.doubles.llmapi.sampling import Sampling, read_sampling
from tests.doubles.llmapi.versions import VERSIONS
from tests.scripted_engine.text_model import FINAL, Decoder, TextModel, error, read_inputs, strings
from tests.scripted_engine.turns import Answer, Asked, play, sampling_of

_MAX_SEQ_LEN, _MAX_NUM_TOKENS = 12288, 8192  # where model.yaml names none
_WITHOUT_EFFECT_ON_A_DRAW = ("max_tokens", "exclude_input_from_output")


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
                self._sender.send(response, FINAL if final else 0)
            except pb_utils.TritonModelException as problem:
                pb_utils.Logger.log_error(f"a response was rejected: {problem}")

    def is_cancelled(self) -> bool:
        """Whether its caller has gone."""
        with self._lock:
            return not self._is_over and self._sender.is_cancelled()


class Adapter(NamedTuple):
    """A LoRA adapter; its path is one of the server."""

    adapter_id: int
    name: str
    path: str


@dataclass(frozen=True, slots=True)
class _Live:
    reply: _Reply
    aborted: threading.Event = field(default_factory=threading.Event)


class LlmapiModel(TextModel):
    """``TritonPythonModel`` of one version; model.py makes a subclass that names it."""

    VERSION: ClassVar[str]

    def initialize(self, args: dict[str, str]) -> None:
        """Start the engine."""
        arguments = _read_yaml(Path(args["model_repository"]) / args["model_version"])
        settings = arguments["triton_config"]
        self._version = VERSIONS[self.VERSION]
        self._lists = [
            name for name, _, dimension in self._version.inputs() if dimension == -1 and name != "text_input"
        ]
        self._decoupled = settings["decoupled"]  # whatever Triton has been told
        self._max_seq_len: int = arguments.get("max_seq_len", _MAX_SEQ_LEN)
        self._max_num_tokens: int = arguments.get("max_num_tokens", _MAX_NUM_TOKENS)
        self._has_adapters = "lora_config" in arguments
        self._adapters: dict[int, Adapter] = {}
        self.open(args["model_name"], Path(arguments["model"]), goes_on=False)
        self._played = self.script.read()
        self._live: dict[str, _Live] = {}
        self._lock = threading.Lock()
        if self._version.cancels:
            period = settings.get("cancellation_check_period_ms", 100) / 1000
            threading.Thread(target=self._watch, args=(period,), daemon=True).start()

    def answer(self, request: pb_utils.InferenceRequest, key: str) -> None:
        """See `TextModel`."""
        reply = _Reply(request.get_response_sender())
        self.note(
            key, id=request.request_id(), model=self.name, version=self.VERSION, inputs={}, effective={}, ignored={}
        )
        try:
            inputs = read_inputs(request, self._lists)
            self.note(key, inputs=inputs)
            self._generate(_Live(reply), key, inputs)
        except Exception as problem:
            self.note(key, error=str(problem))
            reply.send(error(f"Error generating request: {problem}"))
            raise
        finally:
            with self._lock:
                self._live.pop(key, None)

    def _generate(self, live: _Live, key: str, inputs: dict[str, Any]) -> None:
        version, streaming = self._version, inputs.get("streaming", False)
        sampling = read_sampling(version, inputs)
        if streaming and not self._decoupled:
            raise pb_utils.TritonModelException("Streaming is only supported in decoupled mode.")
        # Versions before 1.3 mistake the flag for the adapter.
        adapter = _adapter(inputs) if version.streams else streaming
        idle = {"streaming": True} if streaming and not version.streams else {}
        self.note(key, effective=sampling.effective, ignored=sampling.ignored | idle)
        ids = list(self.tokenizer.encode(inputs["text_input"], add_special_tokens=version.bos).ids)
        used, limit = self._used(adapter), self._limit(len(ids), sampling.max_tokens)
        drawn = sampling_of(sampling.effective)
        answer = self.script.answer(Asked(ids, limit, frozenset({self.eos}), heeded=_heeded(sampling), sampling=drawn))
        with self._lock:
            self._live[key] = live
        self.note(
            key, prompt=self.script.decode(ids), prompt_ids=ids, max_tokens=limit, adapter=used and used._asdict(),
            **answer.told(),
        )  # fmt: skip
        self._send(live, key, inputs, answer)

    def _send(self, live: _Live, key: str, inputs: dict[str, Any], answer: Answer) -> None:
        decoder, made, text = Decoder(self.tokenizer), 0, ""
        streams = inputs.get("streaming", False) and self._version.streams
        try:
            for step in play(answer, answer.drawn, self.until_replaced(live.aborted.is_set)):
                text, made = text + decoder.push(step.ids), made + len(step.ids)
                if step.finish:
                    self.note(key, ended="cancelled" if step.finish == "cancelled" else "finished", tokens=made)
                if step.finish or streams:
                    tensors = _tensors(inputs, text, step.finish)  # kept until sent (wire contract 9.1)
                    live.reply.send(pb_utils.InferenceResponse(tensors), final=step.finish is not None)
        except Exception:
            self.note(key, ended="failed", tokens=made)
            raise

    def _used(self, asked: Any) -> Adapter | None:
        if asked is None or not self._has_adapters:
            return None
        if self.script.read() is not self._played:  # one test's adapters are none of the next one's
            self._played, self._adapters = self.script.read(), {}
        # Weights are found by the id alone: another name or path of the same id changes nothing.
        return self._adapters.setdefault(asked.adapter_id, asked)

    def _limit(self, length: int, max_tokens: int) -> int:
        if not self._version.checks_lengths:
            return max(1, min(max_tokens, self._max_seq_len - length))
        if max_tokens <= 0:
            raise ValueError(f"max_tokens must be greater than 0, got {max_tokens}")
        if length >= self._max_seq_len:
            raise ValueError(f"default_max_tokens ({self._max_seq_len - length}) must be greater than 0")
        if length > self._max_num_tokens:
            raise ValueError(
                f"The sum of prompt length ({length}) and query length (1) should not exceed max_num_tokens "
                f"({self._max_num_tokens})"
            )
        return min(max_tokens, self._max_seq_len - length)

    def _watch(self, period: float) -> None:
        """Abort what nobody waits for any more; Triton does not tell of that unasked."""
        while not self.closing.wait(period):
            with self._lock:
                for key in [key for key, live in self._live.items() if live.reply.is_cancelled()]:
                    live = self._live.pop(key)
                    live.aborted.set()
                    live.reply.send(error("Request cancelled by client", pb_utils.TritonError.CANCELLED))


def _adapter(inputs: dict[str, Any]) -> Adapter | None:
    given = {name.removeprefix("lora_"): value for name, value in inputs.items() if name.startswith("lora_")}
    if not given:
        return None
    if not Path(given["path"]).exists():
        raise pb_utils.TritonModelException(f"lora_path {given['path']} does not exist")
    return Adapter(given["id"], given["name"], given["path"])


def _heeded(sampling: Sampling) -> dict[str, Any] | None:
    if not sampling.greedy and sampling.seed is None:
        return None
    return {name: value for name, value in sampling.effective.items() if name not in _WITHOUT_EFFECT_ON_A_DRAW}


def _tensors(inputs: dict[str, Any], text: str, finish: str | None) -> list[pb_utils.Tensor]:
    texts = {"text_output": text} | ({"finish_reason": str(finish)} if inputs.get("return_finish_reason") else {})
    return [pb_utils.Tensor(name, strings(told)) for name, told in texts.items()]


def _read_yaml(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((folder / "model.yaml").read_text(encoding="utf-8"))
    return content
