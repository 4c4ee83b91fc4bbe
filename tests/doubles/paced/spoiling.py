"""Responses of an engine that has gone mad: each is changed in one way, none is what the contract says."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

DATATYPES = ("BOOL", "UINT8", "INT8", "INT64", "UINT32", "FP16", "BF16", "FP64", "FP32", "INT32", "BYTES", "")
IDS = {"output_ids", "top_log_probs_ids", "prompt_top_log_probs_ids"}
FLOATS = {"output_log_probs", "top_log_probs", "prompt_log_probs", "prompt_top_log_probs"}
VOCABULARY = 378
"""Of ``tests.tokens.build.byte_level``: the first id that is none of it, nor of the tiny model."""


def spoil_datatype(response: Any, place: int, pick: random.Random) -> None:
    response.outputs[place].datatype = pick.choice(DATATYPES)


def spoil_shape(response: Any, place: int, pick: random.Random) -> None:
    shape = response.outputs[place].shape
    if shape and pick.random() < 0.7:
        shape[pick.randrange(len(shape))] += pick.choice((-3, -1, 1, 2, 2**31))
    elif pick.random() < 0.5:
        shape.append(pick.choice((-1, 0, 1, 2)))
    else:
        values = list(shape)
        pick.shuffle(values)
        del shape[:]
        shape.extend(values[: pick.randrange(len(values) + 1)])


def spoil_length(response: Any, place: int, pick: random.Random) -> None:
    raw = response.raw_output_contents[place]
    response.raw_output_contents[place] = pick.choice((b"", raw[:-1], raw + b"\0", raw + b"\1\0\0\0", raw + raw))


def spoil_number(response: Any, place: int, pick: random.Random) -> None:
    response.raw_output_contents.pop() if pick.random() < 0.5 else response.raw_output_contents.append(b"\1\0\0\0")


def spoil_name(response: Any, place: int, pick: random.Random) -> None:
    response.outputs[place].name = pick.choice(["", "other", *(output.name for output in response.outputs)])


def drop(response: Any, place: int, _pick: random.Random) -> None:
    del response.outputs[place], response.raw_output_contents[place]


def repeat(response: Any, place: int, _pick: random.Random) -> None:
    response.outputs.append(response.outputs[place])
    response.raw_output_contents.append(response.raw_output_contents[place])


def shuffle(response: Any, _place: int, pick: random.Random) -> None:
    pairs = list(zip(response.outputs, response.raw_output_contents, strict=True))
    pairs = [(type(output).FromString(output.SerializeToString()), raw) for output, raw in pairs]
    pick.shuffle(pairs)
    del response.outputs[:], response.raw_output_contents[:]
    response.outputs.extend(output for output, _ in pairs)
    response.raw_output_contents.extend(raw for _, raw in pairs)


def spoil_value(response: Any, place: int, pick: random.Random) -> None:
    """A value that no engine in its senses sends."""
    name, raw = response.outputs[place].name, bytearray(response.raw_output_contents[place])
    if name in IDS:
        value = struct.pack("<i", pick.choice((-1, -(2**31), VOCABULARY, 2**31 - 1)))
    elif name in FLOATS:
        value = struct.pack("<f", pick.choice((float("nan"), float("inf"))))
    elif name == "finish_reason":
        word = pick.choice((b"timeout", b"TIMED_OUT", b"cancelled", b"None", b"error", b"\xff"))
        value = raw = bytearray(struct.pack("<I", len(word)) + word)  # type: ignore[assignment]
    else:
        too_long = (2**31 - 1,) if name == "sequence_length" else ()
        value = struct.pack("<i", pick.choice((-1, -(2**31), *too_long)))
    start = 4 * pick.randrange(max(len(raw) // 4, 1)) if name in IDS | FLOATS else 0
    raw[start : start + len(value)] = value
    response.raw_output_contents[place] = bytes(raw)


SPOILS: tuple[Callable[[Any, int, random.Random], None], ...] = (
    spoil_datatype, spoil_shape, spoil_length, spoil_number, spoil_name, drop, repeat, shuffle, spoil_value,
)  # fmt: skip
"""Each changes the output at a place of a ``ModelInferResponse``, so that nothing else can be read from it."""


def spoil_bit(response: Any, place: int, pick: random.Random) -> None:
    raw = bytearray(response.raw_output_contents[place] or b"\0")
    raw[pick.randrange(len(raw))] ^= 1 << pick.randrange(8)
    response.raw_output_contents[place] = bytes(raw)


def spoil_bytes(response: Any, place: int, pick: random.Random) -> None:
    response.raw_output_contents[place] = pick.randbytes(pick.choice((1, 3, 4, 8, 40, 4096)))


def spoil(message: Any, draw: random.Random) -> Any:
    """Change a response (``ModelStreamInferResponse``, in place) in one way, and return it."""
    outputs = (*SPOILS, spoil_bit, spoil_bytes)
    way = draw.randrange(len(outputs) + 4)
    end = message.infer_response.parameters["triton_final_response"]
    if way < len(outputs):
        outputs[way](message.infer_response, draw.randrange(len(message.infer_response.outputs)), draw)
    elif way == len(outputs):
        message.error_message = draw.choice(("", " ", "Traceback (most recent call last):\n  File", "ü" * 5000, "\x00"))
    elif way == len(outputs) + 1:
        end.bool_param = draw.random() < 0.5
    elif way == len(outputs) + 2:
        end.string_param = "yes"
    else:
        message.Clear()
    return message
