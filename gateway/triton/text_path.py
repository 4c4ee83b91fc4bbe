"""Facts of answers that come as text, from the declarations of the models (wire contract 3.2, 3.3 and 3.8).

Upstream's models decode the tokens of each response by themselves: the text of one response is right, that of several
is not, unless a BLS model decodes all tokens so far each time (``accumulate_tokens``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gateway.generation.engine import Estimate, StreamForm
from gateway.settings import TextStreaming
from gateway.triton import hints
from gateway.triton.abilities import EngineOptions
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import Models, is_bls

_TRUE = frozenset({"true", "yes", "1", "t"})
_TOKEN_OUTPUTS = frozenset({"output_ids", "sequence_length"})
_ESTIMATED: Estimate = "completion_tokens"

Counts = Literal["tokens", "logprobs"]
"""Outputs that tell the number of tokens: ``num_output_tokens``, or one log-prob for each token."""


@dataclass(frozen=True, slots=True)
class TextPath:
    """The form of answers of an ensemble or a BLS model.

    Attributes:
        token_ids: whether they carry token ids: then nothing depends on their text.
        decoupled: whether a request may have several responses.
        cumulative: whether each response of a stream has all of the text so far.
        streams: the form in which a streamed answer comes.
        whole: whether an answer that is not streamed comes in one response.
        echoes: whether such a response begins with the prompt, without a mark where the answer begins.
        counts: outputs with the number of tokens, the best first; none without one.
    """

    token_ids: bool
    decoupled: bool
    cumulative: bool
    streams: StreamForm
    whole: bool
    echoes: bool
    counts: tuple[Counts, ...]

    @property
    def estimates(self) -> frozenset[Estimate]:
        """The estimated parts of an answer: its token count also where a stop string cuts a response of many tokens."""
        if self.token_ids:
            return frozenset()
        if not self.counts:
            return frozenset({_ESTIMATED, "finish_reason"})
        return frozenset({_ESTIMATED}) if self.whole or self.streams == "whole" else frozenset()


def read_text_path(models: Models, options: EngineOptions) -> TextPath:
    """Make the text path from the models and the operator's settings.

    Args:
        models: models whose entry is an ensemble or a BLS model.
        options: the operator's settings.
    """
    return text_path(models.entry, models.engine, options.text_streaming)


def text_path(entry: ModelView, engine: ModelView | None, text_streaming: TextStreaming) -> TextPath:
    """Make the text path from the called model and the engine model behind it."""
    tokens = entry.outputs >= _TOKEN_OUTPUTS
    decoupled = _decoupled(entry, engine)
    cumulative = decoupled and not tokens and _accumulates(entry)
    echoes = not tokens and not _excludes_prompt(entry, engine)
    # Streams never hold the prompt: where whole answers do, they are put together from the stream that may be read.
    streamed = decoupled and echoes and (cumulative or text_streaming == "lossy")
    return TextPath(
        token_ids=tokens,
        decoupled=decoupled,
        cumulative=cumulative,
        streams=_streams(text_streaming, decoupled=decoupled, exact=tokens or cumulative),
        whole=not decoupled or not (tokens or streamed),
        echoes=echoes and not streamed,
        counts=() if tokens else tuple(_counts(entry)),
    )


def is_decoupled(models: Models) -> bool:
    """Tell whether a request may have several responses: no model behind it forbids it."""
    return _decoupled(models.entry, models.engine)


def _decoupled(entry: ModelView, engine: ModelView | None) -> bool:
    deciding = (engine, None if entry.steps else entry)  # what an ensemble is follows from its steps
    return all(model.decoupled for model in deciding if model is not None)


def _accumulates(entry: ModelView) -> bool:
    return is_bls(entry) and (hints.parameter(entry, "accumulate_tokens") or "").lower() in _TRUE


def _streams(text_streaming: TextStreaming, *, decoupled: bool, exact: bool) -> StreamForm:
    if not decoupled:
        return "whole"
    if exact:
        return "pieces"
    forms: dict[str, StreamForm] = {"reject": "rejected", "whole": "whole", "lossy": "damaged"}
    return forms[text_streaming]


def _excludes_prompt(entry: ModelView, engine: ModelView | None) -> bool:
    if "exclude_input_in_output" in entry.inputs:
        return True
    return (hints.parameter(engine, "exclude_input_in_output") or "").lower() in _TRUE


def _counts(entry: ModelView) -> Iterator[Counts]:
    if "return_num_output_tokens" in entry.inputs and "num_output_tokens" in entry.outputs:
        yield "tokens"
        if not is_bls(entry):  # before 1.2 a BLS model declares it and does not return it (wire contract 3.8)
            return
    if "return_log_probs" in entry.inputs and "output_log_probs" in entry.outputs:
        yield "logprobs"
