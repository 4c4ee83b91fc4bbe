"""A validated request to a served model: where the prompt comes from, and the options of the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gateway.generation import Sampling
from gateway.generation.request import Guide


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A conversation, rendered by the model's chat template.

    Attributes:
        messages: as of ``prompt.history``: role, content as text, and whatever else templates read; ``parts`` of a
            content that has several; arguments of calls as JSON text, reasoning of the assistant under ``reasoning``.
        tools: definitions of tools, for templates that show them.
        documents: documents, for templates that cite them.
        add_generation_prompt: whether the prompt ends with the opening of the assistant's turn.
        continue_final_message: whether the prompt ends inside the last message, which the answer continues; excludes
            ``add_generation_prompt``.
        template: a Jinja template of the request's own; None takes the model's.
        variables: further names for the template; they replace none of the above.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    documents: Sequence[Mapping[str, Any]] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    template: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """Text as it is; the texts of control tokens in it are control tokens.

    Attributes:
        text: may be empty where the model has a BOS.
        add_special_tokens: whether BOS goes first where the tokenizer has it so; never a second one.
    """

    text: str
    add_special_tokens: bool = True


@dataclass(frozen=True, slots=True)
class IdsPrompt:
    """Token ids as they are; nothing is added.

    Attributes:
        ids: in the model's vocabulary, at least one.
    """

    ids: Sequence[int]


PromptSource = ChatPrompt | TextPrompt | IdsPrompt


@dataclass(frozen=True, slots=True)
class Truncation:
    """How a prompt is cut, as vLLM's ``truncate_prompt_tokens`` does it: after the chat template, by tokens.

    Attributes:
        tokens: that are kept at most; -1 is what the context leaves beside the answer.
        side: where the others are cut off. On the left a BOS that the tokenizer adds to a text stays.
        answer: tokens that the answer may have, at least 1.
        answer_name: the request parameter that ``answer`` came from, for refusals.
    """

    tokens: int
    side: Literal["left", "right"] = "left"
    answer: int = 1
    answer_name: str = "max_tokens"


@dataclass(frozen=True, slots=True)
class Options:
    """Everything about a generation but its prompt.

    Attributes:
        sampling: how tokens are drawn.
        max_tokens: tokens at most; None takes the rest of the context.
        max_tokens_name: the request parameter that ``max_tokens`` came from, for refusals.
        n: answers; answer ``i`` has the seed ``sampling.seed + i``.
        stop: stop strings.
        logprobs: whether log-probs are wanted.
        top_logprobs: alternatives per token, 0 to 20; above 0 only with ``logprobs``.
        min_tokens: tokens before which no end id is drawn.
        stop_token_ids: further ids that end an answer.
        include_stop_str_in_output: whether what ended the answer is part of its text.
        skip_special_tokens: whether special tokens leave no text.
        ignore_eos: whether the model's end ids end nothing.
        logit_bias: what is added to the logits of token ids, -100 to 100.
        bad_words: texts that are never generated.
        beam_width: beams, 1 is none; the best beam is the answer.
        length_penalty: exponent of the length in a beam's score.
        prompt_logprobs: None: not wanted; k: the log-prob of each prompt token, with k alternatives.
        token_ids: whether the ids of the answer are wanted with its text.
        guide: what the answer is held to; None leaves it free.
        end_ids: ids that end an answer besides the model's own end ids.
        prompt_table: name of the model's prompt table that goes before the prompt.
        visible: special tokens that leave their text, whatever ``skip_special_tokens`` says.
        num_draft_tokens: tokens that a draft model guesses at a time; 0 is none, None leaves it to the settings.
        prediction: how the answer is thought to begin; None is no prediction.
        cache_salt: KV blocks are shared only with requests of the same salt; empty is none.
    """

    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int | None = None
    max_tokens_name: str = "max_tokens"
    n: int = 1
    stop: tuple[str, ...] = ()
    logprobs: bool = False
    top_logprobs: int = 0
    min_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    ignore_eos: bool = False
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    bad_words: tuple[str, ...] = ()
    beam_width: int = 1
    length_penalty: float = 1.0
    prompt_logprobs: int | None = None
    token_ids: bool = False
    guide: Guide | None = None
    end_ids: tuple[int, ...] = ()
    prompt_table: str | None = None
    visible: frozenset[int] = frozenset()
    num_draft_tokens: int | None = None
    prediction: str | None = None
    cache_salt: str = ""
