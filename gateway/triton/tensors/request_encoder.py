"""Converts values to input tensors, which have the name and type that the model declares."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2

from gateway.generation.engine import Capability, EngineError, ErrorKind
from gateway.text.contract import ModelSpec, TensorSpec
from gateway.triton.error_mapping import unsupported
from gateway.triton.model_view import ModelView
from gateway.triton.parameters import INPUTS, parameter_of

_FORMATS = {"BOOL": "?", "INT32": "i", "INT64": "q", "UINT64": "Q", "FP16": "e", "FP32": "f"}

Value = bool | int | float | str


class RequestEncoder:
    """Builds requests for one model.

    Args:
        model: what the model declares.
        spec: the contract's tensors, for the types of values and for older names.
    """

    def __init__(self, model: ModelView, spec: ModelSpec) -> None:
        self.model = model
        self._batch = (1,) if model.batched else ()
        # By the contract's newest name: the model's name, the contract's tensor, the model's type.
        self._inputs = {
            tensor.name: (name, tensor, model.datatypes.get(name, tensor.wire_datatype))
            for tensor in spec.inputs
            for name in tensor.names
            if name in model.inputs
        }

        names = {tensor.name for tensor in spec.inputs}
        self._tensors = {
            parameter: next((tensor for tensor in each.tensors if tensor in names), each.tensors[0])
            for parameter, each in INPUTS.items()
        }

    def tensor(self, parameter: str) -> str:
        """The contract's name of a request parameter's input."""
        return self._tensors[parameter]

    def declares(self, name: str) -> bool:
        """Tell whether the model has the input, under its newest name or an older one."""
        return name in self._inputs

    def request(self, request_id: str, outputs: Iterable[str]) -> service_pb2.ModelInferRequest:
        """Begin a request for ``outputs``."""
        request = service_pb2.ModelInferRequest(model_name=self.model.name, id=request_id)
        # Without it, a model that marks its end by a response of its own would end like a broken stream. Models that
        # mark their last data response send nothing more (wire contract 3.4).
        request.parameters["triton_enable_empty_final_response"].bool_param = True
        for name in outputs:
            request.outputs.add(name=name)
        return request

    def send(self, request: service_pb2.ModelInferRequest, parameter: str, *values: Value) -> None:
        """Add the input of a request parameter; see ``put``.

        Raises:
            EngineError: the model has no such input, or declares it with a type that its values have no place in.
        """
        if not self.put(request, self._tensors[parameter], *values):
            raise unsupported(parameter, self.model.name)

    def put(
        self, request: service_pb2.ModelInferRequest, name: str, *values: Value, shape: Sequence[int] | None = None
    ) -> bool:
        """Add an input, unless the model does not declare it.

        Args:
            request: where to add it.
            name: the contract's newest name.
            values: its elements in row-major order.
            shape: without the batch dimension; a vector when left out.

        Returns:
            Whether the model has the input.

        Raises:
            EngineError: the model declares it with a type that its values have no place in.
        """
        declared = self._inputs.get(name)
        if declared is None:
            return False
        return self.put_raw(
            request, name, _pack(declared[1], values), shape=shape if shape is not None else (len(values),)
        )

    def put_raw(self, request: service_pb2.ModelInferRequest, name: str, raw: bytes, *, shape: Sequence[int]) -> bool:
        """Add an input from its content, packed with the contract's type; see ``put``.

        A model may declare another floating type, as TensorRT-LLM's templates let prompt tables be: the content is
        converted to it.
        """
        declared = self._inputs.get(name)
        if declared is None:
            return False
        wire_name, spec, datatype = declared
        if datatype != spec.wire_datatype:
            raw = self._converted(name, raw, spec.wire_datatype, datatype)
        request.inputs.add(name=wire_name, datatype=datatype, shape=(*self._batch, *shape))
        request.raw_input_contents.append(raw)
        return True

    def misfit(self, name: str) -> str | None:
        """Say why no value can be sent as a declared input, as the end of a sentence; None where it can."""
        wire_name, spec, declared = self._inputs[name]
        if declared == spec.wire_datatype or {declared, spec.wire_datatype} <= FLOATS:
            return None
        return f"its input {wire_name} is declared as {declared}, but the gateway sends {spec.wire_datatype}"

    def capability(self, name: str, note: str, limit: int | None = None) -> Capability:
        """Make a native capability with ``note``, where the model declares the input with a fitting type."""
        if not self.declares(name):
            return Capability("impossible", f"The Triton model {self.model.name!r} has no input {name}.")
        if misfit := self.misfit(name):
            why = f"The Triton model {self.model.name!r} declares the input with other types: {misfit}."
            return Capability("impossible", why)
        return Capability("native", note, limit)

    def _converted(self, name: str, raw: bytes, source: str, target: str) -> bytes:
        misfit = self.misfit(name)
        converted = convert(raw, source, target) if misfit is None else None
        if converted is None:
            reason = (
                misfit or f"its input {name} is declared as {target}, which is too small for a number of this request"
            )
            message = f"This request cannot be sent to the model: {reason}."
            raise EngineError(ErrorKind.INVALID_REQUEST, message, self.model.name, param=parameter_of(name))
        return converted


def _pack(spec: TensorSpec, values: Sequence[Value]) -> bytes:
    if spec.datatype == "STRING":
        texts = [str(value).encode() for value in values]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    return struct.pack(f"<{len(values)}{_FORMATS[spec.datatype]}", *values)


def pack_words(words: Sequence[Sequence[int]]) -> tuple[list[int], tuple[int, int]]:
    """Pack words of token ids as the engine's word lists want them (wire contract 1.4).

    Row 0 holds all ids, padded with 0; row 1 the cumulative end of each word, padded with -1.

    Returns:
        The elements in row-major order and the shape, ``(2, width)``.
    """
    ids = [token for word in words for token in word]
    ends: list[int] = []
    for word in words:
        ends.append((ends[-1] if ends else 0) + len(word))
    width = max(len(ids), len(ends))
    return ids + [0] * (width - len(ids)) + ends + [-1] * (width - len(ends)), (2, width)


FLOATS = frozenset({"FP16", "BF16", "FP32"})
"""Types that numbers may be converted between."""

_NUMPY = {"FP16": "<f2", "BF16": "<u2", "FP32": "<f4"}


def convert(raw: bytes, source: str, target: str) -> bytes | None:
    """Convert numbers to another floating type, rounded to the nearest.

    Args:
        raw: finite numbers, packed with little endian.
        source: their type, one of ``FLOATS``; a BF16 is the upper half of an FP32.
        target: the type to convert to.

    Returns:
        The same numbers, packed with ``target``; None where one of them is too large for it.
    """
    numbers = np.frombuffer(raw, _NUMPY[source])
    wide: NDArray[np.float32] = _widened(numbers) if source == "BF16" else numbers.astype("<f4")
    if target == "BF16":
        return _to_bf16(wide)
    with np.errstate(over="ignore"):
        narrow = wide.astype(_NUMPY[target])
    return narrow.tobytes() if np.isfinite(narrow).all() else None


def _widened(halves: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (halves.astype("<u4") << 16).view("<f4")


def _to_bf16(wide: NDArray[np.float32]) -> bytes | None:
    """Round to the nearest, to an even last bit where two are as near."""
    bits = wide.view("<u4")
    halves = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    return halves.tobytes() if np.isfinite(_widened(halves)).all() else None


_MOST_VALUES = 64


def describe_tensors(message: service_pb2.ModelInferRequest) -> list[dict[str, Any]]:
    """Describe the input tensors of a request.

    Returns:
        For each tensor its ``name``, ``datatype`` and ``shape`` on the wire, ``size`` (elements), and ``data``: its
        elements in row-major order, the first 64 of them.
    """
    described = []
    for tensor, raw in zip(message.inputs, message.raw_input_contents, strict=True):
        values = _values(tensor.datatype, raw)
        described.append(
            {
                "name": tensor.name,
                "datatype": tensor.datatype,
                "shape": list(tensor.shape),
                "size": len(values),
                "data": values[:_MOST_VALUES],
            }
        )
    return described


def _values(datatype: str, raw: bytes) -> list[Any]:
    if datatype == "BF16":  # which Python has no format for
        datatype, raw = "FP32", convert(raw, "BF16", "FP32") or b""
    if datatype != "BYTES":
        format_ = _FORMATS[datatype]
        count = len(raw) // struct.calcsize(f"<{format_}")
        return list(struct.unpack(f"<{count}{format_}", raw))
    texts, start = [], 0
    while start < len(raw):
        (length,) = struct.unpack_from("<I", raw, start)
        texts.append(raw[start + 4 : start + 4 + length].decode("utf-8", "replace"))
        start += 4 + length
    return texts
