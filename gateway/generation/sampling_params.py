"""Parameters of an answer, under the names that requests give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.text.guides.guide import Guide


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The parameters of an answer, from the validated request to the tensors.

    Attributes:
        temperature: 0.0 is greedy; otherwise above 0.
        top_p: nucleus mass in (0, 1]; 1.0 is off.
        top_k: candidates kept, 0 is off.
        min_p: least probability relative to the best candidate, 0.0 is off.
        seed: signed or unsigned 64-bit; None draws one. Choice ``i`` of an answer has the seed plus ``i``.
        presence_penalty: additive, 0.0 is off. The engine counts prompt tokens too.
        frequency_penalty: additive per occurrence, 0.0 is off. The engine counts prompt tokens too.
        repetition_penalty: multiplicative, above 0, 1.0 is off. The engine counts prompt tokens too.
        n: generations to start, from 1.
        max_tokens: tokens at most; None is the rest of the context.
        max_tokens_name: the request parameter that ``max_tokens`` came from, for error messages.
        clamp_max_tokens: whether more than the context leaves is clamped, whatever the operator's policy.
        min_tokens: tokens before which no end id is drawn, 0 is off.
        stop: stop strings, matched on text in the gateway.
        most_stops: the API's limit of stop strings, used unless the operator sets one.
        stop_token_ids: further ids that end an answer.
        include_stop_str_in_output: whether the stop string or stop id that ended the answer is part of its text.
        skip_special_tokens: whether special tokens leave no text.
        visible_ids: special tokens that leave their text in spite of ``skip_special_tokens``.
        ignore_eos: whether the model's end ids end nothing.
        end_ids: ids that end an answer in addition to the model's own end ids.
        logit_bias: the amount that is added to the logits of token ids; beyond any logit for "never" and "always".
        bad_words: texts that are never generated.
        beam_width: beams, 1 is none; the best beam is the answer.
        length_penalty: exponent of the length in a beam's score; only with beams.
        logprobs: whether the log-prob of each chosen token is wanted.
        top_logprobs: alternatives per token, 0 to 20; above 0 only with ``logprobs``.
        prompt_logprobs: None: not wanted; k: the log-prob of each prompt token, with k alternatives.
        return_token_ids: whether the ids of the answer are wanted with its text.
        guide: the guide that constrains the answer; None without one.
        thinking_token_budget: most tokens of the reasoning; None without a limit.
        prompt_table: name of the model's prompt table that goes before the prompt.
        num_draft_tokens: tokens that a draft model proposes at a time; 0 is none, None leaves it to the settings.
        prediction: predicted beginning of the answer; None without a prediction.
        stream: whether the client gets the answer as a stream.
        priority: among the requests of one caller that wait for their turn; the smaller goes first.
        cache_salt: KV blocks are shared only with requests of the same salt; None: without a salt.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    n: int = 1
    max_tokens: int | None = None
    max_tokens_name: str = "max_tokens"
    clamp_max_tokens: bool = False
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    most_stops: int = 4
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    visible_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    end_ids: tuple[int, ...] = ()
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    bad_words: tuple[str, ...] = ()
    beam_width: int = 1
    length_penalty: float = 1.0
    logprobs: bool = False
    top_logprobs: int = 0
    prompt_logprobs: int | None = None
    return_token_ids: bool = False
    guide: Guide | None = None
    thinking_token_budget: int | None = None
    prompt_table: str | None = None
    num_draft_tokens: int | None = None
    prediction: str | None = None
    stream: bool = False
    priority: int = 0
    cache_salt: str | None = None

    @property
    def greedy(self) -> bool:
        """Whether the most probable token is always taken."""
        return self.temperature == 0.0 or self.top_k == 1

    @property
    def truncates(self) -> bool:
        """Whether sampling excludes tokens: greedy, or by ``top_k``, ``top_p`` or ``min_p``; false for beams."""
        return self.beam_width == 1 and (self.greedy or self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0)
