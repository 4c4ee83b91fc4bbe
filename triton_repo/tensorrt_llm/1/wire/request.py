"""A request to an engine, in plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NO_GUIDED_DECODER = "Request has a guide for guided decoding, but GuidedDecoder is not set up"
GUIDE_KINDS = ("json", "json_schema", "regex", "ebnf_grammar", "structural_tag")


class RejectedError(ValueError):
    """A request that the engine does not take, in the engine's words (wire contract 2.10).

    Attributes:
        queue_full: True when the same request may be taken later.
    """

    def __init__(self, message: str, *, queue_full: bool = False) -> None:
        super().__init__(message)
        self.queue_full = queue_full


def reject_asked(asked: Mapping[str, bool], by: str) -> None:
    """Reject a request that asks for unsupported features.

    Args:
        asked: by the name of each such feature, whether the request asks for it.
        by: the part that lacks them, as the client reads it.

    Raises:
        RejectedError: one is asked for; the message names the first.
    """
    for name, given in asked.items():
        if given:
            raise RejectedError(f"{name} is not supported by {by}")


@dataclass(frozen=True)
class Sampling:
    """Sampling as it arrived: absent tensors have TensorRT-LLM's defaults (wire contract 2).

    Attributes:
        temperature: None when absent, which is 1.0; an explicit 0.0 has the trap of contract 2.1.
        top_k: None when absent, which is 0.
        top_p: None when absent, which is 0.0.
        min_p: probability relative to the best candidate's that the others must have, 0 is off.
        top_p_decay: factor of top_p after each token; 1 leaves it as it is.
        top_p_min: what it never falls below, 0 for nothing.
        top_p_reset_id: the token that makes it what it was; negative is none.
        min_tokens: end_id is suppressed before this many tokens.
        bias: [vocab], added to the logits.
        bad_words: token sequences that are never completed.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float = 0.0
    top_p_decay: float = 1.0
    top_p_min: float = 0.0
    top_p_reset_id: int = -1
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    min_tokens: int = 0
    seed: int = 0
    bias: NDArray[np.float32] | None = None
    bad_words: tuple[tuple[int, ...], ...] = ()


class Guide(NamedTuple):
    """A constraint on an answer (wire contract 2.7).

    Attributes:
        kind: one of `GUIDE_KINDS`.
        text: a JSON schema, a regular expression, a grammar or a structural tag; without meaning for ``json``.
    """

    kind: str
    text: str


class LoraTask(NamedTuple):
    """The adapter that a request wants (wire contract 2.8).

    Attributes:
        id: by which the engine keeps it.
        weights: [rows, width] float16, as ``lora_weights``; None where the engine is thought to hold them.
        rows: [rows, 3] int32, as ``lora_config``; None as for ``weights``.
    """

    id: int
    weights: NDArray[np.float16] | None = None
    rows: NDArray[np.int32] | None = None


class PromptTable(NamedTuple):
    """Embeddings for prompt ids beyond the vocabulary: id ``vocab + i`` stands for row ``i``.

    Attributes:
        rows: [rows, hidden] float32.
        extra_ids: ``prompt_table_extra_ids``, one for each token of the prompt, or none; they separate prompts in
            the KV cache.
    """

    rows: NDArray[np.float32]
    extra_ids: tuple[int, ...] = ()


class Draft(NamedTuple):
    """Tokens that are thought to follow the prompt.

    Attributes:
        ids: token ids.
        logits: [ids, vocab], the raw logits that each was drawn from under the sampling of the request; None where
            they are just guesses.
        threshold: a token is accepted whose probability is at least this part of what the draft gave it; None draws
            the part anew for each, which leaves the distribution of answers as it is.
    """

    ids: tuple[int, ...] = ()
    logits: NDArray[np.float32] | None = None
    threshold: float | None = None


NO_DRAFT = Draft()


class Beams(NamedTuple):
    """A beam search; None stands for the engine's default.

    Attributes:
        width: beams, 1 is no beam search.
        length_penalty: exponent of the length in a beam's score.
        diversity_rate: added to the scores of candidates, times the place of the beam that they come from.
        early_stopping: 1 ends with as many finished candidates as beams, 0 goes on while a better one may come.
    """

    width: int = 1
    length_penalty: float | None = None
    diversity_rate: float | None = None
    early_stopping: int | None = None


NO_BEAMS = Beams()


class RetainedRange(NamedTuple):
    """The time for which the KV cache is to keep the blocks of a part of the prompt.

    Attributes:
        start: first token.
        end: the token after the last one; None is the end of the prompt.
        priority: 0 to 100; those with the least go first.
        duration_ms: how long the priority holds; None is for ever.
    """

    start: int
    end: int | None
    priority: int
    duration_ms: int | None


class Retention(NamedTuple):
    """The time for which the KV cache is to keep the blocks of a request (wire contract 1.3).

    Attributes:
        ranges: of the prompt.
        decode_priority: of the blocks of the answer; None is the engine's default.
        decode_duration_ms: how long that holds; None is for ever.
    """

    ranges: tuple[RetainedRange, ...] = ()
    decode_priority: int | None = None
    decode_duration_ms: int | None = None


@dataclass(eq=False)
class Request:
    """One sequence to generate.

    Attributes:
        id: Triton's request id; may be empty, then ``cancel`` cannot reach it.
        prompt: token ids.
        max_tokens: tokens to generate at most; clamped silently to what max_seq_len leaves.
        end_id: ends the answer and is not part of it; negative disables it.
        stop_words: token sequences that end the answer and stay in it.
        streaming: one response per token instead of one in all.
        echo: whether a non-streaming answer begins with the prompt.
        log_probs: whether responses carry log-probs of the chosen tokens.
        top_log_probs: how many alternatives per token responses carry.
        prompt_log_probs: None, or how many alternatives come with the log-prob of each prompt token.
        context_logits: whether the first response carries the logits of the prompt.
        generation_logits: whether responses carry the logits of their tokens.
        perf_metrics: whether the last response carries a `Perf`.
        num_input_tokens: whether responses carry the length of the prompt.
        num_output_tokens: whether responses carry the number of their tokens.
        finish_reason: whether the last response carries it.
        guide: the constraint on the answer; None leaves it free.
        lora: the adapter that is added to the model.
        prompt_table: embeddings of prompt ids beyond the vocabulary.
        draft: tokens thought to follow the prompt; they are checked together, and those that are accepted save
            the model steps. Without logits they never change what is drawn.
        beams: the beam search; its answer is one response with all beams.
        retention: how long its blocks are to be kept; None leaves it to the engine.
        cache_salt: requests share blocks of the KV cache only with those of the same salt; empty is none.
        is_cancelled: asked once in each step.
        handle: the caller's own, untouched.
        arrival_ns: set by the engine that takes it.
    """

    id: str
    prompt: list[int]
    max_tokens: int
    end_id: int = -1
    stop_words: tuple[tuple[int, ...], ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    streaming: bool = False
    echo: bool = False
    log_probs: bool = False
    top_log_probs: int = 0
    prompt_log_probs: int | None = None
    context_logits: bool = False
    generation_logits: bool = False
    perf_metrics: bool = False
    num_input_tokens: bool = False
    num_output_tokens: bool = False
    finish_reason: bool = False
    guide: Guide | None = None
    lora: LoraTask | None = None
    prompt_table: PromptTable | None = None
    draft: Draft = NO_DRAFT
    beams: Beams = NO_BEAMS
    retention: Retention | None = None
    cache_salt: str = ""
    is_cancelled: Callable[[], bool] = bool
    handle: object = None
    arrival_ns: int = 0

    def check(self, *, max_seq_len: int, vocab: int) -> None:
        """Check the values against the size of a model.

        Raises:
            RejectedError: over-long, out of the vocabulary, or nothing to do; by name.
        """
        length, longest = len(self.prompt), max_seq_len - 1
        if length > longest:
            raise RejectedError(f"Prompt length ({length}) exceeds maximum input length ({longest}).")
        if not length:
            raise RejectedError("input_ids must hold at least one token")
        self._check_prompt(vocab)
        self._check_draft(vocab)
        if self.max_tokens < 1:
            raise RejectedError("request_output_len must be at least 1")
        if self.end_id >= vocab:
            raise RejectedError(f"end_id must be within the vocabulary of {vocab} tokens")
        bias = self.sampling.bias
        if bias is not None and bias.shape != (vocab,):
            raise RejectedError(f"embedding_bias must have {vocab} values, not {bias.size}")
        if self.sampling.top_p_reset_id >= vocab:
            raise RejectedError(f"runtime_top_p_reset_ids must be within the vocabulary of {vocab} tokens")
        if any(max(word) >= vocab or min(word) < 0 for word in self.sampling.bad_words):
            raise RejectedError(f"bad_words_list must be within the vocabulary of {vocab} tokens")

    def _check_draft(self, vocab: int) -> None:
        ids, logits = self.draft.ids, self.draft.logits
        if ids and (min(ids) < 0 or max(ids) >= vocab):
            raise RejectedError(f"draft_input_ids must be within the vocabulary of {vocab} tokens")
        if logits is not None and logits.shape != (len(ids), vocab):
            raise RejectedError(f"draft_logits must have shape [1, {len(ids)}, {vocab}]")

    def _check_prompt(self, vocab: int) -> None:
        table = self.prompt_table
        known = vocab if table is None else vocab + len(table.rows)
        if min(self.prompt) < 0 or max(self.prompt) >= known:
            more = "" if table is None else f" and {len(table.rows)} rows of prompt_embedding_table"
            raise RejectedError(f"input_ids must be within the vocabulary of {vocab} tokens{more}")
        if table is None:
            return
        if table.extra_ids and len(table.extra_ids) != len(self.prompt):
            raise RejectedError(f"prompt_table_extra_ids must have {len(self.prompt)} values, as input_ids has")
        if self.prompt_log_probs is not None and max(self.prompt) >= vocab:
            raise RejectedError("num_prompt_log_probs is not supported by the engine with prompt_embedding_table")
