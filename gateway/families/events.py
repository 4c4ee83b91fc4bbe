"""Events of a family's parser, in the order of the answer.

Events of the same kind (and index) that follow each other merge: only their concatenation has a meaning, never where
one ends and the next begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the user.

    Attributes:
        text: never empty, without the family's markers.
    """

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text of the model's reasoning.

    Attributes:
        text: never empty, without the family's markers.
    """

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A tool call begins.

    Attributes:
        index: of the call in this answer, from 0, without gaps.
        name: of the tool; one of those that may be called.
        id: the model's own id of the call where its format has one, else None.
    """

    index: int
    name: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of a call's arguments; the texts of one index concatenated are the JSON text of one object.

    Attributes:
        index: of the call.
        text: never empty.
    """

    index: int
    text: str


Event: TypeAlias = Content | Reasoning | CallStart | CallArguments
