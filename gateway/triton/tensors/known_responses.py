"""Known bytes of a model's responses: a response like an earlier one is not parsed.

Responses that say no more than a token have one template (`relay.response_template`). Those with its log-prob
have many forms: the list of log-probs grows with the answer. But at the same place of two answers it is the same.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2

from gateway.generation.engine import ScoredToken
from gateway.generation.relay.response_template import TemplateCache

_MOST_LEARNED = 4096  # examples, of some 500 bytes each; where something else varies each response would be one
_unpack_id = struct.Struct("<i").unpack_from
_unpack_value = struct.Struct("<f").unpack_from
_parse = service_pb2.ModelStreamInferResponse.FromString


class ResponseForm(NamedTuple):
    """The common bytes of responses of one form, and the places of the others.

    Attributes:
        known: the common bytes, each with its place.
        token: place of the token id.
        logprobs: place of the log-probs.
        length: number of log-probs.
        top_ids: place of the ids of the alternatives; 0 without alternatives.
        top_values: place of their log-probs.
        width: number of alternatives.
    """

    known: tuple[tuple[int, bytes], ...]
    token: int
    logprobs: int
    length: int
    top_ids: int = 0
    top_values: int = 0
    width: int = 0

    def read(self, message: bytes, place: int) -> ScoredToken:
        """Read the token of a response, and the log-prob at a place of the list."""
        return _unpack_id(message, self.token)[0], _unpack_value(message, self.logprobs + 4 * place)[0], None

    def read_alternatives(self, message: bytes) -> tuple[Sequence[int], Sequence[float]]:
        """Read ids and log-probs of the alternatives."""
        layout = f"<{self.width}"
        return struct.unpack_from(f"{layout}i", message, self.top_ids), struct.unpack_from(
            f"{layout}f", message, self.top_values
        )


class ResponseForms:
    """Forms of a model's responses with the same requested outputs, by the length of the response.

    Equal bytes mean equal fields: where a response has the known bytes at their places, it says the same as the one
    that was parsed but for the contents of those outputs, and for the id of its request.
    """

    def __init__(self) -> None:
        self._forms: dict[int, ResponseForm] = {}
        self._learned = 0  # examples looked at, whether they became a form or not

    def match(self, message: bytes) -> ResponseForm | None:
        """The form of a serialized response; None for an unknown one."""
        form = self._forms.get(len(message))
        if form is not None:
            for place, known in form.known:
                if not message.startswith(known, place):
                    return None
        return form

    def learn(self, message: bytes, names: Sequence[str], request_id: str) -> None:
        """Learn a form from a response.

        Args:
            message: serialized response with only one token, its log-prob and perhaps alternatives.
            names: names of its outputs, in order.
            request_id: id of its request.
        """
        if self._learned >= _MOST_LEARNED:
            return
        self._learned += 1
        found = _places(message, names, request_id)
        if found is None:
            return
        places, varying = found
        token, logprobs = places["output_ids"], places["output_log_probs"]
        form = ResponseForm(_between(message, varying), token[0], logprobs[0], (logprobs[1] - logprobs[0]) // 4)
        if {"top_log_probs_ids", "top_log_probs"} <= places.keys():
            ids, values = places["top_log_probs_ids"], places["top_log_probs"]
            form = form._replace(top_ids=ids[0], top_values=values[0], width=(ids[1] - ids[0]) // 4)
        self._forms[len(message)] = form


class KnownResponses:
    """The templates and forms of one model's responses.

    Attributes:
        tokens: template of responses with only a token.
        entries: forms of responses with its log-prob, by the requested outputs.
    """

    def __init__(self) -> None:
        self.tokens = TemplateCache(read_token)
        self.entries: defaultdict[tuple[str, ...], ResponseForms] = defaultdict(ResponseForms)


def read_token(message: bytes) -> bytes | None:
    """The first raw output of a serialized ``ModelStreamInferResponse``, int32 ids; None without one."""
    try:
        outputs = _parse(message).infer_response.raw_output_contents
    except DecodeError:
        return None
    return bytes(outputs[0]) if outputs else None


_Span = tuple[int, int]
_VARYING = frozenset({"output_ids", "output_log_probs", "top_log_probs_ids", "top_log_probs"})


def _places(message: bytes, names: Sequence[str], request_id: str) -> tuple[dict[str, _Span], list[_Span]] | None:
    """Find the spans of the varying outputs, by name, and of all that varies, in order; None where uncertain.

    It is certain where other bytes in these places make a response that differs in these fields and in no other.
    """
    places = _contents(message, names)
    if places is None:
        return None
    varying = sorted(places.values())
    own = request_id.encode()
    if message.count(own) == 1:
        start = message.find(own)
        varying.insert(0, (start, start + len(own)))
    other = bytearray(message)
    for start, end in varying:
        other[start:end] = b"\x01" * (end - start)
    return (places, varying) if _same_but_for(message, bytes(other), names) else None


def _contents(message: bytes, names: Sequence[str]) -> dict[str, _Span] | None:
    """Find the spans of the varying outputs' contents, fields 6 of field 2; None unless they end the response."""
    contents = _parse(message).infer_response.raw_output_contents
    places, end = {}, len(message)
    for name, raw in zip(reversed(names), reversed(contents), strict=True):
        start = end - len(raw)
        if message[start:end] != raw:
            return None
        if name in _VARYING:
            places[name] = (start, end)
        end = start - 1 - len(_varint(len(raw)))
    return places


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def _same_but_for(message: bytes, other: bytes, names: Sequence[str]) -> bool:
    """Whether two responses differ in the contents of the varying outputs and in the id of the request alone."""
    one = _parse(message)
    try:
        changed = _parse(other)
    except DecodeError:
        return False
    before, after = one.infer_response, changed.infer_response
    if len(before.raw_output_contents) != len(after.raw_output_contents):
        return False
    for index, name in enumerate(names):
        if name in _VARYING:
            if after.raw_output_contents[index] == before.raw_output_contents[index]:
                return False
            after.raw_output_contents[index] = before.raw_output_contents[index]
    after.id = before.id
    return bool(one == changed)


def _between(message: bytes, varying: Sequence[_Span]) -> tuple[tuple[int, bytes], ...]:
    """The bytes before, between and behind what varies, each with its place."""
    starts = [0, *(end for _, end in varying)]
    ends = [*(start for start, _ in varying), len(message)]
    return tuple((start, message[start:end]) for start, end in zip(starts, ends, strict=True) if start < end)
