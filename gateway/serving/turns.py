"""A family's work for one answer: before generation, and with its text."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from gateway.families import Family, Preparation, Turn
from gateway.generation import SamplingParams
from gateway.serving.reading import AnswerReader
from gateway.tokens import Tokenizer


@dataclass(frozen=True, slots=True)
class PreparedTurn:
    """A turn of which the prompt is known.

    Attributes:
        turn: what is wanted.
        preparation: what the family needs for it.
        family: of the model.
        prompt: the rendered prompt.
        eager: whether unguided calls are reported while they form.
    """

    turn: Turn
    preparation: Preparation
    family: Family
    prompt: str
    eager: bool = False

    @property
    def read(self) -> bool:
        """Whether the answer must be read: it may hold calls or reasoning."""
        return self.turn.calls or self.family.reasons

    def apply(self, params: SamplingParams, tokenizer: Tokenizer) -> SamplingParams:
        """The parameters with what the family needs.

        Args:
            params: of the request.
            tokenizer: of the model.
        """
        if not self.read:
            return dataclasses.replace(params, guide=self.preparation.guide)
        return dataclasses.replace(
            params,
            guide=self.preparation.guide,
            end_ids=_special(self.preparation.stop, tokenizer),
            visible_ids=frozenset(_special(tuple(self.preparation.special), tokenizer)),
        )

    def reader(self, params: SamplingParams) -> AnswerReader:
        """A reader for one of its answers."""
        parser = self.family.parser(self.turn, self.preparation, self.prompt, eager=self.eager)
        # A guide ends such an answer by itself.
        one_call = self.turn.single and not self.preparation.guided
        return AnswerReader(parser, params.stop, include_stop=params.include_stop_str_in_output, one_call=one_call)


def prepare(turn: Turn, family: Family, prompt: str, *, eager: bool) -> PreparedTurn:
    """Ask the family what a turn needs.

    Args:
        turn: what is wanted.
        family: of the model.
        prompt: the rendered prompt.
        eager: whether unguided calls are reported while they form.
    """
    return PreparedTurn(turn, family.prepare(turn, prompt), family, prompt, eager)


def _special(texts: tuple[str, ...], tokenizer: Tokenizer) -> tuple[int, ...]:
    """Ids of those texts that are special tokens of the model."""
    ids = (tokenizer.token_id(text) for text in texts)
    return tuple(index for index in ids if index is not None and tokenizer.is_special(index))
