"""Schemas as the gateway sends them, walked at random through the real llguidance: what comes out fits the schema."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import llguidance
import numpy as np
import pytest
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
from random_schemas import random_conflict, random_schema, random_wide_schema
from realistic_schemas import REALISTIC

from gateway.text.bad_request import BadRequestError
from gateway.text.guides import check_schema, guided_schema
from gateway.text.guides.patterns import STRING_FORMATS

END = 256
LONGEST = 1500  # bytes; what is longer has found no end
WALKS = 4
# As the reference engine has it: the tests shall not wander in white space.
COMPACT: Any = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?", "lenient": False}
LIMITS = llguidance.LLParserLimits(step_max_items=1_000_000, max_items_in_row=20_000)
FORMATS = jsonschema.FormatChecker(["date", "ipv4", "uuid", "email"])  # as others read them, not as this project does


class Bytes:
    """A tokenizer whose tokens are the bytes."""

    tokens = [*(bytes([byte]) for byte in range(256)), b"<end>"]  # noqa: RUF012 - llguidance reads it
    special_token_ids = [END]  # noqa: RUF012
    eos_token_id = END
    bos_token_id = None

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(Bytes()), n_vocab=END + 1, eos_token=END)


def compiled(tokenizer: Any, guide: dict[str, Any]) -> Any:
    """A matcher of a guide.

    Raises:
        AssertionError: the engine refuses what the gateway sends.
    """
    grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(guide), overrides=COMPACT)
    matcher = llguidance.LLMatcher(tokenizer, grammar, log_level=0, limits=LIMITS)
    assert not matcher.is_error(), f"refused late: {matcher.get_error()} {json.dumps(guide)}"
    return matcher


def walk(matcher: Any, rng: random.Random) -> str | None:
    """One answer; None when it found no end. What ends a value is preferred, the more the longer it is."""
    matcher, bits, written = matcher.deep_copy(), allocate_token_bitmask(1, END + 1), bytearray()
    while len(written) < LONGEST:
        if matcher.is_accepting():
            return written.decode()
        fill_next_token_bitmask(matcher, bits, 0)
        allowed = np.flatnonzero(np.unpackbits(bits.view(np.uint8), count=END + 1, bitorder="little")).tolist()
        readable = [token for token in allowed if 32 <= token < 127] or allowed
        ending = [token for token in readable if token in b'"]},']
        chosen = rng.choice(ending if ending and rng.random() < 0.3 + len(written) / 300 else readable)
        matcher.consume_token(chosen)
        written.append(chosen)
    return None


def check_answers(tokenizer: Any, schema: dict[str, Any], rng: random.Random) -> int:
    """Walk through the guide of a schema; returns how many answers came to an end, all of which fit.

    Raises:
        AssertionError: one does not.
        BadRequestError: the gateway refuses the schema.
    """
    check_schema(schema, "schema")
    matcher = compiled(tokenizer, guided_schema(schema, "schema", exact=True, backend="llguidance"))
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    validator = kind(schema, format_checker=FORMATS)
    answers = [answer for _ in range(WALKS) if (answer := walk(matcher, rng)) is not None]
    for answer in answers:
        errors = [error.message for error in validator.iter_errors(json.loads(answer))]
        assert errors == [], f"{answer} {json.dumps(schema)}"
    return len(answers)


@pytest.mark.parametrize("name", REALISTIC)
def test_what_generators_write_is_served_exactly(tokenizer: Any, name: str) -> None:
    assert check_answers(tokenizer, REALISTIC[name], random.Random(name)) > 0


@pytest.mark.parametrize(("make", "schemas"), [(random_schema, 60), (random_wide_schema, 120)])
def test_random_schemas_are_served_exactly(tokenizer: Any, make: Any, schemas: int) -> None:
    rng = random.Random(7)
    answers = sum(check_answers(tokenizer, make(rng), rng) for _ in range(schemas))
    assert answers >= schemas * WALKS * 0.8


def test_what_contradicts_itself_is_refused_at_once_or_taken_by_the_engine(tokenizer: Any) -> None:
    rng, served = random.Random(11), {True: 0, False: 0}
    schemas = 400
    for _ in range(schemas):
        schema = random_conflict(rng)
        for exact in served:
            try:
                guide = guided_schema(schema, "schema", exact=exact, backend="llguidance")
            except BadRequestError:
                continue
            compiled(tokenizer, guide)
            served[exact] += 1
    assert schemas * 0.2 < served[True] < served[False]


@pytest.mark.parametrize("name", STRING_FORMATS)
def test_lengths_of_formats_are_those_that_the_engine_tells(tokenizer: Any, name: str) -> None:
    shortest, longest = STRING_FORMATS[name].least, STRING_FORMATS[name].most
    for limits in ({"maxLength": shortest}, {"minLength": longest or 1000}):
        schema = {"type": "string", "format": name, **limits}
        compiled(tokenizer, guided_schema(schema, "schema", exact=True, backend="llguidance"))
