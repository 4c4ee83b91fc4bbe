"""A raw gRPC client for tests: one request, one stream, every response with its final flag."""

from __future__ import annotations

import re
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import InferInput, InferResult, service_pb2, service_pb2_grpc
from tritonclient.utils import np_to_triton_dtype

from gateway_ops.local_stack.tritonserver import TritonServer

_DTYPES = {bool: np.bool_, int: np.int32, float: np.float32, str: np.object_, bytes: np.object_}
_OWN_DTYPE = {"seed": np.uint64}


@dataclass(frozen=True)
class Answer:
    """One response of a stream: tensors by name, or an error."""

    tensors: dict[str, NDArray[Any]]
    final: bool
    error: str = ""

    @property
    def text(self) -> str:
        """First string of the text output, empty where there is none."""
        texts = self.tensors.get("text_output", self.tensors.get("OUTPUT"))
        return "" if texts is None else bytes(texts.reshape(-1)[0]).decode()

    @property
    def ids(self) -> list[int]:
        """Token ids of this response."""
        return [int(token) for token in self.tensors["output_ids"].reshape(-1)]

    @property
    def finish_reason(self) -> str:
        """The engine's finish reason, empty where there is none."""
        reason = self.tensors.get("finish_reason")
        return "" if reason is None else bytes(reason.reshape(-1)[0]).decode()


def tensor(name: str, value: Any) -> NDArray[Any]:
    """An array as it goes on the wire: scalars as [1, 1], lists as [1, N], arrays as they are."""
    if isinstance(value, np.ndarray):
        return value
    values = value if isinstance(value, list) else [value]
    if isinstance(values[0], str):
        values = [text.encode() for text in values]
    return np.array([values], dtype=_OWN_DTYPE.get(name, _DTYPES[type(values[0])]))


def infer_request(model: str, request_id: str | None = None, **inputs: Any) -> Any:
    """A request with a fresh id unless one is given."""
    request = service_pb2.ModelInferRequest(model_name=model, id=uuid.uuid4().hex if request_id is None else request_id)
    for name, value in inputs.items():
        array = tensor(name, value)
        declared = InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        declared.set_data_from_numpy(array)
        request.inputs.append(declared._get_tensor())
        request.raw_input_contents.append(declared._get_content())
    return request


class Kserve:
    """gRPC calls on one server."""

    def __init__(self, url: str) -> None:
        self._channel = grpc.insecure_channel(url)
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def call(self, request: Any, timeout: float = 60.0) -> Any:
        """Open a stream with one request; the raw call, which can be cancelled."""
        return self.stub.ModelStreamInfer(iter([request]), timeout=timeout)

    def stream(self, model: str, request_id: str | None = None, timeout: float = 60.0, **inputs: Any) -> list[Answer]:
        """All responses of one request."""
        return list(answers(self.call(infer_request(model, request_id, **inputs), timeout)))

    def infer(self, model: str, request_id: str | None = None, **inputs: Any) -> Answer:
        """The one response of a model that is not decoupled."""
        response = self.stub.ModelInfer(infer_request(model, request_id, **inputs), timeout=30)
        return Answer(_arrays(response), final=True)

    def detokenize(self, request_id: str, ids: list[int], **inputs: Any) -> str:
        """Text that ``postprocessing`` gives for one piece of an answer."""
        tokens = np.array(ids, dtype=np.int32).reshape(1, 1, -1)
        return self.infer("postprocessing", request_id, TOKENS_BATCH=tokens, SEQUENCE_LENGTH=len(ids), **inputs).text

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()


def answers(call: Any) -> Iterator[Answer]:
    """Responses of an open stream."""
    for message in call:
        if message.error_message:
            yield Answer({}, final=False, error=message.error_message)
        else:
            final = message.infer_response.parameters["triton_final_response"].bool_param
            yield Answer(_arrays(message.infer_response), final)


def _arrays(response: Any) -> dict[str, NDArray[Any]]:
    result = InferResult(response)
    return {output.name: result.as_numpy(output.name) for output in response.outputs}


def metric(metrics_url: str, family: str, kind: str) -> float:
    """Value of one metric, by a label value."""
    with urllib.request.urlopen(metrics_url, timeout=5) as page:
        text = page.read().decode()
    match = re.search(rf'^{family}{{[^}}]*="{kind}"[^}}]*}} (\S+)$', text, re.MULTILINE)
    assert match is not None, f"no {family} {kind} in {metrics_url}"
    return float(match[1])


def steps(triton: TritonServer, model: str = "tensorrt_llm") -> float:
    """Steps that the engine of a model has taken."""
    with urllib.request.urlopen(triton.metrics_url, timeout=5) as page:
        text = page.read().decode()
    match = re.search(rf'^nv_trt_llm_general_metrics{{[^}}]*model="{model}"[^}}]*}} (\S+)$', text, re.MULTILINE)
    assert match is not None, text
    return float(match[1])
