"""The base of every engine's adapter to Triton: it reads requests, hands them over, sends answers and errors."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable
from typing import Any, Protocol

import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

from wire.inputs import parse
from wire.outputs import Tensors, default_output, to_tensors
from wire.request import RejectedError, Request
from wire.response import Response

_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
# With tritonserver 2.51, a response sent immediately after learning of a cancel was at times never acknowledged, and
# the model hung for ever. Why is not known. With this pause, three runs of 12,500 cancels each had no failure.
_AFTER_CANCEL_S = 0.002
# How often Triton is asked: the question costs as much as an answer, and an engine may have it for every token. A slot
# is to be free within two steps of an engine that takes 20 ms for one; the default of TensorRT-LLM is 100.
_CANCEL_CHECK_MS = "20"
_KEPT_TENSORS = 1024  # some 0.2 MB of shared memory


class _Tensors(threading.local):
    """Tensors that are kept: one may be sent many times, and lies in shared memory after the first.

    Each thread has its own, which end with it: no two threads may send one for the first time together, and none may be
    left when Triton has closed its shared memory.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], tuple[NDArray[Any], pb_utils.Tensor]] = {}

    def make(self, name: str, array: NDArray[Any]) -> pb_utils.Tensor:
        """The tensor of an array; of a read-only number, which `wire.outputs` makes but once, the same as before."""
        if array.size != 1 or array.flags.writeable:
            return pb_utils.Tensor(name, array)
        key = (name, id(array))  # the array is kept too, so that no other has its id
        kept = self._kept.get(key)
        if kept is None:
            if len(self._kept) == _KEPT_TENSORS:
                del self._kept[next(iter(self._kept))]
            kept = self._kept[key] = (array, pb_utils.Tensor(name, array))
        return kept[1]


_tensors = _Tensors()


class Handle:
    """One client of the engine: asked whether it is still there, and answered."""

    def __init__(self, sender: pb_utils.InferenceResponseSender, cancel_check_s: float) -> None:
        """Take Triton's response sender, and how often to ask it whether the client is gone."""
        self._sender = sender
        self._cancel_check_s = cancel_check_s
        self._ended = False
        self._lock = threading.Lock()
        self._next_check = 0.0

    def is_cancelled(self) -> bool:
        """Whether the client is gone, by the latest question to Triton; False once the last answer is out."""
        now = time.monotonic()
        # Under the lock: asked during or after the final flag, the question crashes tritonserver.
        with self._lock:
            if self._ended or now < self._next_check:
                return False
            if not self._sender.is_cancelled():
                self._next_check = now + self._cancel_check_s
                return False
        time.sleep(_AFTER_CANCEL_S)
        return True

    def send(self, tensors: Tensors, *, final: bool) -> None:
        """Answer with tensors by name; nothing follows the final answer."""
        # A name for the list: an output that was not requested dies within send, without the GIL, unless this keeps it.
        outputs = [_tensors.make(name, array) for name, array in tensors.items()]
        with self._lock:
            if self._ended:
                return
            self._sender.send(pb_utils.InferenceResponse(output_tensors=outputs), flags=_FINAL if final else 0)
            self._ended = final

    def reject(self, error: RejectedError) -> None:
        """Answer that a request is not taken."""
        self._send_error(str(error), queue_full=error.queue_full)

    def fail(self, message: str) -> None:
        """End an answer, which may have begun, by an error; nothing happens where it has ended."""
        self._send_error(message, apart=True)

    def _send_error(self, message: str, *, queue_full: bool = False, apart: bool = False) -> None:
        """``apart``: the final flag goes by itself; else a BLS caller that has data would hang."""
        code = pb_utils.TritonError.UNAVAILABLE if queue_full else pb_utils.TritonError.INTERNAL
        response = pb_utils.InferenceResponse(output_tensors=[], error=pb_utils.TritonError(message, code))
        with self._lock:
            if self._ended:
                return
            self._ended = True
            self._sender.send(response, flags=0 if apart else _FINAL)
            if apart:
                self._sender.send(flags=_FINAL)


class Engine(Protocol):
    """A generator of tokens."""

    def submit(self, request: Request) -> None:
        """Take a request, or raise `RejectedError`."""

    def cancel(self, request_id: str) -> None:
        """End a request; an unknown id is harmless."""


class BaseAdapter:
    """Triton's calls in the terms of an `Engine`, which a subclass makes and whose answers it passes to ``_send``."""

    _engine: Engine
    _gathers_logits = False
    _guided = False
    _takes: frozenset[str] = frozenset()

    def __init__(self, args: dict[str, str]) -> None:
        """Read the parameters that concern every engine.

        Raises:
            RuntimeError: one has no valid value.
        """
        self._parameters = parameters_of(args)
        self._labels = {"model": args["model_name"], "version": args["model_version"]}
        self._exclude_input = self._is_true("exclude_input_in_output", "false")
        self._cancel_check_s = self._whole_number("cancellation_check_period_ms", _CANCEL_CHECK_MS) / 1000
        emitted = self._parameters.get("always_emit", "").replace(" ", "").split(",")
        self._always_emit = [name for name in emitted if name]

    def execute(self, requests: Iterable[pb_utils.InferenceRequest]) -> None:
        """Submit requests; a rejected request gets its error immediately."""
        for request in requests:
            self._take(request)

    def _is_true(self, parameter: str, default: str) -> bool:
        return self._parameters.get(parameter, default).lower() == "true"

    def _whole_number(self, parameter: str, default: str) -> int:
        text = self._parameters.get(parameter, default)
        if not text.isdecimal():
            raise RuntimeError(f"{parameter} is {text!r}; it must be a whole number")
        return int(text)

    def _take(self, request: pb_utils.InferenceRequest) -> None:
        handle = Handle(request.get_response_sender(), self._cancel_check_s)
        try:
            inputs = {tensor.name(): _array(tensor) for tensor in request.inputs()}
            if "stop" in inputs and inputs["stop"].any():
                self._stop(request.request_id(), handle)
                return
            parsed = parse(
                inputs,
                request_id=request.request_id(),
                exclude_input=self._exclude_input,
                gathers_logits=self._gathers_logits,
                guided=self._guided,
                takes=self._takes,
                is_cancelled=handle.is_cancelled,
            )
            parsed.handle = handle
            self._engine.submit(parsed)
        except RejectedError as error:
            handle.reject(error)

    def _stop(self, request_id: str, handle: Handle) -> None:
        if not request_id:
            raise RejectedError("Trying to stop a request but request ID is not provided")
        self._engine.cancel(request_id)
        handle.send({}, final=True)

    def _send(self, response: Response) -> None:
        if response.error is not None:
            self._fail(response.request, response.error)
            return
        handle = _handle(response.request)
        tensors = to_tensors(response)
        for name in self._always_emit:
            tensors.setdefault(name, default_output(name))
        handle.send(tensors, final=response.final)

    def _fail(self, request: Request, reason: str) -> None:
        message = f"Executor failed process requestId {request.id} due to the following error: {reason}"
        _handle(request).fail(message)


def _array(tensor: pb_utils.Tensor) -> NDArray[Any]:
    try:
        return tensor.as_numpy()
    except pb_utils.TritonModelException as error:  # BF16, which NumPy does not have
        raise RejectedError(f"{tensor.name()}: its type in config.pbtxt is not supported by the engine") from error


def _handle(request: Request) -> Handle:
    assert isinstance(request.handle, Handle)  # noqa: S101 - set when it was taken
    return request.handle


def parameters_of(args: dict[str, str]) -> dict[str, str]:
    """Model parameters of Triton's ``args``; ``${NAME}`` stands for that variable, absent where it is not set."""
    entries = json.loads(args["model_config"]).get("parameters", {})
    values = {name: _expand(entry["string_value"]) for name, entry in entries.items()}
    return {name: value for name, value in values.items() if value}


def _expand(value: str) -> str:
    is_variable = value.startswith("${") and value.endswith("}")
    return os.environ.get(value[2:-1], "") if is_variable else value
