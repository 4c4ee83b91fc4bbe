"""Calls preprocessing, engine and postprocessing from one Python model, ``tensorrt_llm_bls``.

With a draft model (parameter ``tensorrt_llm_draft_model_name``) requests that have ``num_draft_tokens`` are decoded
speculatively; see `speculation`.

Beyond upstream's model: one instance serves many requests simultaneously; a cancelled request stops its engine request;
the last data response carries the final flag; text is decoded incrementally; errors hold no traceback; and
``num_return_sequences`` is passed on. Stop words are matched by the engine alone, on tokens.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent))

import speculation
from step_tensors import ENGINE_TO_POSTPROCESSING, PREPROCESSING_TO_ENGINE, RENAMED_FOR_ENGINE, TO_PREPROCESSING

Tensors = dict[str, NDArray[Any]]

_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
_CANCEL_CHECK_S = 0.1
_KEEP_ITERATOR_S = 2.0

_VISION = ("image_input", "image_bytes_input", "image_url_input", "video_bytes_input")
_REJECTED = dict.fromkeys(_VISION, "this model is for text only")
_NO_DRAFT = dict.fromkeys(("num_draft_tokens", "use_draft_logits"), "no draft model is configured")


class _RequestError(Exception):
    """A failure of a request or of its generation, in words fit for the client."""


@dataclass
class _Job:
    """One client request under way; ``request_id`` is that of the calls to the steps, fresh each time."""

    inputs: Tensors
    sender: pb_utils.InferenceResponseSender
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    texts: list[str] = field(default_factory=list)
    heard_at: float = field(default_factory=time.monotonic)
    stopped: bool = False
    ended: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def flag(self, name: str) -> bool:
        return bool(self.inputs[name].reshape(-1)[0]) if name in self.inputs else False

    def send(self, tensors: Tensors, *, last: bool) -> None:
        # A name for the list, without which tensors that were not requested would be freed in send, without the GIL.
        outputs = [pb_utils.Tensor(name, value) for name, value in tensors.items()]
        self._answer(pb_utils.InferenceResponse(outputs), last=last)

    def end(self) -> None:
        self._answer(None, last=True)

    def fail(self, message: str) -> None:
        # Error and final flag in one response: an error followed by a separate final can crash Triton's stream.
        self._answer(pb_utils.InferenceResponse(error=pb_utils.TritonError(message)), last=True)

    def is_cancelled(self) -> bool:
        # Under the lock: asked during or after the final flag, the question crashes tritonserver.
        with self._lock:
            return not self.ended and bool(self.sender.is_cancelled())

    def _answer(self, response: pb_utils.InferenceResponse | None, *, last: bool) -> None:
        with self._lock:
            if self.ended:
                return
            self.ended = last
            flags = _FINAL if last else 0
            if response is None:
                self.sender.send(flags=flags)
            else:
                self.sender.send(response, flags=flags)


class TritonPythonModel:
    """Serves each request in a thread of its own and watches all of them for cancellation."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters and start the threads; nothing is loaded."""
        config = json.loads(args["model_config"])
        parameters = {key: value["string_value"] for key, value in config["parameters"].items()}
        self._accumulate = parameters["accumulate_tokens"].lower() == "true"
        self._engine = parameters["tensorrt_llm_model_name"]
        self._preprocessing = parameters.get("preprocessing_model_name", "preprocessing")
        self._postprocessing = parameters.get("postprocessing_model_name", "postprocessing")
        declared = {one["name"] for one in config["input"]}
        # An engine without finish reasons would reject ``return_finish_reason``.
        self._for_engine = [
            name for name, to in PREPROCESSING_TO_ENGINE.items() if to != "return_finish_reason" or to in declared
        ]
        self._engine_outputs = [one["name"] for one in config["output"] if one["name"] != "text_output"]
        # The model that guesses; an unset environment variable means no such model.
        draft = parameters.get("tensorrt_llm_draft_model_name", "")
        self._draft = os.environ.get(draft[2:-1], "") if draft.startswith("${") else draft
        self._rejected = _REJECTED if self._draft else {**_REJECTED, **_NO_DRAFT}
        self._silence_s = float(parameters["engine_silence_seconds"])
        self._workers = ThreadPoolExecutor(int(parameters["max_concurrent_requests"]), "request")
        self._jobs: dict[str, _Job] = {}
        self._read: deque[tuple[float, Any]] = deque()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="cancellation", daemon=True)
        self._watcher.start()

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> None:
        """Take requests; their answers are sent later (decoupled)."""
        for request in requests:
            # Copies: Triton reclaims the tensors when this method returns.
            inputs = {tensor.name(): np.array(tensor.as_numpy()) for tensor in request.inputs()}
            job = _Job(inputs, request.get_response_sender())
            with self._lock:
                self._jobs[job.request_id] = job
            self._workers.submit(self._serve, job)

    def finalize(self) -> None:
        """Stop the threads; Triton has already waited for the requests under way."""
        self._stopping.set()
        self._workers.shutdown(wait=False, cancel_futures=True)
        self._watcher.join()

    def _serve(self, job: _Job) -> None:
        try:
            self._generate(job)
        except _RequestError as error:
            job.fail(str(error))
        except pb_utils.TritonModelException as error:
            pb_utils.Logger.log_error(f"tensorrt_llm_bls: {error}")
            job.fail("a model that tensorrt_llm_bls calls is not available")
        finally:
            with self._lock:
                del self._jobs[job.request_id]
            job.fail("tensorrt_llm_bls failed")  # only if nothing else has ended it: a client must not wait for nothing

    def _generate(self, job: _Job) -> None:
        if job.stopped:  # cancelled while it waited for a thread
            job.end()
            return
        for name, reason in self._rejected.items():
            if name in job.inputs:
                raise _RequestError(f"{name} is not supported: {reason}")
        several = "num_return_sequences" in job.inputs and int(job.inputs["num_return_sequences"].reshape(-1)[0]) > 1
        inputs = self._preprocess(job)
        speculates = speculation.draft_length(inputs) > 0
        for tensors in self._speculate(job, inputs) if speculates else self._call_engine(job, _without_drafts(inputs)):
            if job.ended:  # nothing should follow, but the answers of the engine are read to their end
                continue
            # A finish reason marks the last data response immediately; an engine without finish reasons ends by itself.
            last = not several and any(map(bool, tensors.get("finish_reason", np.empty(0)).reshape(-1)))
            tensors["text_output"] = self._postprocess(job, tensors)
            job.send(tensors, last=last)
        if not job.ended and not several and not job.stopped and "finish_reason" in self._engine_outputs:
            # Triton loses an engine's error that comes after data, so this is how it shows.
            raise _RequestError("the engine failed: its response ended without a finish reason")
        job.end()

    def _preprocess(self, job: _Job) -> Tensors:
        inputs = {TO_PREPROCESSING[name]: value for name, value in job.inputs.items() if name in TO_PREPROCESSING}
        answer = _tensors(_request(self._preprocessing, job.request_id, inputs, self._for_engine).exec())
        for_engine = {RENAMED_FOR_ENGINE.get(name, name): value for name, value in job.inputs.items()}
        for_engine = {name: value for name, value in for_engine.items() if name not in TO_PREPROCESSING}
        return {**for_engine, **{PREPROCESSING_TO_ENGINE[name]: value for name, value in answer.items()}}

    def _speculate(self, job: _Job, inputs: Tensors) -> Iterator[Tensors]:
        refusal = speculation.refusal(inputs)
        if refusal is not None:
            raise _RequestError(refusal)
        return speculation.Speculation(
            inputs,
            draft=lambda asked: self._ask_draft(job, asked),
            target=lambda asked: self._ask(job, self._engine, asked),
            drafts=speculation.draft_length(inputs),
        ).answers()

    def _ask_draft(self, job: _Job, inputs: Tensors) -> Tensors | None:
        """The draft's only answer, or None where the draft rejects the request, for instance for a full context."""
        try:
            return self._ask(job, self._draft, inputs)
        except _RequestError as error:
            pb_utils.Logger.log_warn(f"tensorrt_llm_bls: continuing without {self._draft}: {error}")
            return None

    def _ask(self, job: _Job, model: str, inputs: Tensors) -> Tensors:
        """The one answer of an engine."""
        if job.stopped:
            return {"output_ids": np.zeros((1, 1, 0), np.int32), "sequence_length": np.zeros((1, 1), np.int32),
                    "finish_reason": np.array([[b"cancelled"]], np.object_)}  # fmt: skip
        outputs = self._engine_outputs
        if model != self._engine:
            logits = ["generation_logits"] if "return_generation_logits" in inputs else []
            outputs = ["output_ids", "sequence_length", *logits]
        answers = []
        for response in self._stream(_request(model, job.request_id, inputs, outputs)):
            job.heard_at = time.monotonic()
            if tensors := _tensors(response):
                answers.append(tensors)
        if len(answers) != 1:
            raise _RequestError(f"{model} returned {len(answers)} responses instead of one")
        return answers[0]

    def _call_engine(self, job: _Job, inputs: Tensors) -> Iterator[Tensors]:
        request = _request(self._engine, job.request_id, inputs, self._engine_outputs)
        for response in self._stream(request):
            job.heard_at = time.monotonic()
            tensors = _tensors(response)
            if tensors:
                yield tensors

    def _stream(self, request: pb_utils.InferenceRequest) -> Iterator[pb_utils.InferenceResponse]:
        # When an iterator has been read, a thread of Triton's stub drops it too, without holding Python's lock. Were
        # that the last reference, the stub would crash: so the iterator is kept until that has happened.
        iterator = request.exec(decoupled=True)
        try:
            yield from iterator
        finally:
            self._read.append((time.monotonic(), iterator))

    def _postprocess(self, job: _Job, tensors: Tensors) -> NDArray[Any]:
        inputs = {to: tensors[name] for name, to in ENGINE_TO_POSTPROCESSING.items() if name in tensors}
        answer = _tensors(_request(self._postprocessing, job.request_id, inputs, ["OUTPUT"]).exec())
        texts = answer["OUTPUT"]
        if not (self._accumulate and job.flag("stream")):
            return texts
        pieces = [bytes(text).decode() for text in texts.reshape(-1)]
        job.texts = [so_far + piece for so_far, piece in zip(job.texts or [""] * len(pieces), pieces, strict=True)]
        return np.array([text.encode() for text in job.texts], dtype=object)

    def _watch(self) -> None:
        while not self._stopping.wait(_CANCEL_CHECK_S):
            while self._read and time.monotonic() - self._read[0][0] > _KEEP_ITERATOR_S:
                self._read.popleft()
            with self._lock:
                jobs = [job for job in self._jobs.values() if not job.stopped]
            for job in jobs:
                silent = time.monotonic() - job.heard_at > self._silence_s
                if silent or job.is_cancelled():
                    job.stopped = True
                    self._stop(job.request_id)
                if silent:
                    job.fail(f"the engine sent no response for {self._silence_s:g} s")

    def _stop(self, request_id: str) -> None:
        # A cancelled caller does not end the call to the engine: its ``stop`` request does (the slot is freed).
        one = np.ones((1, 1), dtype=np.int32)
        inputs = {"input_ids": one, "input_lengths": one, "request_output_len": one, "stop": one.astype(bool)}
        request = _request(self._engine, request_id, inputs, ["output_ids", "sequence_length"])
        try:
            for response in self._stream(request):
                if response.has_error():
                    pb_utils.Logger.log_warn(f"stop of {request_id}: {response.error().message()}")
        except pb_utils.TritonModelException as error:
            pb_utils.Logger.log_warn(f"stop of {request_id}: {error}")


def _without_drafts(inputs: Tensors) -> Tensors:
    return {name: value for name, value in inputs.items() if name not in ("num_draft_tokens", "use_draft_logits")}


def _request(model: str, request_id: str, inputs: Tensors, outputs: list[str]) -> pb_utils.InferenceRequest:
    tensors = [pb_utils.Tensor(name, value) for name, value in inputs.items()]
    return pb_utils.InferenceRequest(
        model_name=model, request_id=request_id, inputs=tensors, requested_output_names=outputs
    )


def _tensors(response: pb_utils.InferenceResponse) -> Tensors:
    if response.has_error():
        raise _RequestError(response.error().message())
    return {tensor.name(): np.array(tensor.as_numpy()) for tensor in response.output_tensors()}
