"""Converts messages of Triton's gRPC API to readable JSON: tensors are lists of values with their names."""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from tritonclient.grpc import service_pb2

_SERVICE = "inference.GRPCInferenceService"
_FORMATS = {
    "BOOL": "?", "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q", "INT8": "b", "INT16": "h", "INT32": "i",
    "INT64": "q", "FP16": "e", "FP32": "f", "FP64": "d",
}  # fmt: skip
_BASE64 = "base64"
# Numbers reveal a text as token ids and vectors; strings always do, except for words of the protocol.
_SAYS = re.compile(r"(^|_)(ids|words|embeddings?|hidden_states?|input_features)(_|$)", re.IGNORECASE)
_VECTOR = re.compile(r"\[[-+.\deE, ]+\]")  # as the vLLM backend returns it
_PROTOCOL_WORDS = re.compile(r"finish_reason|guide_type|return_")
_DRAWN_SEEDS = 2**32  # seeds that a gateway draws are larger than those that users give

Json = dict[str, Any]


def read(method: str, raw: bytes, *, answer: bool) -> Json:
    """Read a message.

    Args:
        method: path of the call, such as ``/inference.GRPCInferenceService/ModelInfer``.
        raw: its bytes.
        answer: whether it is a response.
    """
    message = _message(method, answer=answer)
    if message is None:
        return {_BASE64: base64.b64encode(raw).decode()}
    try:
        message.MergeFromString(raw)
    except DecodeError:
        return {_BASE64: base64.b64encode(raw).decode()}
    inner = message.infer_response if isinstance(message, service_pb2.ModelStreamInferResponse) else message
    tensors = _taken(inner)
    found: Json = json_format.MessageToDict(message, preserving_proto_field_name=True)
    if tensors:
        found["tensors"] = tensors
    return found


def write(method: str, form: Mapping[str, Any], *, answer: bool) -> bytes:
    """Write a message from the form of ``read``.

    Raises:
        ValueError: the value does not have this form.
    """
    if set(form) == {_BASE64}:
        return _decoded(form)
    message = _message(method, answer=answer)
    if message is None:
        raise ValueError(f"{method} is not a call of Triton's")
    kept = {name: value for name, value in form.items() if name != "tensors"}
    try:
        json_format.ParseDict(kept, message)
    except json_format.ParseError as error:
        raise ValueError(str(error)) from None
    inner = message.infer_response if isinstance(message, service_pb2.ModelStreamInferResponse) else message
    tensors = form.get("tensors", {})
    if tensors:
        described = _described(inner)
        raws = [_raw(tensor.datatype, tensors[tensor.name]) for tensor in described]
        _contents(inner).extend(raws)
    return bytes(message.SerializeToString())


def redacted(form: Json) -> Json:
    """Copy a message with hidden texts and token ids: letters become ``x``, ids 0, as many as there were."""
    if _BASE64 in form:
        return {_BASE64: ""}
    tensors = {name: _hidden(name, values) for name, values in form.get("tensors", {}).items()}
    more = {"error_message": "x" * len(form["error_message"])} if form.get("error_message") else {}
    return form | ({"tensors": tensors} if tensors else {}) | more


def comparable(form: Json) -> Json:
    """The fields that identify a request: all except its id and a random seed of the gateway."""
    tensors = dict(form.get("tensors", {}))
    for name in ("seed", "random_seed"):
        values = tensors.get(name)
        if values and all(isinstance(value, int) and value >= _DRAWN_SEEDS for value in values):
            tensors[name] = ["drawn"]
    return {name: value for name, value in form.items() if name != "id"} | {"tensors": tensors}


def _message(method: str, *, answer: bool) -> Message | None:
    service, _, name = method.lstrip("/").partition("/")
    found = service_pb2.DESCRIPTOR.services_by_name[_SERVICE.rpartition(".")[2]].methods_by_name.get(name)
    if service != _SERVICE or found is None:
        return None
    made: Message = getattr(service_pb2, (found.output_type if answer else found.input_type).name)()
    return made


def _described(message: Any) -> list[Any]:
    return list(message.outputs if isinstance(message, service_pb2.ModelInferResponse) else message.inputs)


def _contents(message: Any) -> Any:
    answer = isinstance(message, service_pb2.ModelInferResponse)
    return message.raw_output_contents if answer else message.raw_input_contents


def _taken(message: Any) -> dict[str, list[Any] | Json]:
    """Take the raw values out of a message that has some, by the names of their tensors."""
    if not isinstance(message, service_pb2.ModelInferRequest | service_pb2.ModelInferResponse):
        return {}
    described, contents = _described(message), _contents(message)
    names = [tensor.name for tensor in described]
    if len(described) != len(contents) or len(set(names)) != len(names):
        return {}
    values = {tensor.name: _values(tensor.datatype, raw) for tensor, raw in zip(described, contents, strict=True)}
    del contents[:]
    return values


def _values(datatype: str, raw: bytes) -> list[Any] | Json:
    if datatype == "BYTES":
        return _texts(raw)
    form = _FORMATS.get(datatype)
    if form is None or len(raw) % struct.calcsize(form):
        return {_BASE64: base64.b64encode(raw).decode()}
    return list(struct.unpack(f"<{len(raw) // struct.calcsize(form)}{form}", raw))


def _texts(raw: bytes) -> list[Any] | Json:
    values: list[Any] = []
    at = 0
    while at < len(raw):
        end = at + 4 + int.from_bytes(raw[at : at + 4], "little")
        if end > len(raw):
            return {_BASE64: base64.b64encode(raw).decode()}
        try:
            values.append(raw[at + 4 : end].decode())
        except UnicodeDecodeError:
            values.append({_BASE64: base64.b64encode(raw[at + 4 : end]).decode()})
        at = end
    return values


def _raw(datatype: str, values: Any) -> bytes:
    if isinstance(values, dict):
        return _decoded(values)
    if datatype == "BYTES":
        elements = [_decoded(value) if isinstance(value, dict) else value.encode() for value in values]
        return b"".join(len(element).to_bytes(4, "little") + element for element in elements)
    try:
        return struct.pack(f"<{len(values)}{_FORMATS[datatype]}", *values)
    except (KeyError, struct.error) as error:
        raise ValueError(f"not values of {datatype}: {error}") from None


def _decoded(form: Mapping[str, Any]) -> bytes:
    try:
        return base64.b64decode(form[_BASE64], validate=True)
    except (KeyError, TypeError, binascii.Error):
        raise ValueError("neither a list of values nor base64") from None


def _hidden(name: str, values: Any) -> Any:
    if isinstance(values, dict):
        return {_BASE64: base64.b64encode(bytes(len(_decoded(values)))).decode()}
    if _PROTOCOL_WORDS.search(name):
        return values
    hide_numbers = _SAYS.search(name)
    return [_hidden_one(value, hide_numbers=hide_numbers is not None) for value in values]


def _hidden_one(value: Any, *, hide_numbers: bool) -> Any:
    if isinstance(value, str):
        return re.sub(r"[^], []+", "1.0", value) if _VECTOR.fullmatch(value) else re.sub(r"\w", "x", value)
    if isinstance(value, dict):
        return {_BASE64: base64.b64encode(bytes(len(_decoded(value)))).decode()}
    if not hide_numbers or isinstance(value, bool):
        return value
    return 1.0 if isinstance(value, float) else 0  # a vector of zeros is an error
