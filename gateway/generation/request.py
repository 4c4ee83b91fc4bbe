"""A request to an engine: prompt, parameters of the answer, additions to the model, and decisions on them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from gateway.generation.sampling_params import SamplingParams
from gateway.text.prompt.prompt import Prompt


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix in the form in which it is sent to the engine.

    Attributes:
        values: its elements in row-major order, little-endian.
        rows: their number.
        columns: their number.
    """

    values: bytes
    rows: int
    columns: int

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self.rows, self.columns


@dataclass(frozen=True, slots=True)
class LoraAdapter:
    """A LoRA adapter that is added to the model (wire contract 2.8).

    Attributes:
        task_id: id under which the engine stores it, unsigned 64-bit.
        weights: float16, a row for each module of each layer; None where the engine should have them.
        config: int32 with three columns, module, layer and rank, for each row of the weights; None as ``weights``.
        name: name of an adapter that the engine itself loads from ``path``; else empty.
        path: folder on the engine's machine.
        source: the format of that folder: ``hf`` or ``nemo``.
    """

    task_id: int
    weights: Matrix | None = None
    config: Matrix | None = None
    name: str = ""
    path: str = ""
    source: str = "hf"

    def by_id(self) -> LoraAdapter:
        """Copy the adapter without its weights."""
        return dataclasses.replace(self, weights=None, config=None)


@dataclass(frozen=True, slots=True)
class PromptTable:
    """Virtual tokens that go before the prompt (p-tuning).

    Attributes:
        embeddings: float16, a row for each virtual token.
        extra_id: tells this table from others in the engine's KV cache, unsigned 64-bit and not 0.
    """

    embeddings: Matrix
    extra_id: int

    @property
    def length(self) -> int:
        """The number of virtual tokens."""
        return self.embeddings.rows


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One sequence to generate.

    Attributes:
        id: unique among requests in flight; Triton's request id. Never reused (contract 9.1, row 3).
        prompt: the text to continue.
        max_tokens: tokens to generate at most, at least 1, already clamped to the context.
        params: parameters of the answer, as the client sent them; the fields here hold the decisions on them.
        seed: unsigned 64-bit.
        end_ids: ids that end the answer and are not part of it: the first goes as end_id, the others as stop words
            which the engine leaves in its output. Empty: nothing ends it but max_tokens.
        end_texts: the text of each end id, for dialects that name them by text.
        bad_word_ids: the token-id sequences of ``params.bad_words``, for dialects that name them by ids.
        cached_tokens: whether the number of prompt tokens found in the KV cache is requested, where the engine has it.
        vocab_size: width of the model's logits, by the engine or else by the model's own folder: no id is above it;
            None where neither says it.
        lora: the adapter that is added to the model.
        prompt_table: virtual tokens that go before the prompt.
        draft: predicted tokens after the prompt: those that the engine would draw itself cost it fewer steps, and a
            greedy answer stays the same, a sampled one as probable.
        draft_limit: tokens of the draft that are sent; None is all of them.
        num_draft_tokens: tokens that the engine's draft model proposes at a time, 0 is none.
        use_draft_logits: whether its guesses are accepted by the probabilities that both models give them.
        traceparent: the trace that Triton's spans are to belong to, 55 characters (W3C Trace Context); None: none.
    """

    id: str
    prompt: Prompt
    max_tokens: int
    params: SamplingParams = field(default_factory=SamplingParams)
    seed: int = 0
    end_ids: tuple[int, ...] = ()
    end_texts: tuple[str, ...] = ()
    bad_word_ids: tuple[tuple[int, ...], ...] = ()
    cached_tokens: bool = False
    vocab_size: int | None = None
    lora: LoraAdapter | None = None
    prompt_table: PromptTable | None = None
    draft: tuple[int, ...] = ()
    draft_limit: int | None = None
    num_draft_tokens: int = 0
    use_draft_logits: bool = False
    traceparent: str | None = None
