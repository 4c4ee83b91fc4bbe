"""Endpoints of encoders: what requests get, and what is rejected, by which field and with which bound."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gateway.generation.encoder import EncodedItems, EncoderRequest
from gateway.generation.engine import EngineError, ErrorKind
from gateway.text.tokens.encoder_tokenizer import EncoderInput, EncoderTokenizer, InputTooLongError
from tests.app.encoders import MOST_TOKENS, Encoders, ScriptedEncoder, encoders, letters
from tests.app.scripted import ByteIds

EMBEDDINGS = "/v1/embeddings"
DOCUMENTS = ["zzz", "aab", {"text": "aaa", "page": 3}]


@pytest.fixture
async def world(folder: Path) -> AsyncIterator[Encoders]:
    async with encoders(folder) as running:
        yield running


def _bits(encoded: Any) -> list[float]:
    return [float(number) for number in np.frombuffer(base64.b64decode(encoded), "<f4")]


def _vectors(answer: dict[str, Any]) -> list[Any]:
    assert [each["index"] for each in answer["data"]] == list(range(len(answer["data"])))
    return [each["embedding"] for each in answer["data"]]


def _of(text: str) -> list[float]:
    return list(map(float, letters(EncoderInput(text))))


async def test_vectors_and_tokens_are_those_of_the_inputs(world: Encoders) -> None:
    texts = ["a longer text", "b", "ccc"]
    answer = await world.post(EMBEDDINGS, model="vectors", input=texts, user="u")
    assert _vectors(answer) == [_of(text) for text in texts]
    assert answer["usage"] == {"prompt_tokens": 17, "total_tokens": 17}
    assert answer["model"] == "vectors"
    one = await world.post("/openai/deployments/vectors/embeddings", input="b", encoding_format="base64")
    assert _bits(one["data"][0]["embedding"]) == _of("b")
    counted = await world.post(EMBEDDINGS, model="counting", input=["b", "cc"])
    assert counted["usage"]["total_tokens"] == 8


async def test_a_full_request_is_served_in_order_and_a_fuller_one_names_the_bound(world: Encoders) -> None:
    texts = [f"text {index}" for index in range(2048)]
    answer = await world.post(EMBEDDINGS, model="vectors", input=texts, encoding_format="base64")
    assert [_bits(each) for each in _vectors(answer)] == [_of(text) for text in texts]
    assert max(len(request.items) for request in world.by_name["vectors"].requests) == 64
    for path, name in ((EMBEDDINGS, "input"), ("/v1/rerank", "documents"), ("/v1/score", "text_2")):
        model = "vectors" if name == "input" else "ranks"
        body = {name: [*texts, "x"], "query" if name == "documents" else "text_1": "x"}
        assert await world.rejected(path, model=model, **body) == (
            name,
            "array_above_max_length",
            f"Invalid '{name}': array too long. Expected an array with maximum length 2048, but got an array with "
            "length 2049 instead.",
        )


async def test_300_000_tokens_are_served_and_one_more_is_not(world: Encoders) -> None:
    texts = ["x" * MOST_TOKENS] * 250
    answer = await world.post(EMBEDDINGS, model="vectors", input=texts, encoding_format="base64")
    assert answer["usage"]["total_tokens"] == 300_000
    found = await world.rejected(EMBEDDINGS, model="vectors", input=[*texts, "y"])
    assert found == (
        "input",
        "max_tokens_per_request",
        "Requested at least 300001 tokens, max 300000 tokens per request.",
    )


async def test_other_requests_are_served_while_a_large_response_is_written(
    world: Encoders, monkeypatch: pytest.MonkeyPatch
) -> None:
    large, small = world.by_name["vectors"], world.by_name["counting"]
    encode, ended = large.encode, list[str]()
    asked: list[asyncio.Future[None]] = []

    async def post(model: str, texts: list[str]) -> None:
        await world.post(EMBEDDINGS, model=model, input=texts)
        ended.append(model)

    async def last_of_32(request: EncoderRequest) -> EncodedItems:
        if len(large.requests) == 31:
            asked.append(asyncio.ensure_future(post("counting", ["a"])))
        return await encode(request)

    async def in_twenty_steps(request: EncoderRequest) -> EncodedItems:
        for _ in range(20):
            await asyncio.sleep(0)
        return await ScriptedEncoder.encode(small, request)

    monkeypatch.setattr(large, "encode", last_of_32)
    monkeypatch.setattr(small, "encode", in_twenty_steps)
    await post("vectors", [f"text {index}" for index in range(2048)])
    await asked[0]
    assert ended == ["counting", "vectors"]


async def test_dimensions_cut_vectors_to_length_1(world: Encoders) -> None:
    answer = await world.post(EMBEDDINGS, model="cut", input=["abc", "banana"], dimensions=2)
    for vector, text in zip(_vectors(answer), ("abc", "banana"), strict=True):
        first = np.array(_of(text)[:2], np.float32)
        np.testing.assert_allclose(vector, first / np.linalg.norm(first), rtol=1e-6)
    whole = _vectors(await world.post(EMBEDDINGS, model="cut", input="abc"))
    assert whole == [_of("abc")]
    unscaled = await world.post(EMBEDDINGS, model="cut", input="abc", dimensions=2, normalize=False)
    assert _vectors(unscaled) == [_of("abc")[:2]]
    assert (await world.rejected(EMBEDDINGS, model="vectors", input="a", dimensions=2))[1] == "unsupported_parameter"


@pytest.mark.parametrize("model", ["cut", "vectors", "native"])
async def test_dimensions_of_every_model_are_up_to_its_own(world: Encoders, model: str) -> None:
    engine = world.by_name[model]
    for path, name in ((EMBEDDINGS, "embedding"), ("/pooling", "data")):
        answer = await world.post(path, model=model, input="abc", dimensions=4)
        assert answer["data"][0][name] == _of("abc"), "whole vectors are not scaled"
    assert engine.requests[-1].params.dimensions is None
    sent = len(engine.requests)
    param, code, message = await world.rejected(EMBEDDINGS, model=model, input="abc", dimensions=5)
    assert (param, code) == ("dimensions", "integer_above_max_value")
    assert "'dimensions' is 5, but the vectors of this model have 4." in message
    assert len(engine.requests) == sent


async def test_a_vector_of_another_length_than_asked_is_not_passed_on(world: Encoders) -> None:
    assert len(_vectors(await world.post(EMBEDDINGS, model="native", input="a", dimensions=4))[0]) == 4
    error = (await world.post(EMBEDDINGS, 500, model="native", input="a", dimensions=3))["error"]
    assert (error["code"], error["message"]) == (
        "invalid_engine_output",
        "The model returned vectors with 4 dimensions, not 3.",
    )


async def test_normalize_scales_and_cannot_be_undone(world: Encoders) -> None:
    answer = await world.post(EMBEDDINGS, model="vectors", input="abc", normalize=True)
    assert np.linalg.norm(_vectors(answer)[0]) == pytest.approx(1)
    assert _vectors(await world.post(EMBEDDINGS, model="cut", input="abc", normalize=False)) == [_of("abc")]
    param, code, message = await world.rejected(EMBEDDINGS, model="vectors", input="abc", normalize=False)
    assert (param, code) == ("normalize", "unsupported_parameter")
    assert "can only be true" in message


async def test_input_types_are_those_of_the_settings(world: Encoders) -> None:
    assert _vectors(await world.post(EMBEDDINGS, model="cut", input="a", input_type="query")) == [_of("q: a")]
    param, code, message = await world.rejected(EMBEDDINGS, model="cut", input="a", input_type="x")
    assert (param, code) == ("input_type", "invalid_value")
    assert "it has 'query'" in message
    assert (await world.rejected(EMBEDDINGS, model="vectors", input="a", input_type="query"))[:2] == (
        "input_type",
        "unsupported_parameter",
    )


LONG = "a" * MOST_TOKENS + "bc"


CUTS: list[tuple[dict[str, Any], str]] = [
    ({"truncate": "END"}, LONG[:MOST_TOKENS]),
    ({"truncate": "start"}, LONG[-MOST_TOKENS:]),
    ({"truncate_prompt_tokens": -1}, LONG[:MOST_TOKENS]),
    ({"truncate_prompt_tokens": 3}, "aaa"),
    ({"truncate_prompt_tokens": 3, "truncation_side": "left"}, "abc"),
    ({"truncate_prompt_tokens": 3, "truncate": "START"}, "abc"),
    ({"truncate_prompt_tokens": 3, "truncate": "right", "truncation_side": "right"}, "aaa"),
]


async def test_long_texts_are_cut_as_asked(world: Encoders) -> None:
    for fields, kept in CUTS:
        answer = await world.post(EMBEDDINGS, model="vectors", input=LONG, **fields)
        assert world.by_name["vectors"].items()[-1].text == kept, fields
        assert answer["usage"]["total_tokens"] == len(kept)


async def test_a_prefix_is_never_cut(world: Encoders) -> None:
    """It counts as part of the text: four tokens are those of ``q: `` and one more."""
    cut = world.by_name["cut"]
    for fields, kept in (
        ({"truncate": "START"}, "q: " + LONG[3 - MOST_TOKENS :]),
        ({"truncate": "END"}, "q: " + LONG[: MOST_TOKENS - 3]),
        ({"truncate_prompt_tokens": 4, "truncation_side": "left"}, "q: c"),
    ):
        answer = await world.post(EMBEDDINGS, model="cut", input=LONG, input_type="query", **fields)
        assert cut.items()[-1].text == kept, fields
        assert answer["usage"]["total_tokens"] == len(kept)
    for size in (65535, 2**20):  # the first with its prefix is two characters longer than what is read at most
        await world.post(EMBEDDINGS, model="cut", input="a" * size + "b", input_type="query", truncate="START")
        assert cut.items()[-1].text == "q: " + "a" * (MOST_TOKENS - 4) + "b"
    found = await world.rejected(EMBEDDINGS, model="cut", input=LONG, input_type="query", truncate_prompt_tokens=3)
    assert found[:2] == ("input", "context_length_exceeded")


async def test_what_cannot_be_cut_is_rejected(world: Encoders) -> None:
    param, code, message = await world.rejected(EMBEDDINGS, model="vectors", input=["a", LONG])
    assert (param, code) == ("input[1]", "context_length_exceeded")
    assert message.startswith("prompt is too long: 1202 tokens > 1200 maximum")
    assert (await world.rejected(EMBEDDINGS, model="vectors", input=LONG))[0] == "input"
    for most, code in ((0, "integer_below_min_value"), (1201, "integer_above_max_value")):
        found = await world.rejected(EMBEDDINGS, model="vectors", input="a", truncate_prompt_tokens=most)
        assert found[:2] == ("truncate_prompt_tokens", code)
        assert "at most 1200" in found[2]
    for name, value in (("truncate", "END"), ("truncate_prompt_tokens", 3)):
        found = await world.rejected(EMBEDDINGS, model="counting", input="a", **{name: value})
        assert found[:2] == (name, "unsupported_parameter")
        assert "set tokenizer" in found[2]
    await world.post(EMBEDDINGS, model="counting", input="a", truncate="NONE")
    for side, more in (  # of no cut, and of one on the other side
        ("left", {}),
        ("left", {"truncate": "NONE"}),
        ("right", {"truncate": "START"}),
        ("left", {"truncate": "END", "truncate_prompt_tokens": 3}),
        ("left", {"truncate": "NONE", "truncate_prompt_tokens": 3}),
    ):
        found = await world.rejected(EMBEDDINGS, model="vectors", input="a", truncation_side=side, **more)
        assert found[:2] == ("truncation_side", "invalid_value"), more


async def test_token_ids_need_the_models_own_vocabulary(world: Encoders, folder: Path) -> None:
    ids = ByteIds(folder).of("abc")
    param, code, message = await world.rejected(EMBEDDINGS, model="vectors", input=ids)
    assert (param, code) == ("input", "invalid_value")
    assert "check_embedding_ctx_length=False" in message
    answer = await world.post(EMBEDDINGS, model="cut", input=[ids, ids[:1] * MOST_TOKENS])
    assert answer["usage"]["total_tokens"] == 3 + MOST_TOKENS
    assert (await world.rejected(EMBEDDINGS, model="cut", input=[ids, [9999]]))[0] == "input[1]"
    for fields, kept in CUTS:
        await world.post(EMBEDDINGS, model="cut", input=ByteIds(folder).of(LONG), **fields)
        assert world.by_name["cut"].items()[-1].ids == ByteIds(folder).of(kept), fields
    too_long = ids[:1] * 5000  # more than a conversation may have messages
    assert (await world.rejected(EMBEDDINGS, model="cut", input=too_long))[:2] == ("input", "context_length_exceeded")


async def test_texts_are_tokenized_as_the_model_gets_them(world: Encoders, folder: Path) -> None:
    ids = ByteIds(folder).of("abc")
    found = await world.post("/tokenize", model="cut", prompt="abc", return_token_strs=True)
    assert found == {"count": 3, "max_model_len": MOST_TOKENS, "tokens": ids, "token_strs": ["a", "b", "c"]}
    assert (await world.post("/tokenize", model="ranks", prompt=LONG))["count"] == MOST_TOKENS + 2
    assert await world.post("/detokenize", model="cut", tokens=ids) == {"prompt": "abc"}
    messages = [{"role": "user", "content": "a"}]
    for path, body, param, words in (
        ("/tokenize", {"model": "counting", "prompt": "a"}, "model", "set tokenizer in its settings"),
        ("/detokenize", {"model": "counting", "tokens": [1]}, "model", "set tokenizer in its settings"),
        ("/tokenize", {"model": "cut", "messages": messages}, "messages", "'cut' is embed: it has no chats"),
        ("/tokenize", {"model": "cut", "prompt": "a" * 300_001}, "prompt", "300000 maximum"),
        ("/detokenize", {"model": "cut", "tokens": [1, 9999]}, "tokens[1]", "vocabulary"),
        ("/detokenize", {"model": "cut", "tokens": [1] * 300_001}, "tokens", "at most 300000"),
    ):
        named, _, message = await world.rejected(path, **body)
        assert (named, words in message) == (param, True), message


async def test_rerank_puts_the_most_relevant_first(world: Encoders) -> None:
    body: dict[str, Any] = {"model": "ranks", "query": "a", "documents": DOCUMENTS}
    for path in ("/v1/rerank", "/rerank"):
        answer = await world.post(path, **body)
        assert [(each["index"], each["document"]["text"]) for each in answer["results"]] == [
            (2, "aaa"), (1, "aab"), (0, "zzz"),
        ]  # fmt: skip
        assert answer["results"][1]["relevance_score"] == pytest.approx(2 / 3)
        assert answer["usage"] == {"prompt_tokens": 12, "total_tokens": 12}
        assert answer["model"] == "ranks"
    best = await world.post("/v1/rerank", **body, top_n=1, return_documents=False)
    assert best["results"] == [{"index": 2, "relevance_score": 1}]
    assert len((await world.post("/v1/rerank", **body, top_n=9))["results"]) == 3


async def test_cohere_gets_its_own_form(world: Encoders) -> None:
    body: dict[str, Any] = {"model": "ranks", "query": "a", "documents": DOCUMENTS}
    answer = await world.post("/v2/rerank", **body, top_n=2)
    assert [sorted(each) for each in answer["results"]] == [["index", "relevance_score"]] * 2
    assert answer["meta"] == {
        "api_version": {"version": "2"}, "billed_units": {"search_units": 1}, "tokens": {"input_tokens": 12},
    }  # fmt: skip
    for count, units in ((100, 1), (101, 2)):
        many = await world.post("/v2/rerank", model="ranks", query="a", documents=["a"] * count)
        assert many["meta"]["billed_units"] == {"search_units": units}
    assert {"usage", "model"}.isdisjoint(answer)
    shown = await world.post("/v2/rerank", **body, top_n=1, return_documents=True)
    assert shown["results"][0]["document"] == {"text": "aaa"}


async def test_documents_are_cut_before_they_are_scored(world: Encoders) -> None:
    answer = await world.post("/v1/rerank", model="ranks", query="ab", documents=["zzaaa", "b"], max_tokens_per_doc=2)
    assert {(item.text, item.pair) for item in world.by_name["ranks"].items()} == {("ab", "zz"), ("ab", "b")}
    assert answer["usage"]["total_tokens"] == 7
    assert answer["results"][1]["document"]["text"] == "zzaaa"


async def test_documents_that_are_cut_twice_are_all_scored(world: Encoders) -> None:
    """Whole they have more tokens than a request may have, but only what is left of them counts."""
    documents = [f"{index:02}{'a' * 20_000}" for index in range(20)]
    for fields in ({"truncate": "END"}, {"truncate": "START"}):
        body: dict[str, Any] = {"query": "a", "documents": documents, "max_tokens_per_doc": 19_000, **fields}
        answer = await world.post("/v1/rerank", model="ranks", **body)
        assert sorted(each["index"] for each in answer["results"]) == list(range(20))
        assert answer["usage"]["total_tokens"] == 20 * MOST_TOKENS
    found = await world.rejected("/v1/rerank", model="ranks", **(body | {"documents": documents * 13}))
    assert found[:2] == ("documents", "max_tokens_per_request")
    found = await world.rejected(
        "/v1/rerank", model="ranks", query="a", documents=["a", "\U0001f600"], max_tokens_per_doc=1
    )
    assert found[:2] == ("documents[1]", "context_length_exceeded")


async def test_a_query_that_leaves_no_room_for_a_document_is_named(world: Encoders) -> None:
    bodies: list[tuple[str, dict[str, Any], str]] = [
        ("/v1/rerank", {"query": LONG, "documents": ["a", "b"], "truncate": "END"}, "query"),
        ("/v1/rerank", {"query": "a" * 70_000, "documents": ["a"]}, "query"),
        ("/v1/score", {"text_1": LONG, "text_2": ["a", "b"]}, "text_1[0]"),
        ("/v1/score", {"queries": ["a", LONG], "documents": ["a", "b"]}, "queries[1]"),
    ]
    for path, body, param in bodies:
        named, code, message = await world.rejected(path, model="ranks", **body)
        assert (named, code) == (param, "context_length_exceeded")
        assert message.startswith("prompt is too long: ")
        assert message.endswith(" tokens > 1200 maximum; shorten it.")  # to cut documents would not help
    found = await world.rejected("/v1/rerank", model="ranks", query="a", documents=["a", LONG])
    assert found[0] == "documents[1]"
    assert "'truncate'" in found[2]


async def test_a_query_that_many_documents_repeat_is_rejected_before_it_is_read(world: Encoders) -> None:
    bodies: list[tuple[str, dict[str, Any], str]] = [
        ("/v1/rerank", {"query": "a" * 2**22, "documents": ["b"] * 2048}, "query"),
        ("/v1/score", {"text_1": "a" * 1200, "text_2": ["b"] * 2048}, "text_1"),
    ]
    for path, body, param in bodies:
        found = await world.rejected(path, model="ranks", **body)
        assert found[:2] == (param, "max_tokens_per_request")
        assert found[2].endswith(" characters together, max 2400000.")


async def test_characters_that_are_cut_cost_no_tokens(
    world: Encoders, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight million of them would take a gigabyte."""
    read: list[str] = []
    encode = EncoderTokenizer._encode

    def noted(self: EncoderTokenizer, text: str, pair: str | None) -> Any:
        read.append(text)
        return encode(self, text, pair)

    monkeypatch.setattr(EncoderTokenizer, "_encode", noted)
    huge = "a" * 2**22
    for fields in ({"truncate": "END"}, {"truncate": "START"}):
        answer = await world.post(EMBEDDINGS, model="vectors", input=[huge, "b"], **fields)
        assert answer["usage"]["total_tokens"] == MOST_TOKENS + 1
    assert (await world.rejected(EMBEDDINGS, model="vectors", input=["b", huge]))[0] == "input[1]"
    assert list(map(len, read[:3])) == [65536, MOST_TOKENS, 1], "whole once, then what is left"
    assert max(map(len, read)) == 65536
    assert (await world.rejected(EMBEDDINGS, model="vectors", input=["x" * MOST_TOKENS] * 2000))[0] == "input"
    assert len(read) < 300
    with pytest.raises(InputTooLongError, match=r"^1\d{5} tokens > 100000 maximum"):
        EncoderTokenizer.from_folder(folder).tokenize([EncoderInput("a" * 500_000)], total=100_000)
    assert max(map(len, read)) == 65536


async def test_pairs_of_several_queries_go_by_query_where_the_model_takes_one(world: Encoders) -> None:
    texts = {"text_1": ["a", "b"] * 70, "text_2": ["ab", "b"] * 70}
    answer = await world.post("/v1/score", model="one-query", **texts)
    assert [each["score"] for each in answer["data"]] == [0.5, 1] * 70
    requests = world.by_name["one-query"].requests
    assert sorted((request.items[0].text, len(request.items)) for request in requests) == [
        ("a", 6), ("a", 64), ("b", 6), ("b", 64),
    ]  # fmt: skip
    assert all(len({item.text for item in request.items}) == 1 for request in requests)


async def test_scores_of_three_classes_are_no_relevance(world: Encoders) -> None:
    error = (await world.post("/v1/rerank", 500, model="odd-ranks", query="a", documents=["b"]))["error"]
    assert (error["code"], error["message"]) == (
        "invalid_engine_output",
        "The model returned 3 scores for a pair, not one.",
    )


PAIRS: list[tuple[dict[str, Any], list[Any]]] = [
    ({"text_1": "a", "text_2": "ab"}, [0.5]),
    ({"text_1": ["a"], "text_2": ["ab", "aa", "b"]}, [0.5, 1, 0]),
    ({"queries": ["a", "b"], "documents": ["b", "b"]}, [0, 1]),
    ({"queries": "a", "documents": ["aabb"], "max_tokens_per_doc": 3}, [pytest.approx(2 / 3)]),
]


async def test_scores_of_pairs(world: Encoders) -> None:
    for path in ("/v1/score", "/score"):
        for body, scores in PAIRS:
            answer = await world.post(path, model="ranks", **body)
            assert [each["score"] for each in answer["data"]] == scores


async def test_a_model_that_embeds_scores_by_cosine(world: Encoders, monkeypatch: pytest.MonkeyPatch) -> None:
    def cosine(one: str, other: str) -> Any:
        (a, b) = (np.array(_of(text)) for text in (one, other))
        return pytest.approx(float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)), abs=1e-6)

    pairs = [("abc", "banana"), ("abc", "abc"), ("abc", "xyz")]
    answer = await world.post("/v1/score", model="cut", text_1="abc", text_2=[pair[1] for pair in pairs])
    assert [each["score"] for each in answer["data"]] == [cosine(*pair) for pair in pairs]
    assert len(world.by_name["cut"].items()) == 4, "the query was encoded once"
    assert answer["usage"]["total_tokens"] == 15
    several = await world.post("/score", model="cut", queries=["a", "bb"], documents=["ccc", "a"])
    assert [each["score"] for each in several["data"]] == [cosine("a", "ccc"), cosine("bb", "a")]
    full = await world.post("/v1/score", model="cut", text_1="a", text_2=["b"] * 2048)
    assert len(full["data"]) == 2048
    bad: list[tuple[dict[str, Any], str]] = [
        ({"text_1": ["a", LONG], "text_2": ["b", "c"]}, "text_1[1]"),
        ({"text_1": "a", "text_2": ["b", LONG]}, "text_2[1]"),
    ]
    for texts, param in bad:
        found = await world.rejected("/v1/score", model="cut", **texts)
        assert (*found[:2], "'truncate'" in found[2]) == (param, "context_length_exceeded", True)
        await world.post("/v1/score", model="cut", **texts, truncate="END")
    found = await world.rejected("/v1/score", model="cut", text_1="a", text_2="b", max_tokens_per_doc=1)
    assert found[:2] == ("max_tokens_per_doc", "unsupported_parameter")
    monkeypatch.setattr(world.by_name["cut"], "values", lambda item: [float(item.text != "bad"), 0, 0, 0])
    error = (await world.post("/v1/score", 500, model="cut", text_1=["a", "bad"], text_2=["b", "c"]))["error"]
    assert (error["param"], error["message"]) == (
        "text_1[1]",
        "The model returned a vector of zeros (text_1[1]).",
    )


async def test_inputs_that_may_be_at_fault_are_named_by_their_fields(
    world: Encoders, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_request: EncoderRequest) -> EncodedItems:
        raise EngineError(ErrorKind.INTERNAL, "No.")

    monkeypatch.setattr(world.by_name["cut"], "encode", fails)
    for texts, named in (
        ({"queries": ["a", "b"], "documents": ["c", "d"]}, "documents[0], documents[1], queries[0], queries[1]"),
        ({"text_1": "a", "text_2": ["b"] * 20}, f"{', '.join(f'text_2[{place}]' for place in range(8))} and 13 more"),
    ):
        error = (await world.post("/v1/score", 500, model="cut", **texts))["error"]
        assert (error["param"], error["message"]) == (None, f"No ({named}).")


async def test_classes_have_labels_and_probabilities(world: Encoders) -> None:
    for path in ("/v1/classify", "/classify"):
        answer = await world.post(path, model="classes", input=["abc", "xyz"])
        assert [(each["label"], each["probs"], each["num_classes"]) for each in answer["data"]] == [
            ("sung", [0.875, 0.125], 2),
            ("mute", [0.125, 0.875], 2),
        ]
        assert answer["usage"]["total_tokens"] == 6
    unnamed = await world.post("/classify", model="unnamed", input="xyz")
    assert unnamed["data"][0]["label"] == "LABEL_1"


async def test_classes_of_another_number_than_labels_are_not_named(
    world: Encoders, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def three(request: EncoderRequest) -> EncodedItems:
        return EncodedItems(np.array([[0.5, 0.25, 0.25]] * len(request.items), np.float32))

    monkeypatch.setattr(world.by_name["classes"], "encode", three)
    error = (await world.post("/classify", 500, model="classes", input="a"))["error"]
    assert (error["code"], error["message"]) == (
        "invalid_engine_output",
        "The model returned 3 scores, but it has 2 labels.",
    )


async def test_the_document_that_fails_is_named(world: Encoders, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(request: EncoderRequest) -> EncodedItems:
        if any(item.pair == "x" for item in request.items):
            raise EngineError(ErrorKind.INVALID_REQUEST, "No.")
        return EncodedItems(np.ones((len(request.items), 1), np.float32))

    monkeypatch.setattr(world.by_name["ranks"], "encode", fails)
    found = await world.rejected("/v1/rerank", model="ranks", query="a", documents=["ab", "b", "x", "cde"])
    assert found == ("documents[2]", None, "No (documents[2]).")


async def test_the_longer_text_of_a_pair_is_named_where_the_model_finds_it_too_long(
    world: Encoders, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(request: EncoderRequest) -> EncodedItems:
        if any(len(f"{item.text}{item.pair}") > 20 for item in request.items):
            raise EngineError(ErrorKind.CONTEXT_LENGTH, "No.")
        return EncodedItems(np.ones((len(request.items), 1), np.float32))

    monkeypatch.setattr(world.by_name["ranks"], "encode", fails)
    for query, documents, named in (
        ("a" * 21, ["ab", "b"], "query"),
        ("a", ["ab", "b" * 21], "documents[1]"),
    ):
        found = await world.rejected("/v1/rerank", model="ranks", query=query, documents=documents)
        assert (found[0], found[2]) == (named, f"No ({named}).")


async def test_pooling_returns_vectors_and_scores(world: Encoders) -> None:
    vectors = await world.post("/pooling", model="vectors", input="abc", task="embed")
    assert vectors["data"] == [{"index": 0, "object": "pooling", "data": _of("abc")}]
    scores = await world.post("/pooling", model="classes", input="abc", encoding_format="base64")
    assert _bits(scores["data"][0]["data"]) == [0.875, 0.125]
    assert (await world.rejected("/pooling", model="classes", input="abc", task="embed"))[0] == "task"
    assert (await world.rejected("/pooling", model="classes", input="abc", dimensions=1))[0] == "dimensions"


BAD: list[tuple[str, dict[str, Any], str, str]] = [
    (EMBEDDINGS, {"model": "vectors"}, "input", "missing_required_parameter"),
    (EMBEDDINGS, {"model": "vectors", "input": []}, "input", "empty_array"),
    (EMBEDDINGS, {"model": "vectors", "input": ["a", ""]}, "input[1]", "empty_string"),
    (EMBEDDINGS, {"model": "vectors", "input": ["a", [1]]}, "input", "invalid_value"),
    (EMBEDDINGS, {"model": "vectors", "input": ["a", None]}, "input", "invalid_value"),
    (EMBEDDINGS, {"model": "vectors", "input": {"a": 1}}, "input", "invalid_value"),
    (EMBEDDINGS, {"model": "vectors", "input": "a", "encoding_format": "int8"}, "encoding_format", "invalid_value"),
    (EMBEDDINGS, {"model": "vectors", "input": "a", "dimensions": 0}, "dimensions", "integer_below_min_value"),
    (EMBEDDINGS, {"model": "vectors", "input": "a", "truncate": "MIDDLE"}, "truncate", "invalid_value"),
    ("/v1/rerank", {"model": "ranks", "documents": ["a"]}, "query", "missing_required_parameter"),
    ("/v1/rerank", {"model": "ranks", "query": "", "documents": ["a"]}, "query", "empty_string"),
    ("/v1/rerank", {"model": "ranks", "query": "a", "documents": []}, "documents", "empty_array"),
    ("/v1/rerank", {"model": "ranks", "query": "a", "documents": ["a", ""]}, "documents[1]", "empty_string"),
    (
        "/v2/rerank",
        {"model": "ranks", "query": "a", "documents": [{"title": "a"}]},
        "documents[0].text",
        "missing_required_parameter",
    ),
    ("/rerank", {"model": "ranks", "query": "a", "documents": [1]}, "documents[0]", "invalid_type"),
    ("/rerank", {"model": "ranks", "query": "a", "documents": ["a"], "top_n": -1}, "top_n", "integer_below_min_value"),
    ("/v1/score", {"model": "ranks", "text_2": "a"}, "text_1", "missing_required_parameter"),
    ("/v1/score", {"model": "ranks", "text_1": "a", "queries": "a", "text_2": "b"}, "text_1", "invalid_value"),
    ("/v1/score", {"model": "ranks", "queries": ["a", "b"], "documents": ["b"]}, "documents", "invalid_value"),
    ("/v1/score", {"model": "ranks", "text_1": "a", "text_2": ["b", ""]}, "text_2[1]", "empty_string"),
    ("/classify", {"model": "classes", "input": ""}, "input", "empty_string"),
    ("/classify", {"model": "classes", "input": [5, -1]}, "input[1]", "integer_below_min_value"),
    ("/pooling", {"model": "vectors", "input": [5, True]}, "input[1]", "invalid_type"),
    ("/pooling", {"model": "vectors", "input": [[5], []]}, "input[1]", "empty_array"),
]


async def test_bad_input_names_its_field(world: Encoders) -> None:
    for path, body, param, code in BAD:
        assert (await world.rejected(path, **body))[:2] == (param, code), body


async def test_models_that_generate_are_listed_first_and_taken_by_default(world: Encoders) -> None:
    listed = (await world.client.get("/v1/models")).json()["data"]
    assert [each["id"] for each in listed][:2] == ["words", "vectors"]
    assert (await world.post("/tokenize", prompt="abc"))["count"] == 3
    described = (await world.client.get("/v1/models/ranks")).json()["capabilities"]
    assert {name: each["class"] for name, each in described.items()} == {
        "dimensions": "impossible",
        "input_type": "impossible",
        "max_tokens_per_doc": "engine",
        "normalize": "impossible",
        "truncate": "engine",
        "truncate_prompt_tokens": "engine",
        "truncation_side": "engine",
    }


async def test_what_is_changed_or_unknown_is_named(world: Encoders, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "gateway.access")
    body = {"model": "ranks", "query": "a\0b", "documents": [{"text": "c\0"}], "priority": 1, "user": "u"}
    answer = await world.client.post("/v1/rerank", json=body)
    assert answer.headers["x-ignored-parameters"] == "priority, query, documents[0].text"
    assert answer.json()["results"][0]["document"]["text"] == "c\ufffd"
    line = caplog.records[-1].__dict__
    assert (line["task"], line["prompt_tokens"], line["annotations"]) == ("rerank", 9, {"user": "u"})


async def test_no_vector_comes_of_zeros(world: Encoders, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(request: EncoderRequest) -> EncodedItems:
        return EncodedItems(np.array([[0, 0, 1]] * len(request.items), np.float32))

    monkeypatch.setattr(world.by_name["cut"], "encode", nothing)
    error = (await world.post(EMBEDDINGS, 500, model="cut", input="a", dimensions=2))["error"]
    assert error["message"] == "The model returned a vector of zeros."
