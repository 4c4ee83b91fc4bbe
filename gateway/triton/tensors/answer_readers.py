"""Converts output tensors to chunks.

Runs once per token: no NumPy, no copies beyond the values.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence

from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2

from gateway.generation.cumulative_text import CumulativeText
from gateway.generation.engine import EngineChunk, EngineError, MalformedOutputError, ScoredToken
from gateway.generation.relay.interface import Take
from gateway.generation.relay.response_template import ResponseTemplate
from gateway.generation.request import GenerationRequest
from gateway.triton.abilities import Abilities
from gateway.triton.error_mapping import no_final_response
from gateway.triton.response_stream import FINAL
from gateway.triton.tensors.known_responses import KnownResponses, ResponseForm, ResponseForms, read_token
from gateway.triton.tensors.output_tensors import OutputReader, log_probs, ranks, read_rows
from gateway.triton.tensors.request_tensors import uses_logits
from gateway.triton.text_path import Counts

if sys.byteorder != "little":
    raise ImportError("this machine must be little-endian, as tensors on the wire are")

_parse = service_pb2.ModelStreamInferResponse.FromString
_DEFAULT = Abilities()
_ONE = b"\x01\0\0\0"
_ZERO = bytes(4)  # versions before 0.13 fill log-probs that they do not have with one zero (wire contract 9.2)
_OF_TOKENS: tuple[str, ...] = ("output_ids", "sequence_length", "num_input_tokens", "finish_reason")
_OF_ANSWERS = frozenset(_OF_TOKENS[2:])  # outputs that need the full read
_OF_TEXT = ("text_output", "num_input_tokens", "num_output_tokens", "finish_reason")
_OF_PROMPT = ("prompt_log_probs", "prompt_log_probs_ranks", "prompt_top_log_probs_ids", "prompt_top_log_probs")


class TokenReader:
    """Reads the responses of one request that carry token ids.

    Attributes:
        template: recognises responses with only an id, which need not be read.
        answered: whether there was any data; to be set for responses that are not read.

    Args:
        request: the request; other outputs are ignored, as some versions send them unrequested (contract 9.2).
        abilities: abilities of the model.
        known: known bytes of the model's responses.
    """

    __slots__ = (
        "_abilities",
        "_cached",
        "_forms",
        "_logits",
        "_logprobs",
        "_outputs",
        "_plain",
        "_prompt_missing",
        "_request",
        "_seen",
        "_tells_entries",
        "_top_logprobs",
        "answered",
        "template",
    )

    def __init__(
        self, request: GenerationRequest, abilities: Abilities = _DEFAULT, known: KnownResponses | None = None
    ) -> None:
        self._request = request
        self._abilities = abilities
        self._logprobs = request.params.logprobs
        self._top_logprobs = request.params.top_logprobs
        self._logits = uses_logits(request, abilities)
        self._cached = request.cached_tokens and abilities.cached_tokens is not None
        self._prompt_missing = request.params.prompt_logprobs is not None and len(request.prompt.ids) > 1
        wanted = self._wanted()
        self._outputs = _outputs(wanted, request.params.beam_width)
        self._tells_entries = self._logprobs and not (self._logits or self._prompt_missing)
        self._plain = not (self._logprobs or self._logits or self._prompt_missing)
        self._forms = known.entries[wanted] if known is not None and self._tells_entries else None
        if known is None or not self._plain:
            self.template = ResponseTemplate(read_token)
        else:
            self.template = known.tokens.template(request.id)
        self._seen = 0
        self.answered = False

    def read(
        self, response: service_pb2.ModelInferResponse, *, final: bool, message: bytes | None = None
    ) -> EngineChunk:
        """Convert a response to a chunk: its new ids, and their log-probs.

        Args:
            response: the parsed response.
            final: whether it is the last one.
            message: its bytes, where ``template`` is to learn them.

        Raises:
            MalformedOutputError: its outputs are not what the contract says, or log-probs that were asked for are
                missing.
            EngineError: the request ended without any data.
        """
        outputs = self._outputs.read(response)
        if self._plain and not final and self._outputs.single and outputs["sequence_length"] == _ONE:
            self.answered = True
            raw = outputs["output_ids"]
            if message is not None:
                self.template.learn(message, raw)
            return EngineChunk(_ids(raw, 1))
        return self._read(response, outputs, final=final)

    def tap(self, take: Take) -> Callable[[Sequence[bytes]], int]:
        """Make a function that gives ``take`` the tokens of responses with nothing else.

        It takes serialized responses and returns how many of them ``take`` took, from the first on.
        """
        if not self._tells_entries:
            return self.template.tap(take)

        forms, most = self._forms or ResponseForms(), self._top_logprobs

        def tap(messages: Sequence[bytes]) -> int:
            tokens: list[ScoredToken] = []
            place = self._seen
            for message in messages:
                form = forms.match(message)
                if form is None or form.length <= place:
                    token = self._parsed_entry(message, place)
                else:
                    token = form.read(message, place)
                    if most:
                        token = self._with_alternatives(token, form, message)
                if token is None:
                    break
                tokens.append(token)
                place += 1
            taken = take(tokens) if tokens else 0
            if taken:
                self.answered = True
                self._seen += taken
            return taken

        return tap

    def _with_alternatives(self, token: ScoredToken, form: ResponseForm, message: bytes) -> ScoredToken | None:
        """Add the alternatives to the token of a response.

        Returns:
            None where an alternative has no token id; the full read of the response then raises the error.
        """
        try:
            return token[0], token[1], self._pairs(*form.read_alternatives(message))[: self._top_logprobs]
        except MalformedOutputError:
            return None

    def _parsed_entry(self, message: bytes, place: int) -> ScoredToken | None:
        """The one token of a response in a form that is not known, with its log-prob, the one at a place of the list.

        None of a response that says anything else: it is to be read.
        """
        try:
            whole = _parse(message)
            response = whole.infer_response
            if whole.error_message or (FINAL in response.parameters and response.parameters[FINAL].bool_param):
                return None
            outputs = self._outputs.read(response)
            if outputs.get("sequence_length") != _ONE or not _OF_ANSWERS.isdisjoint(outputs):
                return None
            if not outputs["output_ids"]:  # a response without tokens, whatever its length says
                return None
            (index,) = _ids(outputs["output_ids"], 1)
            (logprob,) = self._new_logprobs(outputs.get("output_log_probs"), place, 1)
            top = self._alternatives(outputs, 1)[0] if self._top_logprobs else None
            if self._forms is not None:
                self._forms.learn(message, list(outputs), self._request.id)
        except (DecodeError, EngineError):  # the full read of the response raises the error
            return None
        return index, logprob, top

    def _wanted(self) -> tuple[str, ...]:
        """Names of the outputs that are read."""
        wanted = _OF_TOKENS
        if self._logprobs and not self._logits:
            wanted += ("output_log_probs", "top_log_probs_ids", "top_log_probs")[: 3 if self._top_logprobs else 1]
        if self._prompt_missing and self._abilities.prompt_logprobs != "logits":
            wanted += _OF_PROMPT
        if self._cached:
            wanted += ("num_cached_tokens", "kv_cache_reused_blocks")
        return wanted

    def _read(self, response: service_pb2.ModelInferResponse, outputs: dict[str, bytes], *, final: bool) -> EngineChunk:
        """Any response but the plain ones, which are most."""
        chunk = EngineChunk(final=final)
        self._outputs.read_finish(outputs, chunk)
        raw_ids = outputs.get("output_ids")
        if raw_ids is None:
            if len(outputs.get("text_output", b"")) > 4:
                raise MalformedOutputError("text_output without output_ids")
            if final and not self.answered and chunk.failure is None:
                raise no_final_response()
            return chunk
        self.answered = True
        count = _count(outputs["sequence_length"], self._outputs.forms["output_ids"].shape[-1])
        chunk.ids = _ids(raw_ids, count)
        chunk.prompt_tokens = self._outputs.number(outputs, "num_input_tokens")
        if self._prompt_missing:
            self._read_prompt(response, outputs, chunk)
        if final:
            self._read_end(outputs, chunk)
        if count and self._logprobs:
            if self._logits:
                self._read_logits(response, chunk)
            else:
                chunk.logprobs = self._new_logprobs(outputs.get("output_log_probs"), self._seen, count)
                if self._top_logprobs:
                    chunk.top_logprobs = self._alternatives(outputs, count)
        self._seen += count
        return chunk

    def _read_end(self, outputs: dict[str, bytes], chunk: EngineChunk) -> None:
        if self._prompt_missing and chunk.failure is None:
            raise _missing("log-probs of the prompt")
        if self._cached:
            chunk.cached_tokens = self._cached_tokens(outputs)

    def _new_logprobs(self, raw: bytes | None, start: int, count: int) -> Sequence[float]:
        # The list is cumulative when streaming, and may have an entry more or fewer at its end (wire contract 2.5).
        end = start + count
        if not raw or self._outputs.forms["output_log_probs"].shape[-1] < end:
            raise _missing("log-probs")
        values: Sequence[float] = memoryview(raw)[4 * start : 4 * end].cast("f").tolist()
        return values

    def _alternatives(self, outputs: dict[str, bytes], count: int) -> Sequence[Sequence[tuple[int, float]]]:
        found = self._table(outputs, "top_log_probs", count, self._top_logprobs)
        if found is None:
            raise _missing("alternatives")
        return found

    def _table(
        self, outputs: Mapping[str, bytes], name: str, rows: int, wanted: int
    ) -> Sequence[Sequence[tuple[int, float]]] | None:
        """Alternatives by row, ``wanted`` of each at most; None when there are none, or not ``rows`` of them."""
        raw_ids, raw_values = outputs.get(f"{name}_ids"), outputs.get(name)
        if not raw_ids or not raw_values:
            return None
        shape = self._outputs.forms[name].shape
        if shape != self._outputs.forms[f"{name}_ids"].shape or shape[-2:-1] != (rows,):
            return None
        ids, width = _ids(raw_ids, len(raw_ids) // 4), shape[-1]
        if len(ids) != rows * width:
            raise MalformedOutputError(f"{name}_ids {shape} with {len(ids)} ids in {rows} rows")
        pairs = self._pairs(ids, memoryview(raw_values).cast("f").tolist())
        return [pairs[start : start + min(width, wanted)] for start in range(0, len(pairs), width)]

    def _pairs(self, ids: Sequence[int], values: Sequence[float]) -> list[tuple[int, float]]:
        """Alternatives, each its id and log-prob.

        Raises:
            MalformedOutputError: no token has one of the ids.
        """
        vocab = self._vocab_size()
        if min(ids) < 0 or (vocab is not None and max(ids) >= vocab):
            raise MalformedOutputError(
                f"alternatives with ids from {min(ids)} to {max(ids)}, but the vocabulary has {vocab} tokens"
            )
        return list(zip(ids, values, strict=True))

    def _read_logits(self, response: service_pb2.ModelInferResponse, chunk: EngineChunk) -> None:
        rows = read_rows(response, "generation_logits")
        if rows is None:
            raise _missing("logits")
        chunk.logprobs, chunk.top_logprobs = log_probs(rows, chunk.ids, self._top_logprobs, self._vocab_size())

    def _read_prompt(
        self, response: service_pb2.ModelInferResponse, outputs: dict[str, bytes], chunk: EngineChunk
    ) -> None:
        ids, wanted = tuple(self._request.prompt.ids), self._request.params.prompt_logprobs or 0
        if self._abilities.prompt_logprobs == "logits":
            rows = read_rows(response, "context_logits")
            if rows is None:
                return
            if len(rows) != len(ids):  # what the KV cache had is not computed again (wire contract 2.6)
                raise _missing("logits of the whole prompt")
            size = self._vocab_size()
            chunk.prompt_logprobs, top = log_probs(rows, ids[1:], wanted, size)
            chunk.prompt_ranks = ranks(rows, ids[1:], size)
            chunk.prompt_top_logprobs = top if wanted else None
        else:
            raw = outputs.get("prompt_log_probs")
            if raw is None:
                return
            values: Sequence[float] = memoryview(raw).cast("f").tolist()
            if len(values) != len(ids) - 1:
                raise _missing("log-probs of every prompt token")
            chunk.prompt_logprobs = values
            if (places := outputs.get("prompt_log_probs_ranks")) is not None:
                of_tokens: Sequence[int] = memoryview(places).cast("i").tolist()
                if len(of_tokens) != len(values) or min(of_tokens, default=1) < 1:
                    raise _missing("the rank of every prompt token")
                chunk.prompt_ranks = of_tokens
            if wanted:
                found = self._table(outputs, "prompt_top_log_probs", len(values), wanted)
                chunk.prompt_top_logprobs = found
                if found is None:
                    raise _missing("alternatives of the prompt")
        self._prompt_missing = False

    def _vocab_size(self) -> int | None:
        return self._abilities.vocab_size or self._request.vocab_size

    def _cached_tokens(self, outputs: dict[str, bytes]) -> int | None:
        prompt = len(self._request.prompt.ids)
        exact = self._outputs.number(outputs, "num_cached_tokens")
        if exact is not None:
            return min(exact, prompt)
        blocks = self._outputs.number(outputs, "kv_cache_reused_blocks")
        if self._abilities.cached_tokens != "blocks" or blocks is None:
            return None
        # Whole blocks: the reused part of a partly filled block is not reported, and not guessed.
        return min(blocks * self._abilities.tokens_per_block, prompt)


class TextReader:
    """Reads the responses of one request that carry text only.

    Args:
        limit: requested tokens: a larger number is not a count of the answer's tokens.
        cumulative: whether each response has all of the text so far.
        counts: outputs with the number of tokens; see ``TextPath``.
        beams: most texts of a response, the best one first.
    """

    __slots__ = ("_answered", "_by_logprobs", "_counted", "_most", "_outputs", "_text")

    def __init__(
        self,
        limit: int | None = None,
        *,
        cumulative: bool = False,
        counts: tuple[Counts, ...] = ("tokens",),
        beams: int = 1,
    ) -> None:
        self._answered = False
        self._most = limit
        self._text = CumulativeText() if cumulative else None
        self._by_logprobs = "logprobs" in counts
        self._counted = 0  # log-probs so far
        self._outputs = _outputs((*_OF_TEXT, *(("output_log_probs",) if self._by_logprobs else ())), beams)

    def read(self, response: service_pb2.ModelInferResponse, *, final: bool) -> EngineChunk:
        """Convert a response to a chunk: its new text, and the server's counts.

        Raises:
            MalformedOutputError: its outputs are not what the contract says.
            EngineError: the request ended without any data.
        """
        outputs = self._outputs.read(response)
        chunk = EngineChunk(text="", final=final)
        self._outputs.read_finish(outputs, chunk)
        text = self._outputs.string(outputs, "text_output")
        if text is None:
            if final and not self._answered and chunk.failure is None:
                raise no_final_response()
            chunk.text = self._new_text(None, final=final)
            chunk.output_tokens = 0
            return chunk
        self._answered = True
        chunk.text = self._new_text(text.decode("utf-8", "replace"), final=final)
        chunk.prompt_tokens = self._outputs.number(outputs, "num_input_tokens")
        chunk.output_tokens = self._new_tokens(outputs, text)
        return chunk

    def _new_text(self, text: str | None, *, final: bool) -> str:
        if self._text is None:
            return text or ""
        new = "" if text is None else self._text.push(text)
        return new + self._text.finish() if final else new

    def _new_tokens(self, outputs: dict[str, bytes], text: bytes) -> int | None:
        """The tokens of a response, None where it does not tell them."""
        counted = self._outputs.number(outputs, "num_output_tokens")
        if self._by_logprobs and outputs.get("output_log_probs", _ZERO) != _ZERO:
            before, self._counted = self._counted, self._outputs.forms["output_log_probs"].shape[-1]
            if counted is None:
                counted = self._counted - before  # the list is cumulative in a stream (wire contract 3.3)
        if counted is None or counted < bool(text) or counted > (self._most or counted):
            return None
        return counted


# Shared by the requests that want the same: a response is read in one go, and its form is that of many.
_outputs = functools.lru_cache(maxsize=64)(OutputReader)


def _ids(raw: bytes, count: int) -> tuple[int, ...]:
    if count == 1:
        return (int.from_bytes(raw[:4], "little", signed=True),)
    return tuple(memoryview(raw)[: 4 * count].cast("i"))


def _count(raw: bytes, longest: int) -> int:
    """The length of the first beam, which is the best; those of the others must be as possible."""
    lengths = _ids(raw, len(raw) // 4)
    if min(lengths) < 0 or max(lengths) > longest:
        raise MalformedOutputError(f"sequence_length is {list(lengths)[:8]}, but output_ids has {longest} ids")
    return lengths[0]


def _missing(what: str) -> MalformedOutputError:
    message = f"The engine did not return the requested {what}."
    return MalformedOutputError(message, message)
