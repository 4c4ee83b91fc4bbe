"""The protocols that engines implement and ``serving`` uses."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from gateway.generation.request import GenerationRequest
from gateway.generation.tokenizing import TokenizedSentences
from gateway.settings import EngineForm, Task
from gateway.text.guides.guide import GuideBackend

EngineFinish = Literal["stop", "length", "cut", "unreported"]
"""Reasons for which an engine may call an answer whole; any other is a failure. ``length`` is the limit of the request,
``cut`` one that may be another, so that it tells no number of tokens; ``unreported`` is said of an engine that may have
such a limit, and says nothing."""


StreamForm = Literal["pieces", "whole", "damaged", "rejected"]
"""Forms in which an engine's answer can be streamed: exactly as it grows; as one piece at its end; with characters or
spaces lost; not at all."""

Estimate = Literal["prompt_tokens", "completion_tokens", "finish_reason"]
"""Facts of an answer that may be inexact where nothing tells them."""

AdapterForm = Literal["weights", "path", "name"]
"""The form in which an engine takes an adapter: its weights, a path on the engine's machine, or a configured name."""

ScoredToken = tuple[int, float, Sequence[tuple[int, float]] | None]
"""A token id with its log-prob, and its alternatives as (token id, log-prob), best first, where there are any."""


@dataclass(slots=True)
class EngineChunk:
    """One response of an engine: the tokens of one iteration, usually one, at times none or several.

    Attributes:
        ids: new token ids, in order, without any that came before. Empty for a text-only dialect.
        text: new text, only from a text-only dialect; None wherever ids are given.
        logprobs: natural-log probability of each id of this chunk, same length as ids; None when not asked for.
        top_logprobs: for each id of this chunk its alternatives as (token id, log-prob), best first.
        finish_reason: why the answer ended, where the engine says so: on the last chunk with ids or after it.
        failure: why the engine failed, instead of a finish reason. Earlier chunks are not a complete answer.
        prompt_tokens: prompt length as the engine counted it, where it says so.
        output_tokens: tokens in this chunk as the engine counted them, where it says so (text-only dialects).
        final: True on the last chunk of the request.
        cached_tokens: prompt tokens found in the KV cache, where the engine says so; on the last chunk.
        prompt_logprobs: log-prob of each prompt token but the first, once, on the first chunk that has it; length
            ``len(prompt.ids) - 1``.
        prompt_ranks: ranks of these tokens in the vocabulary, from 1, where the engine says so.
        prompt_top_logprobs: for each of these its alternatives as (token id, log-prob), best first.
        drawn: whether the model has drawn the tokens.
    """

    drawn: ClassVar[bool] = True

    ids: Sequence[int] = ()
    text: str | None = None
    logprobs: Sequence[float] | None = None
    top_logprobs: Sequence[Sequence[tuple[int, float]]] | None = None
    finish_reason: EngineFinish | None = None
    failure: EngineError | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    final: bool = False
    cached_tokens: int | None = None
    prompt_logprobs: Sequence[float] | None = None
    prompt_top_logprobs: Sequence[Sequence[tuple[int, float]]] | None = None
    prompt_ranks: Sequence[int] | None = None


class ForcedChunk(EngineChunk):
    """Tokens that were inserted into the answer, without log-probs."""

    __slots__ = ()
    drawn: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Capability:
    """An engine's support of one request parameter.

    Attributes:
        how: "native" by a tensor of the engine, "emulated" exactly by the gateway, "impossible" not at all.
        note: one sentence: by which tensor, how it is emulated, or why it cannot be served and the way around.
        limit: the largest value that is served, for parameters with a range that the engine narrows.
        truncated: why it cannot be served where sampling truncates, as of ``SamplingParams.truncates``; empty: it can.
    """

    how: Literal["native", "emulated", "impossible"]
    note: str
    limit: int | None = None
    truncated: str = ""


@dataclass(frozen=True, slots=True)
class EngineFeatures:
    """The features of an engine, found by discovery.

    Attributes:
        path: the dialect.
        reason: one sentence on why this path, for the log and ``/v1/models/{id}``.
        model: the Triton model that is called.
        token_ids: whether answers carry token ids wherever something depends on them (usage, UTF-8, log-probs).
        prompt_ids: whether prompts travel as token ids.
        logprobs: whether the chosen token's log-prob is available.
        max_top_logprobs: alternatives per token available, 0 when there are none.
        max_seq_len: prompt plus generated tokens, where the server says so; None otherwise.
        tokenizer_dir: folder of the tokenizer as the server names it; None when it does not.
        vocab_size: width of the engine's logits, where the server says so; None otherwise.
        tokenized: token ids of a few sentences by the server's own tokenizer; None where it cannot be asked.
        warnings: one sentence each on costs and faults of this deployment; for the log.
        capabilities: by request parameter (OpenAI's name or the extension's) how it is served here.
        guide_types: kinds of ``Guide`` that the engine enforces; empty without guided decoding.
        guide_backend: compiler of guides, which decides on the keywords of a JSON schema; None where it is unknown.
        max_draft_tokens: tokens of a request's draft that are sent at most; 0 where drafts are not taken, None where
            any number is.
        draft_room: tokens of the context that the engine keeps free for drafts, also in requests that have none.
        adds_special_tokens: whether the server puts the tokenizer's special tokens, such as BOS, around the text of a
            prompt; nothing where prompts travel as token ids.
        hides_special_tokens: whether special tokens never leave their text in an answer that comes as text.
        ends_at_eos: whether the tokenizer's own end token is the only one that ends an answer in the engine.
        adapters: what the operator's adapter is given to it by.
        streams: the form in which a streamed answer comes.
        whole: whether an answer that is not streamed comes in one response, at its end.
        estimates: parts of an answer that may be inexact, as the answer says.
        task: the task.
        most_items: most inputs of one request to an encoder.
        one_query: whether all pairs of such a request have the same first text.
        most_tokens: most tokens of such a request of several inputs, each as long as the longest; None for any number.
        pads: whether its inputs may have different lengths.
        width: numbers of each vector, or scores of each input, where the server says so; None otherwise.
        losses: one sentence each on what is lost of an answer here, and one on the change that cures it, empty where
            none does; in the log, in ``/v1/models/{id}`` and in ``gateway check``.
    """

    path: EngineForm
    reason: str
    model: str
    token_ids: bool
    prompt_ids: bool
    logprobs: bool
    max_top_logprobs: int = 0
    max_seq_len: int | None = None
    tokenizer_dir: str | None = None
    vocab_size: int | None = None
    tokenized: TokenizedSentences | None = None
    warnings: tuple[str, ...] = ()
    capabilities: Mapping[str, Capability] = field(default_factory=dict)
    guide_types: frozenset[str] = frozenset()
    guide_backend: GuideBackend | None = None
    max_draft_tokens: int | None = 0
    draft_room: int = 0
    adds_special_tokens: bool = False
    hides_special_tokens: bool = False
    ends_at_eos: bool = False
    adapters: AdapterForm = "weights"
    streams: StreamForm = "pieces"
    whole: bool = False
    estimates: frozenset[Estimate] = frozenset()
    task: Task = "generate"
    most_items: int = 1
    one_query: bool = False
    most_tokens: int | None = None
    pads: bool = True
    width: int | None = None
    losses: Mapping[str, str] = field(default_factory=dict)

    def one_response(self, *, stream: bool) -> bool:
        """Whether an answer comes in one response, at its end."""
        return self.streams == "whole" or (self.whole and not stream)


class Engine(Protocol):
    """An engine of a served model: a ``TokenGenerator``, or an engine of another task."""

    @property
    def features(self) -> EngineFeatures:
        """The features of this engine."""
        ...


class TokenGenerator(Engine, Protocol):
    """An engine that generates sequences of tokens."""

    def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineChunk, None]:
        """Generate one sequence, chunk by chunk; the last chunk has ``final`` set.

        Closing the generator early (``aclose``, or cancelling the task that iterates it) cancels the request in the
        engine and frees its slot.

        Raises:
            EngineError: at any point, also after some chunks; nothing follows it.
        """
        ...


@runtime_checkable
class DescribingEngine(Protocol):
    """An engine that can show the tensors of a request."""

    def describe(self, request: GenerationRequest) -> list[dict[str, Any]]:
        """Return the input tensors of a request, without sending it.

        Returns:
            For each tensor ``name``, ``datatype``, ``shape``, ``size`` and ``data`` (its first elements).

        Raises:
            EngineError: as ``generate``, when the request cannot be encoded.
        """
        ...


class ErrorKind(Enum):
    """Kinds of failures of engines, in terms that decide the HTTP response (wire contract 2.10)."""

    CONTEXT_LENGTH = "context_length_exceeded"  # 400
    INVALID_REQUEST = "invalid_request"  # 400, the engine rejects a part of the request
    QUEUE_FULL = "queue_full"  # 429 with Retry-After
    UNAVAILABLE = "unavailable"  # 503 with Retry-After: down, loading, shutting down
    UNSERVABLE = "model_not_supported"  # 400, never to be tried again: what is deployed must change first
    TIMEOUT = "timeout"  # 504
    CANCELLED = "cancelled"  # not by the gateway
    INTERNAL = "internal"  # 500


class EngineError(Exception):
    """A failure of an engine, with the gateway's own ``message`` and never the backend's text.

    Attributes:
        kind: decides the HTTP status.
        message: one sentence for the client.
        detail: the backend's own text, for the log only.
        param: the request parameter at fault, by its name in chat completions; ``prompt`` and ``guide`` for
            parameters of other names. None where no parameter is at fault, or the kind tells it.
        code: OpenAI's error code of a rejected request, None where it has none.
        retry_after_s: seconds after which another try makes sense, where it does and more is known than that.
        items: indexes of the inputs of which one is at fault, in a request with several; each with whether it is the
            first text of its pair. Empty where they are unknown.
    """

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        detail: str = "",
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.detail = detail
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s
        self.items: Sequence[tuple[int, bool]] = ()


def too_many_tokens(tokens: int | str, limit: int | str) -> str:
    """Say that a prompt is too long in Anthropic's words, whose numbers clients read."""
    return f"prompt is too long: {tokens} tokens > {limit} maximum"


def context_exceeded(why: str, context: int | None = None) -> str:
    """Make the message of a prompt that is too long; LangChain and LiteLLM recognise its words.

    Args:
        why: with the words "prompt is too long", as of ``too_many_tokens``.
        context: the context length in tokens; None where it is not known.
    """
    limit = "exceeded:" if context is None else f"{context} tokens, but"
    return f"This model's maximum context length is {limit} the {why}"


class PromptTooLongError(EngineError):
    """A prompt that leaves no room for an answer.

    Attributes:
        tokens: tokens of the prompt; of one that is far too long, the tokens that were counted.
        limit: most tokens of a prompt.
    """

    def __init__(self, message: str, tokens: int, limit: int) -> None:
        super().__init__(ErrorKind.CONTEXT_LENGTH, message)
        self.tokens = tokens
        self.limit = limit


class MalformedOutputError(EngineError):
    """The engine's response contradicts the contract or the request."""

    def __init__(
        self, detail: str, message: str = "The engine's response could not be read because it is malformed."
    ) -> None:
        super().__init__(ErrorKind.INTERNAL, message, detail)


class AdapterNotCachedError(EngineError):
    """The engine's cache lacks the adapter of a request without weights; a retry with its weights succeeds."""


class AdapterRejectedError(EngineError):
    """The engine rejected the adapter of a request: a mistake of the deployment, not of the client."""
