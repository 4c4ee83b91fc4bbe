"""Facts of an answer that comes as text, from what the models behind it declare (wire contract 3.2, 3.3 and 3.8).

Upstream's models decode the tokens of each response by themselves: the text of one response is right, that of several
is not, unless a BLS model decodes all tokens so far each time (``accumulate_tokens``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gateway.generation.engine import Estimate, StreamForm
from gateway.triton import hints
from gateway.triton.abilities import EngineOptions
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import Models

_TRUE = frozenset({"true", "yes", "1", "t"})
_TOKEN_OUTPUTS = frozenset({"output_ids", "sequence_length"})
_ESTIMATED: Estimate = "completion_tokens"

Counts = Literal["tokens", "logprobs"]
"""Outputs that tell the number of tokens: ``num_output_tokens``, or one log-prob for each token."""


@dataclass(frozen=True, slots=True)
class TextPath:
    """The form of answers of an ensemble or a BLS model.

    Attributes:
        token_ids: whether they carry token ids: then nothing of them depends on its text.
        decoupled: whether a request may have several responses.
        cumulative: whether each response of a stream has all of the text so far.
        streams: the form in which a streamed answer comes.
        whole: whether an answer that is not streamed comes in one response.
        echoes: whether such a response begins with the prompt, which nothing tells from the answer.
        counts: the outputs that tell how many tokens there are, the best first; none where nothing does.
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
        """What of an answer may be inexact: its count also where a stop string cuts a response of many tokens."""
        if self.token_ids:
            return frozenset()
        if not self.counts:
            return frozenset({_ESTIMATED, "finish_reason"})
        return frozenset({_ESTIMATED}) if self.whole or self.streams == "whole" else frozenset()


def read_text_path(models: Models, options: EngineOptions) -> TextPath:
    """Read it from the configurations of the models, and from what the operator says.

    Args:
        models: whose entry is an ensemble or a BLS model.
        options: of the operator.
    """
    entry = models.entry
    tokens = entry.outputs >= _TOKEN_OUTPUTS
    decoupled = is_decoupled(models)
    cumulative = decoupled and not tokens and accumulates(models)
    echoes = not tokens and not _excludes_prompt(entry, models.engine)
    # Streams never hold the prompt: where whole answers do, they are put together from the stream that may be read.
    streamed = decoupled and echoes and (cumulative or options.text_streaming == "lossy")
    return TextPath(
        token_ids=tokens,
        decoupled=decoupled,
        cumulative=cumulative,
        streams=_streams(decoupled, tokens or cumulative, options),
        whole=not decoupled or not (tokens or streamed),
        echoes=echoes and not streamed,
        counts=() if tokens else tuple(_counts(models)),
    )


def is_decoupled(models: Models) -> bool:
    """Whether a request may have several responses: none of the models that decide about it forbids it."""
    deciding = (models.engine, models.entry if models.bls else None)
    return all(model.decoupled for model in deciding if model is not None)


def accumulates(models: Models) -> bool:
    """Whether a BLS model decodes all tokens so far for each response, where it has several."""
    return models.bls and (hints.parameter(models.entry, "accumulate_tokens") or "").lower() in _TRUE


def _streams(decoupled: bool, exact: bool, options: EngineOptions) -> StreamForm:
    if not decoupled:
        return "whole"
    if exact:
        return "pieces"
    forms: dict[str, StreamForm] = {"refuse": "refused", "whole": "whole", "lossy": "damaged"}
    return forms[options.text_streaming]


def _excludes_prompt(entry: ModelView, engine: ModelView | None) -> bool:
    if "exclude_input_in_output" in entry.inputs:
        return True
    return (hints.parameter(engine, "exclude_input_in_output") or "").lower() in _TRUE


def _counts(models: Models) -> Iterator[Counts]:
    entry = models.entry
    if "return_num_output_tokens" in entry.inputs and "num_output_tokens" in entry.outputs:
        yield "tokens"
        if not models.bls:  # before 1.2 a BLS model declares it and does not return it (wire contract 3.8)
            return
    if "return_log_probs" in entry.inputs and "output_log_probs" in entry.outputs:
        yield "logprobs"
