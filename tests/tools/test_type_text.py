"""Types in words, as docs/reference/parameters.md has them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from tools.type_text import type_text


class Box(BaseModel):
    kind: Literal["box"]
    size: int = 1


class Bag(BaseModel):
    kind: Literal["bag"]


class Pair(BaseModel):
    left: int
    right: int


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (bool, "boolean"),
        (str | None, "string"),
        (Annotated[str, Field(min_length=1, max_length=9)], "string of 1 to 9 characters"),
        (Literal["a", "b", "c"], "string: a, b or c"),
        (Annotated[int, Field(ge=-1, le=20)], "integer -1 to 20"),
        (Annotated[int, Field(ge=1, le=2**31 - 1)], "integer from 1"),
        (Annotated[int, Field(ge=-(2**63), lt=2**63)], "integer, 64 bits, signed"),
        (Annotated[float, Field(gt=0, le=10)], "number above 0, to 10"),
        (Annotated[list[str], Field(max_length=64)], "array of at most 64 strings"),
        (list[Annotated[int, Field(ge=0, le=5)]], "array of integers 0 to 5"),
        (dict[str, Any], "object"),
        (Annotated[dict[str, float], Field(max_length=3)], "object of at most 3 numbers"),
        (dict[str, Any] | str, "object; or string"),
        (Pair | None, "object of left and right"),
        (Annotated[list[Box | Bag], Field(max_length=2)], "array of at most 2 objects with a kind: box or bag"),
    ],
)
def test_a_type_in_words(kind: Any, text: str) -> None:
    schema = TypeAdapter(kind).json_schema()
    assert type_text(schema, schema.get("$defs", {})) == text
