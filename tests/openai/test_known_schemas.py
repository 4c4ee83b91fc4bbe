"""Schemas that have passed their checks before: what is known of them changes no answer."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gateway.text.bad_request import BadRequestError
from gateway.text.guides import check_schema, wellformed

GOOD = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    wellformed._passed.clear()


def test_a_bad_one_is_refused_each_time_by_the_path_that_it_has_then() -> None:
    for path in ("tools[0].function.parameters", "tools[7].function.parameters"):
        with pytest.raises(BadRequestError) as rejected:
            check_schema({**GOOD, "type": "city"}, path)
        assert rejected.value.param == f"{path}.type"


@pytest.mark.parametrize(("good", "bad"), [(math.nan, None), (1, True), (2, "2"), (3, [3])])
def test_one_that_is_written_alike_is_another(good: Any, bad: Any) -> None:
    check_schema({"minimum": good}, "schema")
    with pytest.raises(BadRequestError):
        check_schema({"minimum": bad}, "schema")
