"""Responses of an engine that has gone mad: each is changed in one way, none is what the contract says."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

_DATATYPES = ("BOOL", "INT8", "INT64", "UINT32", "FP16", "FP32", "BYTES", "", "nonsense")


def spoil(message: Any, draw: random.Random) -> Any:
    """Change a response (``ModelStreamInferResponse``, in place) in one way, and return it."""
    draw.choice(_WAYS)(message, draw)
    return message


def _without_output(message: Any, draw: random.Random) -> None:
    index = draw.randrange(len(message.infer_response.outputs))
    del message.infer_response.outputs[index]


def _without_content(message: Any, draw: random.Random) -> None:
    del draw
    del message.infer_response.raw_output_contents[:]


def _twice(message: Any, draw: random.Random) -> None:
    index = draw.randrange(len(message.infer_response.outputs))
    message.infer_response.outputs.append(message.infer_response.outputs[index])
    message.infer_response.raw_output_contents.append(message.infer_response.raw_output_contents[index])


def _renamed(message: Any, draw: random.Random) -> None:
    draw.choice(message.infer_response.outputs).name = draw.choice(("", "output_ids", "sequence_length", "ünknown"))


def _of_another_type(message: Any, draw: random.Random) -> None:
    draw.choice(message.infer_response.outputs).datatype = draw.choice(_DATATYPES)


def _of_another_shape(message: Any, draw: random.Random) -> None:
    shape = draw.choice(message.infer_response.outputs).shape
    shape[:] = [draw.choice((-1, 0, 1, 2, 7, 2**40)) for _ in range(draw.randrange(5))]


def _other_bytes(message: Any, draw: random.Random) -> None:
    contents = message.infer_response.raw_output_contents
    index = draw.randrange(len(contents))
    contents[index] = draw.randbytes(draw.choice((0, 1, 3, 4, 8, 40, 4096)))


def _flipped(message: Any, draw: random.Random) -> None:
    contents = message.infer_response.raw_output_contents
    index = draw.randrange(len(contents))
    spoiled = bytearray(contents[index])
    if spoiled:
        spoiled[draw.randrange(len(spoiled))] ^= 1 << draw.randrange(8)
    contents[index] = bytes(spoiled)


def _an_error(message: Any, draw: random.Random) -> None:
    message.error_message = draw.choice(("", " ", "Traceback (most recent call last):\n  File", "ü" * 5000, "\x00"))


def _an_end(message: Any, draw: random.Random) -> None:
    message.infer_response.parameters["triton_final_response"].bool_param = draw.random() < 0.5


def _an_end_of_another_type(message: Any, draw: random.Random) -> None:
    del draw
    message.infer_response.parameters["triton_final_response"].string_param = "yes"


def _nothing(message: Any, draw: random.Random) -> None:
    del draw
    message.Clear()


_WAYS: tuple[Callable[[Any, random.Random], None], ...] = (
    _without_output, _without_content, _twice, _renamed, _of_another_type, _of_another_shape, _other_bytes, _flipped,
    _an_error, _an_end, _an_end_of_another_type, _nothing,
)  # fmt: skip
