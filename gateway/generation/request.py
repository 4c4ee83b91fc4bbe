"""The request to an engine, in neutral terms: token ids, sampling, ends, and the outputs that are wanted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gateway.generation.additions import LoraAdapter, PromptTable

GuideKind = Literal["json", "json_schema", "regex", "ebnf_grammar", "structural_tag"]
GuideBackend = Literal["xgrammar", "llguidance"]
"""Backends that compile guides in TensorRT-LLM."""


@dataclass(frozen=True, slots=True)
class Guide:
    """What the engine holds an answer to, token by token (wire contract 2.7).

    Attributes:
        kind: the engine's word for it; which kinds an engine takes, ``EngineFeatures.guide_types`` tells.
        text: JSON schema, regular expression, grammar (GBNF) or structural tag (JSON); empty for ``json``.
    """

    kind: GuideKind
    text: str = ""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. Dialects turn it into tensors and avoid the engine's traps (wire contract 2.1).

    Attributes:
        temperature: 0.0 means greedy; otherwise above 0.
        top_p: nucleus mass in (0, 1]; 1.0 is off.
        top_k: candidates kept, 0 is off (dialects send 1 for greedy).
        seed: unsigned 64-bit; always set, random when the user gave none.
        presence_penalty: additive, 0.0 is off. The engine counts prompt tokens too.
        frequency_penalty: additive per occurrence, 0.0 is off. The engine counts prompt tokens too.
        repetition_penalty: multiplicative, above 0, 1.0 is off. The engine counts prompt tokens too.
        min_p: least probability relative to the best candidate, 0.0 is off.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    min_p: float = 0.0

    @property
    def greedy(self) -> bool:
        """Whether the most probable token is always taken."""
        return self.temperature == 0.0 or self.top_k == 1


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered prompt.

    Attributes:
        text: the template's output, without escape marks; what a text dialect sends.
        ids: its token ids, BOS exactly once where the model has one; what a token dialect sends.
        escaped: True when control-token text from a user was split so that ids hold no control token for it.
            Such a prompt cannot travel as text.
        bos_text: the BOS token's text where ``ids`` begin with BOS and the tokenizer adds BOS by itself when asked
            for special tokens; empty otherwise. A text dialect needs it to send BOS exactly once.
    """

    text: str
    ids: tuple[int, ...]
    escaped: bool = False
    bos_text: str = ""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One sequence to generate.

    Attributes:
        id: unique among requests in flight; Triton's request id. Never reused (contract 9.1, row 3).
        prompt: what to continue.
        max_tokens: tokens to generate at most, at least 1, already clamped to the context.
        sampling: how tokens are drawn.
        end_ids: ids that end the answer and are not part of it: the first goes as end_id, the others as stop words
            which the engine leaves in its output. Empty: nothing ends it but max_tokens.
        end_texts: the text of each end id, for dialects that name them by text.
        stop: stop strings, matched on text in the gateway.
        logprobs: whether the log-prob of each chosen token is wanted.
        top_logprobs: how many alternatives per token are wanted, 0 to 20; above 0 only with ``logprobs``.
        min_tokens: tokens before which no end id is drawn, 0 is off.
        stop_ids: further ids that end the answer (``stop_token_ids``); like end ids, but wanted by the request.
        bad_words: token-id sequences that are never generated.
        bad_texts: the same words as text, for dialects that name them by text.
        logit_bias: what is added to the logits of token ids.
        beam_width: beams, 1 is none.
        length_penalty: exponent of the length in a beam's score; only with beams.
        include_stop: whether the stop string or stop id that ended the answer is part of its text.
        prompt_logprobs: None: not wanted; k: the log-prob of each prompt token, with k alternatives.
        cached_tokens: whether the number of prompt tokens found in the KV cache is wanted, where the engine has it.
        vocab_size: width of the model's logits, by the engine or else by the model's own folder: no id is above it;
            None when nobody knows.
        guide: what the answer is held to; None leaves it free.
        lora: the adapter that is added to the model.
        prompt_table: virtual tokens that go before the prompt.
        draft: tokens that are thought to follow the prompt: those that the engine would draw itself cost it fewer
            steps, and a greedy answer is the same, a sampled one as probable.
        draft_limit: tokens of the draft that are sent; None is all of them.
        num_draft_tokens: tokens that the engine's draft model guesses at a time, 0 is none.
        cache_salt: KV blocks are shared only with requests of the same salt; empty is none.
        use_draft_logits: whether its guesses are accepted by the probabilities that both models give them.
    """

    id: str
    prompt: Prompt
    max_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    end_ids: tuple[int, ...] = ()
    end_texts: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    logprobs: bool = False
    top_logprobs: int = 0
    min_tokens: int = 0
    stop_ids: tuple[int, ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    bad_texts: tuple[str, ...] = ()
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    beam_width: int = 1
    length_penalty: float = 1.0
    include_stop: bool = False
    prompt_logprobs: int | None = None
    cached_tokens: bool = False
    vocab_size: int | None = None
    guide: Guide | None = None
    lora: LoraAdapter | None = None
    prompt_table: PromptTable | None = None
    draft: tuple[int, ...] = ()
    draft_limit: int | None = None
    num_draft_tokens: int = 0
    cache_salt: str = ""
    use_draft_logits: bool = False
