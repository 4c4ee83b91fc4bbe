"""A request's tensors in words: name, type, shape and values, as they would go over the wire."""

from __future__ import annotations

import struct
from typing import Any

from tritonclient.grpc import service_pb2

from gateway.triton.dialects.floats import convert

_MOST_VALUES = 64
_FORMATS = {"BOOL": "?", "INT32": "i", "INT64": "q", "UINT64": "Q", "FP16": "e", "FP32": "f"}


def describe_tensors(message: service_pb2.ModelInferRequest) -> list[dict[str, Any]]:
    """The input tensors of a request.

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
