"""Chunks of a stream as ready Server-Sent Events: everything but the text is built once for each request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from gateway.generation import Piece, TokenLogprob, Usage
from gateway.openai.answering import DONE
from gateway.openai.chat.logprobs import logprobs_json, logprobs_object
from gateway.openai.usage import usage_object
from gateway.relay.interface import Forward, Write
from gateway.relay.text_events import text_events


@dataclass(slots=True)
class Extras:
    """What belongs to the tokens of a chunk.

    Attributes:
        logprobs: entries; empty when not asked for.
        ids: token ids; None when not asked for.
    """

    logprobs: list[TokenLogprob] = field(default_factory=list)
    ids: list[int] | None = None


class ChunkWriter:
    """Writes the events of one answer.

    Attributes:
        wants_usage: whether every chunk needs the usage so far.
    """

    __slots__ = ("_after", "_before", "_close", "_head", "_heads", "_include_usage", "_names_as_ids", "wants_usage")

    def __init__(
        self,
        completion_id: str,
        created: int,
        model: str,
        *,
        include_usage: bool,
        continuous_usage: bool = False,
        choices: int = 1,
        service_tier: str | None = None,
        names_as_ids: bool = False,
    ) -> None:
        """Build what all chunks share.

        Args:
            completion_id: the answer's id.
            created: Unix time.
            model: the served model's name.
            include_usage: whether a usage chunk will come; then the others say ``"usage": null``.
            continuous_usage: whether the others have the usage so far instead.
            choices: how many there are.
            service_tier: the tier, where the request asked for one.
            names_as_ids: whether log-prob entries name tokens by their ids.
        """
        fields = {"id": completion_id, "object": "chat.completion.chunk", "created": created, "model": model}
        if service_tier is not None:
            fields["service_tier"] = service_tier
        self.wants_usage = continuous_usage
        self._include_usage = include_usage
        self._names_as_ids = names_as_ids
        self._head = b"data: " + orjson.dumps(fields)[:-1] + b',"choices":['
        self._close = (b'],"usage":null}' if include_usage else b"]}") + b"\n\n"
        self._before = [self._head + b'{"index":%d,"delta":{"content":' % index for index in range(choices)]
        self._heads: dict[tuple[str, ...], list[bytes]] = {}  # by the fields of a text, what stands before each
        self._after = b'},"logprobs":null,"finish_reason":null}' + self._close

    def role(
        self, index: int, prompt_ids: Sequence[int] | None = None, usage: Usage | None = None, *, calls: bool = False
    ) -> bytes:
        """The first chunk of a choice; the very first one may have the prompt's ids.

        Its content is null where the answer may consist of ``calls`` only.
        """
        delta = b'{"role":"assistant","content":null}' if calls else b'{"role":"assistant","content":""}'
        choice = b'{"index":%d,"delta":%s,"logprobs":null,"finish_reason":null}' % (index, delta)
        ids = b"" if prompt_ids is None else b',"prompt_token_ids":' + orjson.dumps(list(prompt_ids))
        return self._head + choice + self._closing(usage).replace(b"]", b"]" + ids, 1)

    def piece(self, index: int, piece: Piece, usage: Usage | None = None) -> bytes:
        """A chunk with text, the log-prob entries and the ids that belong to it."""
        start = self._before[index] + orjson.dumps(piece.text)
        if not piece.logprobs and usage is None and piece.ids is None:
            return start + self._after
        if piece.logprobs and not self._names_as_ids:
            logprobs = logprobs_json(piece.logprobs)
        else:
            logprobs = orjson.dumps(self._logprobs(piece.logprobs))
        ids = b""
        if piece.ids is not None:
            ids = b',"token_ids":' + orjson.dumps(piece.ids)
        return start + b'},"logprobs":' + logprobs + b',"finish_reason":null' + ids + b"}" + self._closing(usage)

    def forward(self, write: Write) -> Forward:
        """What writes pieces of the only choice at once.

        Args:
            write: takes events on one line each.
        """
        return text_events(self._before[0], self._after, write, lambda piece: self.piece(0, piece))

    def texts(self, fields: tuple[str, ...], texts: Sequence[str]) -> bytes:
        """A chunk of the first choice for each text, which stands in each of some fields, and nothing else."""
        heads = self._heads.get(fields)
        if heads is None:
            heads = [b",%s:" % orjson.dumps(name) for name in fields]
            heads[0] = self._head + b'{"index":0,"delta":{' + heads[0][1:]
            self._heads[fields] = heads
        events = b""
        for said in map(orjson.dumps, texts):
            for head in heads:
                events += head + said
            events += self._after
        return events

    def delta(self, index: int, delta: Mapping[str, Any], extras: Extras, usage: Usage | None = None) -> bytes:
        """A chunk with whatever ``delta`` has, and the log-prob entries and ids that came by it."""
        return self._chunk(index, delta, None, extras, usage)

    def last(
        self,
        index: int,
        finish_reason: str,
        stop_reason: str | int | None = None,
        extras: Extras | None = None,
        usage: Usage | None = None,
        *,
        estimated: bool = False,
    ) -> bytes:
        """The last chunk of a choice that may have entries and ids left.

        Args:
            index: of the choice.
            finish_reason: why it ended.
            stop_reason: the stop string or id that ended it, as in vLLM.
            extras: what is left.
            usage: so far, where it is wanted.
            estimated: whether nothing tells for certain why it ended.
        """
        return self._chunk(index, {}, finish_reason, extras or Extras(), usage, stop_reason, estimated=estimated)

    def _chunk(
        self,
        index: int,
        delta: Mapping[str, Any],
        finish_reason: str | None,
        extras: Extras,
        usage: Usage | None,
        stop_reason: str | int | None = None,
        *,
        estimated: bool = False,
    ) -> bytes:
        choice: dict[str, Any] = {
            "index": index,
            "delta": delta,
            "logprobs": self._logprobs(extras.logprobs),
            "finish_reason": finish_reason,
        }
        if finish_reason is not None:
            choice["stop_reason"] = stop_reason
        if estimated:
            choice["finish_reason_estimated"] = True
        if extras.ids is not None:
            choice["token_ids"] = extras.ids
        return self._head + orjson.dumps(choice) + self._closing(usage)

    def close(self, usage: Usage) -> bytes:
        """The usage chunk where it is wanted, and ``[DONE]``."""
        if not self._include_usage:
            return DONE
        return self._head + b'],"usage":' + orjson.dumps(usage_object(usage)) + b"}\n\n" + DONE

    def _logprobs(self, entries: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        return logprobs_object(entries, names_as_ids=self._names_as_ids) if entries else None

    def _closing(self, usage: Usage | None) -> bytes:
        """What ends a chunk behind its choice: with the usage so far where it is wanted."""
        return self._close if usage is None else b'],"usage":' + orjson.dumps(usage_object(usage)) + b"}\n\n"
