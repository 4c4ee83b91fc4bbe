"""Reads the outputs of a response by name, and checks them against the contract."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2

from gateway.generation.engine import EngineChunk, MalformedOutputError
from gateway.text.bounded_dict import BoundedDict
from gateway.text.contract import BLS, TENSORRT_LLM, VLLM
from gateway.triton.error_mapping import read_finish

_MOST_KNOWN = 4096  # cumulative outputs have another shape in each response
_SINGLE = ["output_ids", "sequence_length"]
_SIZES = {"INT32": 4, "UINT32": 4, "FP32": 4}
_MODELS = (TENSORRT_LLM, BLS, VLLM)
_DATATYPES: dict[str, set[str]] = {}
for _name, _datatype in ((spec.name, spec.wire_datatype) for model in _MODELS for spec in model.outputs):
    _DATATYPES.setdefault(_name, set()).add(_datatype)
_SCALARS = frozenset({"num_input_tokens"})  # the vLLM backend gives it no dimension


class _Form(NamedTuple):
    """The description of one output in a response: all but its contents.

    Attributes:
        name: of the output.
        shape: of its elements.
        elements: how many.
        beams: how many sequences they are of, where the last dimension is that of tokens.
        length: bytes that they have; None where they have no size of their own.
        problem: what is wrong with it; None when nothing is.
    """

    name: str
    shape: tuple[int, ...]
    elements: int
    beams: int
    length: int | None
    problem: str | None


class _Arrangement(NamedTuple):
    """The checked description of the outputs of a response.

    Attributes:
        names: of all, in order.
        forms: of the wanted ones.
        lengths: bytes of those that have a size of their own.
        single: whether they are one token id, and nothing beside it.
    """

    names: list[str]
    forms: Mapping[str, _Form]
    lengths: list[tuple[str, int]]
    single: bool


class OutputReader:
    """Reads the outputs of responses.

    Each form of an output is checked once, and so is each combination of them: mostly only the contents of responses
    differ, and of those the number of bytes is compared.

    Args:
        names: names of the outputs to read; others are ignored, as some versions send outputs unrequested (wire
            contract 9.2).
        beams: most sequences of a response.

    Attributes:
        forms: forms of the wanted outputs in the last response.
        single: whether the last response has one token id and nothing else.
    """

    __slots__ = ("_arrangements", "_beams", "_wanted", "forms", "single")

    def __init__(self, names: tuple[str, ...], beams: int = 1) -> None:
        self._wanted = frozenset(names)
        self._beams = beams
        self._arrangements = BoundedDict[tuple[bytes, ...], _Arrangement](_MOST_KNOWN)
        self.forms: Mapping[str, _Form] = {}
        self.single = False

    def read(self, response: service_pb2.ModelInferResponse) -> dict[str, bytes]:
        """Read the contents by name.

        Raises:
            MalformedOutputError: a wanted output is not what the contract says, or the contents are not those of the
                outputs that are named.
        """
        contents = response.raw_output_contents
        # To serialize an output costs no more than to read its name.
        described = tuple([output.SerializeToString() for output in response.outputs])
        found = self._arrangements.get(described)
        if found is None:
            found = self._arrange(described, [_known.get(each) or _learn(each) for each in described])
        self.forms, self.single = found.forms, found.single
        if len(contents) != len(described):
            raise MalformedOutputError(f"the response has {len(described)} outputs but the contents of {len(contents)}")
        outputs = dict(zip(found.names, contents, strict=True))
        for name, length in found.lengths:
            if len(outputs[name]) != length:
                raise MalformedOutputError(f"{name} has {len(outputs[name])} bytes, but its shape requires {length}")
        return outputs

    def _arrange(self, described: tuple[bytes, ...], forms: list[_Form]) -> _Arrangement:
        """Check outputs that have not come together in this form before."""
        names = [form.name for form in forms]
        if len(set(names)) != len(names):
            raise MalformedOutputError(f"an output comes twice: {', '.join(names)}")
        wanted = {form.name: form for form in forms if form.name in self._wanted}
        for form in wanted.values():
            if form.problem is not None:
                raise MalformedOutputError(form.problem)
        _check_beams(wanted, self._beams)
        lengths = [(form.name, form.length) for form in wanted.values() if form.length is not None]
        single = names == _SINGLE and forms[0].elements == 1
        found = self._arrangements[described] = _Arrangement(names, wanted, lengths, single)
        return found

    @staticmethod
    def number(contents: Mapping[str, bytes], name: str) -> int | None:
        """Read an output that counts; None when the response does not have it.

        Raises:
            MalformedOutputError: the output is not one number, or below 0.
        """
        raw = contents.get(name)
        if raw is None:
            return None
        value = int.from_bytes(raw, "little", signed=True)
        if len(raw) != 4 or value < 0:
            raise MalformedOutputError(f"{name} is {raw[:16]!r}")
        return value

    def string(self, contents: Mapping[str, bytes], name: str) -> bytes | None:
        """Read the string of an output, of beams the first; None when the response has none.

        Raises:
            MalformedOutputError: the contents are not the strings of its shape, or more than there are beams.
        """
        raw = contents.get(name)
        if raw is None:
            return None
        strings, end, behind = 0, 4 + int.from_bytes(raw[:4], "little"), 0
        while behind < len(raw):
            behind += 4 + int.from_bytes(raw[behind : behind + 4], "little")
            strings += 1
        if behind != len(raw) or strings != self.forms[name].elements or strings > self._beams:
            raise MalformedOutputError(f"{name} has {strings} strings in {len(raw)} bytes")
        return raw[4:end] if strings else None

    def read_finish(self, contents: Mapping[str, bytes], chunk: EngineChunk) -> None:
        """Set on a chunk why the answer ended, where the response says it."""
        word = self.string(contents, "finish_reason")
        if word:
            chunk.finish_reason, chunk.failure = read_finish(word, final=chunk.final)


_known = BoundedDict[bytes, _Form](_MOST_KNOWN)
_parse_output = service_pb2.ModelInferResponse.InferOutputTensor.FromString


def _learn(described: bytes) -> _Form:
    output = _parse_output(described)
    name, datatype, shape = output.name, output.datatype, tuple(output.shape)
    problem = None
    if name in _DATATYPES and datatype not in _DATATYPES[name]:
        problem = f"{name} has the datatype {datatype}"
    elif min(shape, default=0 if name in _SCALARS else -1) < 0:
        problem = f"{name} has the shape {list(shape)}"
    elements = math.prod(shape)
    length = _SIZES[datatype] * elements if datatype in _SIZES else None
    form = _Form(name, shape, elements, math.prod(shape[:-1]), length, problem)
    _known[described] = form
    return form


def _check_beams(forms: Mapping[str, _Form], limit: int) -> None:
    """Compare the outputs that have a part for each beam."""
    ids, length = forms.get("output_ids"), forms.get("sequence_length")
    if ids is None or length is None:
        if ids is not None or length is not None:
            raise MalformedOutputError("only one of output_ids and sequence_length was returned")
        return
    if not 1 <= ids.beams <= limit or length.elements != ids.beams:
        raise MalformedOutputError(f"output_ids {ids.shape} and sequence_length {length.shape} of {limit} beams")
    values = forms.get("output_log_probs")
    if values is not None and values.beams != ids.beams:
        raise MalformedOutputError(f"output_log_probs {values.shape} beside output_ids {ids.shape}")


_TYPES: dict[str, Any] = {"FP32": np.dtype("<f4"), "FP16": np.dtype("<f2")}

Alternatives = list[tuple[int, float]]


def read_rows(response: service_pb2.ModelInferResponse, name: str) -> NDArray[Any] | None:
    """Read the logits of an output as rows, [positions, vocabulary]; None when the response has none.

    The dimensions before the last hold one beam's positions, in whatever order the engine puts the beam.

    Raises:
        MalformedOutputError: they are of another type, or not as many as their shape says.
    """
    for output, raw in zip(response.outputs, response.raw_output_contents, strict=False):
        if output.name == name:
            if output.datatype not in _TYPES or not output.shape:
                raise _broken(f"{name} must be FP32 or FP16 with dimensions: {output.datatype} {list(output.shape)}")
            size, width = _TYPES[output.datatype].itemsize, int(output.shape[-1])
            if min(output.shape) < 0 or math.prod(output.shape) * size != len(raw):
                raise _broken(f"{name} has {len(raw)} bytes, but its shape is {list(output.shape)}")
            return np.frombuffer(raw, _TYPES[output.datatype]).reshape(-1, width) if raw else None
    return None


def log_probs(
    rows: NDArray[Any], chosen: Sequence[int], alternatives: int, vocab_size: int | None
) -> tuple[list[float], list[Alternatives]]:
    """Compute the log-prob of one chosen token per row, and the best alternatives.

    Args:
        rows: [at least len(chosen), vocabulary], padding at the end of the vocabulary allowed.
        chosen: a token id for each row.
        alternatives: number per row.
        vocab_size: width of the vocabulary without padding; None takes all.

    Raises:
        MalformedOutputError: the rows do not fit.
    """
    width = vocab_size or rows.shape[1]
    if rows.shape[0] < len(chosen) or rows.shape[1] < width or any(not 0 <= token < width for token in chosen):
        raise _broken(f"logits {rows.shape} for {len(chosen)} tokens of a vocabulary of {vocab_size}")
    values: list[float] = []
    best: list[Alternatives] = []
    for row, token in zip(rows, chosen, strict=False):
        scores = row[:width].astype(np.float64)
        peak = scores.max()
        with np.errstate(invalid="ignore"):  # NaN is rejected when an entry is made
            scores -= peak + np.log(np.exp(scores - peak).sum())
        values.append(float(scores[token]))
        best.append(_best(scores, alternatives))
    return values, best


def ranks(rows: NDArray[Any], chosen: Sequence[int], vocab_size: int | None) -> list[int]:
    """The rank of each chosen token in its row, from 1; arguments as of ``log_probs``, which checks them."""
    width = min(rows.shape[1], vocab_size or rows.shape[1])
    return [
        1 + int(np.count_nonzero(row[:width] > row[token])) + int(np.count_nonzero(row[:token] == row[token]))
        for row, token in zip(rows, chosen, strict=False)
    ]


def _best(scores: NDArray[np.float64], count: int) -> Alternatives:
    if not count:
        return []
    candidates = np.sort(np.argpartition(-scores, count)[:count]) if count < len(scores) else np.arange(len(scores))
    order = candidates[np.argsort(-scores[candidates], kind="stable")]
    return [(int(index), float(scores[index])) for index in order]


def _broken(detail: str) -> MalformedOutputError:
    return MalformedOutputError(detail, "The engine returned logits that do not fit its tokens.")
