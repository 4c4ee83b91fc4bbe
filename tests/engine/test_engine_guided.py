"""Guided decoding on the pure engine: every kind of guide, its mistakes, and its place among the other parameters."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from cpu_double.guided import GuidedDecoder, Matcher
from cpu_double.guides import load_guided_decoder
from cpu_double.reference_engine import Limits, ReferenceEngine
from tests.engine.alone import drain
from tests.scripted_engine.replay import write_scripted_model
from wire.request import Guide, RejectedError, Request, Sampling
from wire.response import Response

IM_END, END_OF_TEXT = 2, 0
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "ü", None]}, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
CALL = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 99}}, "required": ["a"]}
CALL |= {"additionalProperties": False}


@pytest.fixture(scope="module")
def decoder(tiny_model_dir, tiny) -> Iterator[GuidedDecoder]:
    made = GuidedDecoder.of(tiny_model_dir, tiny.config.vocab)
    yield made
    made.close()


@pytest.fixture(scope="module")
def tokenizer(tiny_model_dir) -> Tokenizer:
    return Tokenizer.from_file(str(tiny_model_dir / "tokenizer.json"))


@pytest.fixture
def engine(tiny, decoder) -> ReferenceEngine:
    return ReferenceEngine(tiny, Limits(2048), normalize_log_probs=False, guided=decoder)


def ask(kind: str, text: Any = "", *, seed: int = 0, max_tokens: int = 400, **more: Any) -> Request:
    sampling = more.pop("sampling", None) or Sampling(top_p=1.0, seed=seed)
    guide = Guide(kind, text if isinstance(text, str) else json.dumps(text))
    return Request(f"r{seed}", [5, 6, 7], max_tokens, end_id=IM_END, sampling=sampling, guide=guide, **more)


Answer = Callable[[Request], tuple[str, str | None]]


@pytest.fixture
def answer(engine, generate, tokenizer) -> Answer:
    """Text and end of an answer; the text of an error."""

    def run(request: Request) -> tuple[str, str | None]:
        last = generate(request, engine)[-1]
        if last.error is not None:
            return last.error, None
        return tokenizer.decode(last.ids, skip_special_tokens=False), last.finish

    return run


def is_object(text: str) -> bool:
    return isinstance(json.loads(text), dict)


def is_person(text: str) -> bool:
    value = json.loads(text)
    return list(value) == ["name", "age", "tags"] and 0 <= value["age"] <= 120 and len(value["tags"]) <= 2


def matches(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.fullmatch(pattern, text, re.DOTALL) is not None


ARITHMETIC = r"""
root  ::= sum  # as XGrammar's documentation writes them
sum   ::= term (("+" | "-") term){0,2}
term  ::= [1-9] [0-9]{0,2} | "(" sum ")"
"""
FREE = {"type": "any_text"}
START = "<|im_start|>"  # a special token


def tag(begin: str, content: Any, end: Any) -> dict[str, Any]:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def structural(**format_: Any) -> dict[str, Any]:
    return {"type": "structural_tag", "format": format_}


def triggered(trigger: str, *tags: Any, **switches: bool) -> dict[str, Any]:
    return {"type": "triggered_tags", "triggers": [trigger], "tags": list(tags), **switches}


def sequence(*elements: Any) -> dict[str, Any]:
    return structural(type="sequence", elements=list(elements))


JSON = {"type": "json_schema", "json_schema": CALL}
PLUS = {"type": "plus", "content": JSON}
GRAMMAR = {"type": "grammar", "grammar": 'root ::= "x"+ "y"'}
NUMBER = {"type": "regex", "pattern": r"\d{1,2}"}
LEGACY = {
    "structures": [{"begin": "<f>", "schema": CALL, "end": "</f>"}, {"begin": "<g>", "schema": CALL, "end": "</g>"}],
    "triggers": ["<"],
}


@pytest.mark.parametrize(
    ("kind", "text", "holds"),
    [
        pytest.param("json_schema", PERSON, is_person, id="schema"),
        pytest.param("json_schema", {"type": "boolean"}, matches("true|false"), id="a schema of no object"),
        pytest.param("json_schema", {"enum": ["a b", "c/é"]}, matches('"a b"|"c/é"'), id="enum"),
        pytest.param("regex", r"\d{2}:\d{2}/[a-f]+ (é|🙂){2}b", matches(r"[0-9]{2}:[0-9]{2}/[a-f]+ (é|🙂){2}b")),
        pytest.param("ebnf_grammar", ARITHMETIC, matches(r"[0-9()+-]+"), id="grammar"),
        pytest.param("ebnf_grammar", 'root ::= [a-z]{2,4} "b"', matches(r"[a-z]{2,4}b"), id="overlapping"),
        pytest.param("ebnf_grammar", r'root ::= "\x41\u00e9" [^\n-\U0010FFFF] ("" | "z")?', matches(r"Aé[\t\0-\b]z?")),
        pytest.param("ebnf_grammar", 'root ::= as "."\nas ::= "a" as | "b" ', matches(r"a*b\."), id="right recursion"),
        pytest.param("structural_tag", structural(type="const_string", value='Say "it".'), matches('Say "it".')),
        pytest.param("structural_tag", structural(**tag("<", JSON, ">")), matches(r'<\{"a": ?-?\d+\}>'), id="tag"),
        pytest.param("structural_tag", structural(**tag("<", NUMBER, "0>")), matches(r"<\d{1,2}0>"), id="regex in tag"),
        pytest.param(
            "structural_tag",
            sequence(tag("", GRAMMAR, ["!", "?"]), JSON),
            matches(r'x+y[!?]\{"a": ?-?\d+\}'),
            id="sequence of a grammar and JSON",
        ),
        pytest.param(
            "structural_tag",
            structural(**triggered("<", tag("<f>", JSON, "</f>"), at_least_one=True, stop_after_first=True)),
            matches(r'<f>\{"a": ?-?\d+\}</f>'),
            id="one call by force",
        ),
        pytest.param(
            "structural_tag",
            structural(type="tags_with_separator", tags=[tag("f", JSON, ""), tag("g", JSON, "")], separator=", "),
            matches(r'([fg]\{"a": ?-?\d+\}(, [fg]\{"a": ?-?\d+\})*)?'),
            id="separated",
        ),
        pytest.param(
            "structural_tag",
            structural(type="or", elements=[{"type": "optional", "content": NUMBER}, PLUS]),
            matches(r'(\d{1,2})?|(\{"a": ?-?\d+\})+'),
            id="or, optional, plus",
        ),
    ],
)  # fmt: skip
def test_an_answer_keeps_to_its_guide(kind, text, holds, answer) -> None:
    ended = 0
    for seed in range(6):
        said, finish = answer(ask(kind, text, seed=seed, max_tokens=150))
        assert finish in ("stop", "length"), said
        if finish == "stop":
            ended += 1
            assert holds(said), said
    assert ended >= 3


def test_json_is_an_object_without_runs_of_blanks(answer) -> None:
    for seed in range(4):
        said, finish = answer(ask("json", seed=seed, max_tokens=120))
        assert said.startswith("{")
        assert finish == "length" or is_object(said)
        outside = re.sub(r'"(\\.|[^"\\])*"?', "", said)
        assert "  " not in outside
        assert "\n" not in outside


def start(decoder: GuidedDecoder, guide: Guide) -> Matcher:
    return decoder.start(Request("r", [5], 9, end_id=IM_END, guide=guide), decoder.compile(guide))


def forced(decoder: GuidedDecoder, tokenizer: Tokenizer, guide: Guide, text: str) -> str:
    """How far a text is allowed; it ends with ``$`` where an end may follow."""
    matcher = start(decoder, guide)
    said = ""
    for token in tokenizer.encode(text).ids:
        if not matcher.allowed()[token]:
            return said
        matcher.advance(token)
        said += tokenizer.decode([token], skip_special_tokens=False)
    return said + "$" * bool(matcher.allowed()[IM_END])


@pytest.mark.parametrize(
    ("guide", "text", "allowed"),
    [
        (LEGACY, 'Hi <f>{"a":1}</f> and <g>{"a": 2}</g> bye', 'Hi <f>{"a":1}</f> and <g>{"a": 2}</g> bye$'),
        (LEGACY, "nothing to call", "nothing to call$"),
        (LEGACY, "a < b", "a <"),
        (LEGACY, '<f>{"a":1}</g>', '<f>{"a":1}</'),
        (LEGACY, '<f>{"b":1}', '<f>{"'),
        (structural(**tag("<think>", FREE, "</think>")), "<think>a </b></think>", "<think>a </b></think>$"),
        (structural(**tag("<think>", FREE, "</think>")), "<think>a</think> b", "<think>a</think>"),
        (sequence(FREE, {"type": "const_string", "value": "</t>"}, JSON), 'x</t>{"a":1}', 'x</t>{"a":1}$'),
        (sequence(FREE, tag("<f>", JSON, "")), 'x<f>{"a":1}', 'x<f>{"a":1}$'),
        (structural(type="any_text", excludes=["XY"]), "some XXY", "some XX"),
        (structural(**triggered("<f", tag("<f>", JSON, ""), stop_after_first=True)), 'a<f>{"a":1} b', 'a<f>{"a":1}'),
        (structural(**triggered("<f", tag("<f>", JSON, ""), stop_after_first=True)), "a<", "a<$"),
        (structural(**tag("[", triggered("<", tag("<f>", JSON, ";")), "]")), '[x<f>{"a":1};y]z', '[x<f>{"a":1};y]'),
        (structural(**tag(START, FREE, START)), f"{START}x{START}", f"{START}x{START}$"),
        (structural(**triggered(START, tag(f"{START}f", JSON, ""))), START + 'f{"a":1}b', START + 'f{"a":1}b$'),
        (structural(**triggered(START, tag(f"{START}f", JSON, ""))), f"a{START}g", f"a{START}"),
        (structural(**FREE), f"no {START}", "no "),
        (structural(**tag("<f>", JSON, "<|im_end|>")), '<f>{"a":1}<|im_end|>', '<f>{"a":1}<|im_end|>$'),
        (structural(**tag("<f>", FREE, "<|im_end|>")), "<f>text", "<f>text$"),
    ],
)  # fmt: skip
def test_free_text_and_calls(decoder, tokenizer, guide, text, allowed) -> None:
    assert forced(decoder, tokenizer, Guide("structural_tag", json.dumps(guide)), text) == allowed


def test_added_tokens_that_are_not_special_are_text(tmp_path) -> None:
    """As ``<think>`` is to many models: free text may hold it, and a literal that has it takes the one token."""
    write_scripted_model(tmp_path)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    decoder = GuidedDecoder.of(tmp_path, tokenizer.get_vocab_size())
    call = tag('<tool_call>{"name": "f", "arguments": ', JSON, "}</tool_call>")
    for format_, text, allowed in (
        (FREE, "a <think>b</think>", "a <think>b</think>$"),
        (FREE, "a <|user|>", "a "),
        (triggered("<tool_call>", call), 'x<tool_call>{"name": "f", "arguments": {"a":1}}</tool_call>', None),
        (triggered("<tool_call>", call), "x<tool_call>y", "x<tool_call>"),
        (triggered("[TOOL_CALLS]", tag("[TOOL_CALLS]f[ARGS]", JSON, "")), 'x[TOOL_CALLS]f[ARGS]{"a":1}', None),
    ):
        guide = Guide("structural_tag", json.dumps(structural(**format_)))
        assert forced(decoder, tokenizer, guide, text) == (allowed or f"{text}$")
    decoder.close()


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("json_schema", "{", "not JSON"),
        ("json_schema", {"type": "strin"}, "strin"),
        ("json_schema", {"not": {}}, "not"),
        ("json_schema", "[1]", ""),
        ("json_schema", {"type": "string", "pattern": "(?=a)"}, "look-around"),
        ("json_schema", "[" * 100_000, ""),
        ("regex", "(a", ""),
        ("regex", r"(a)\1", ""),
        ("ebnf_grammar", 'start ::= "a"', "line 1: rule 'root' is missing"),
        ("ebnf_grammar", 'root ::= "a"\n\nroot ::= "b"', "line 3: rule 'root' is defined twice"),
        ("ebnf_grammar", "root ::=\n other", "line 2: rule 'other' is not defined"),
        ("ebnf_grammar", 'root ::= "a', "does not end on its line"),
        ("ebnf_grammar", "root ::= [a", "does not end on its line"),
        ("ebnf_grammar", "root ::= [z-a]", "ends before it begins"),
        ("ebnf_grammar", "root ::= []", "empty class"),
        ("ebnf_grammar", r'root ::= "\q"', "unknown escape"),
        ("ebnf_grammar", r'root ::= "\uD800"', "not a character"),
        ("ebnf_grammar", 'root ::= ("a"', "expected ')'"),
        ("ebnf_grammar", 'root ::= "a"{3,2}', "below its lower bound"),
        ("ebnf_grammar", 'root ::= TagDispatch(("a", root))', "macros"),
        ("ebnf_grammar", 'root ::= "a" ! "b"', "unexpected '!'"),
        ("ebnf_grammar", "(" * 100_000, ""),
        ("structural_tag", "[]", "JSON object"),
        ("structural_tag", {"triggers": []}, "'structures'"),
        ("structural_tag", {"structures": [5], "triggers": []}, "JSON object"),
        ("structural_tag", structural(type="or", elements=[[]]), "JSON object"),
        ("structural_tag", structural(type="telepathy"), "'telepathy'"),
        ("structural_tag", structural(type="any_text", max_tokens=3), "max_tokens"),
        ("structural_tag", sequence(FREE, JSON), "any_text"),
        ("structural_tag", {"structures": [{"begin": "x", "schema": {}, "end": ""}], "triggers": ["<"]}, "trigger"),
        ("structural_tag", structural(type="json_schema", json_schema=3), "json_schema"),
        ("structural_tag", structural(type="const_string", value="\ud800"), ""),
    ],
)
def test_a_mistake_in_a_guide_is_that_request_s_error_and_no_other_s(engine, kind, text, words) -> None:
    engine.submit(ask(kind, text))
    engine.submit(ask("regex", "ab", seed=1))
    last = {name: responses[-1] for name, responses in drain(engine).items()}
    assert last["r0"].final
    assert (last["r0"].error or "").startswith("Guided decoding error: ")
    assert words in (last["r0"].error or "")
    assert "\n" not in (last["r0"].error or "")
    assert last["r1"].finish == "stop"


def test_without_a_guided_decoder_guides_are_refused(make_engine) -> None:
    with pytest.raises(RejectedError, match="has a guide for guided decoding, but GuidedDecoder is not set up"):
        make_engine().submit(ask("json"))


def test_it_can_be_had_with_llguidance_and_a_tokenizer_only(tiny_model_dir, tmp_path, monkeypatch) -> None:
    made = load_guided_decoder(tiny_model_dir, 300)
    made.close()
    assert load_guided_decoder(tmp_path, 300) is None
    (tmp_path / "tokenizer.json").write_text("{}")
    assert load_guided_decoder(tmp_path, 300) is None
    monkeypatch.setitem(sys.modules, "llguidance", None)
    monkeypatch.delitem(sys.modules, "cpu_double.guided")
    assert load_guided_decoder(tiny_model_dir, 300) is None


def test_a_guide_that_takes_long_stalls_nobody(engine, decoder, monkeypatch) -> None:
    """It is compiled beside the steps; later requests overtake, and a cancel reaches the waiting one."""
    release = threading.Event()
    make = GuidedDecoder._make

    def slow(self: GuidedDecoder, guide: Guide) -> Any:
        release.wait(30)
        return make(self, guide)

    monkeypatch.setattr(GuidedDecoder, "_make", slow)
    engine.submit(ask("regex", "[ab]{9}", seed=1))
    engine.submit(ask("regex", "[ab]{8}", seed=2))
    engine.submit(Request("free", [5, 6], 3))
    seen: list[Response] = []
    while not seen:
        seen += engine.step()
    engine.cancel("r2")
    seen += engine.step()
    assert [(response.request.id, response.finish) for response in seen] == [("free", "length"), ("r2", "cancelled")]
    release.set()
    while engine.busy:
        seen += engine.step()
    assert (seen[-1].request.id, seen[-1].finish) == ("r1", "stop")


def test_a_known_guide_is_not_compiled_again(decoder) -> None:
    guide = Guide("regex", "kept")
    assert decoder.compile(guide) is decoder.compile(Guide("regex", "kept"))
    first, second = start(decoder, guide), start(decoder, guide)
    first.advance(int(first.allowed().argmax()))
    assert not np.array_equal(first.allowed(), second.allowed())


def test_the_guide_wins_over_bans_and_min_tokens(answer, tokenizer) -> None:
    [a] = tokenizer.encode("a").ids
    bias = np.zeros(tokenizer.get_vocab_size(), np.float32)
    bias[a] = -np.inf
    for sampling in (
        Sampling(bad_words=((a,),)),
        Sampling(min_tokens=30),
        Sampling(bias=bias),
        Sampling(bias=-bias),
        Sampling(temperature=0.5, repetition_penalty=2.0, min_p=0.5, top_k=3),
    ):
        assert answer(ask("regex", "aaab", sampling=sampling)) == ("aaab", "stop")
    # Where it leaves a choice, they hold.
    assert answer(ask("regex", "[ab]{3}", sampling=Sampling(bad_words=((a,),)))) == ("bbb", "stop")


def test_log_probs_are_among_what_the_guide_allows(engine, generate) -> None:
    request = ask("regex", "[ab]c", log_probs=True, top_log_probs=4, sampling=Sampling(top_k=1))
    last = generate(request, engine)[-1]
    top = last.top_log_probs[0]
    assert sum(np.exp([value for _, value in top])) == pytest.approx(1)
    assert [value for _, value in top[2:]] == [-np.inf, -np.inf]
    assert last.log_probs[1] == pytest.approx(0)


def test_ends(engine, generate, answer) -> None:
    # The limit ends as ever.
    assert answer(ask("regex", "a{9}", max_tokens=4)) == ("aaaa", "length")
    # The model's other ends end it where they are stop words, or where end_id is off, and stay in the answer.
    for end_id, stop_words, tails in (
        (IM_END, (), {()}),
        (30, (), {()}),
        (IM_END, ((END_OF_TEXT,),), {(), (END_OF_TEXT,)}),
        (-1, (), {(IM_END,), (END_OF_TEXT,)}),
    ):
        found = set()
        for seed in range(12):
            request = ask("regex", "aa", seed=seed, stop_words=stop_words)
            request.end_id = end_id
            last = generate(request, engine)[-1]
            assert last.finish == "stop"
            found.add(tuple(last.ids[2:]))
        assert found == tails


def test_a_model_without_end_tokens_ends_when_nothing_may_follow(tiny, tiny_model_dir, generate) -> None:
    decoder = GuidedDecoder((tiny_model_dir / "tokenizer.json").read_text(), tiny.config.vocab, [])
    request = ask("regex", "aa")
    request.end_id = -1
    last = generate(request, ReferenceEngine(tiny, Limits(64), guided=decoder))[-1]
    decoder.close()
    assert (len(last.ids), last.finish) == (2, "stop")
