"""Encoders as public repositories have them, each called by its own names: exact vectors and scores, in order."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from tests.doubles.encoders.encoder_server import ROWS, EncoderServer
from tests.doubles.encoders.numbers import pair_of, token, tokens_of, vector
from tests.encoders.conftest import serving

TEXTS = [f"text {number} {'word ' * (number % 5)}end" for number in range(11)]
"""More than a batch, of several lengths, so that batches are not in the order of the request."""


def _unit(rows: Any) -> Any:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _of(texts: Sequence[str], width: int = 4) -> Any:
    return np.array([vector(text, width) for text in texts])


@pytest.fixture
def tokenizer(encoder_folder: Any) -> Tokenizer:
    return Tokenizer.from_file(str(encoder_folder / "tokenizer.json"))


def _named(tokenizer: Tokenizer, *text: str, types: bool = False) -> str:
    """How a double names a text that came as token ids; ``types``: with the one of the pair that each is of."""
    encoding = tokenizer.encode(*text)
    return tokens_of(encoding.ids, encoding.type_ids if types else None)


def _states(tokenizer: Tokenizer, text: str) -> Any:
    return np.array([vector(token(each), 4) for each in tokenizer.encode(text).ids])


@pytest.mark.parametrize("name", ["nim", "vllm", "ensemble", "bge_py", "litellm"])
async def test_texts(encoders: EncoderServer, name: str) -> None:
    """Of these the model's own vectors come back as they are, and it counts or the tokenizer does."""
    width = 1024 if name in {"ensemble", "bge_py"} else 4
    async with serving(encoders.model(name)) as gateway:
        expected = _of(TEXTS, 4)
        found = await gateway.vectors(name, TEXTS)
        np.testing.assert_array_equal(found, expected)
        single = await gateway.embed(name, TEXTS[3], encoding_format="base64")
    answer = single.json()
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(answer["data"][0]["embedding"]), "<f4"), expected[3])
    counted = len(TEXTS[3].split()) if name in {"nim", "vllm"} else len(TEXTS[3]) + 2
    assert answer["usage"] == {"prompt_tokens": counted, "total_tokens": counted}
    most = {"nim": 8, "vllm": 1, "ensemble": 256, "bge_py": 8, "litellm": 4}[name]
    asked = encoders.requests(name if name != "ensemble" else "ensemble_step")
    assert max(next(iter(each["inputs"].values()))[0][0] for each in asked) == min(most, len(TEXTS)), width
    assert len({each["id"] for each in asked}) == -(-len(TEXTS) // most) + 1


async def test_request_parameters(encoders: EncoderServer) -> None:
    """NIM takes what a request asks for as parameters of the request to Triton."""
    async with serving(encoders.model("nim")) as gateway:
        asked = {"input_type": "query", "truncate": "start", "dimensions": 3}
        found = await gateway.vectors("nim", [" ".join("abcdefghijklmnopqrstuv"), "b"], **asked)
        np.testing.assert_array_equal(found, _of([" ".join("cdefghijklmnopqrstuv"), "b"], 3))
        too_long = await gateway.embed("nim", ["b", " ".join("abcdefghijklmnopqrstuv")], truncate="NONE")
    first, second, *_ = encoders.requests("nim")
    assert first["parameters"].items() >= {"input_type": "query", "truncate": "START", "dimensions": 3}.items()
    assert second["parameters"]["truncate"] == "NONE"
    assert (too_long.status_code, too_long.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert "/secret" not in too_long.text


async def test_a_model_that_cuts_by_itself_does_not_cut_a_prefix(encoders: EncoderServer) -> None:
    """Without a tokenizer only the model can cut: at the end, or at the start where no prefix is added there."""
    types = {"query": {"prefix": "query: "}, "bare": {}}
    encoder = {"request_fields": ["truncate"], "tensors": {"text": "text"}, "input_types": types}
    async with serving(encoders.model("nim", encoder=encoder)) as gateway:
        for input_type, truncate in (("query", "END"), ("bare", "START")):
            await gateway.vectors("nim", "a", input_type=input_type, truncate=truncate)
        wrong = await gateway.embed("nim", "a", input_type="query", truncate="START")
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "truncate")
    assert "prefix 'query: '" in wrong.json()["error"]["message"]
    assert len(encoders.requests("nim")) == 2


async def test_vllm_dimensions(encoders: EncoderServer) -> None:
    async with serving(encoders.model("vllm")) as gateway:
        np.testing.assert_array_equal(await gateway.vectors("vllm", TEXTS[:2], dimensions=2), _of(TEXTS[:2], 2))
        wrong = await gateway.embed("vllm", "a", dimensions=8)
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "dimensions")


async def test_token_ids(encoders: EncoderServer, tokenizer: Tokenizer) -> None:
    """They are padded within a batch; a further input is the same for all, or by the ``input_type``."""
    async with serving(encoders.model("jina_v3")) as gateway:
        found = await gateway.vectors("jina_v3", TEXTS)
        await gateway.vectors("jina_v3", "a", input_type="query")
    np.testing.assert_array_equal(found, _of([_named(tokenizer, text) for text in TEXTS]))
    *all_but, last = encoders.requests("jina_v3")
    for each in all_but:
        rows, width = each["inputs"]["input_ids"][0]
        assert each["inputs"]["attention_mask"][0] == [rows, width]
        assert width == max(sum(mask) for mask in each["inputs"]["attention_mask"][1])
        assert each["inputs"]["task_id"] == [[rows, 1], [[4]] * rows]
    assert last["inputs"]["task_id"] == [[1, 1], [[0]]]


@pytest.mark.parametrize(("name", "pooling"), [("bert", "mean"), ("deploy", "cls"), ("deploy", "last")])
async def test_hidden_states_are_pooled(encoders: EncoderServer, tokenizer: Tokenizer, name: str, pooling: str) -> None:
    """What stands at the places of padding does not count; the result has length 1 unless the settings say no."""
    normalize = {"normalize": False} if pooling == "cls" else {}
    async with serving(encoders.model(name, encoder={"pooling": pooling, **normalize})) as gateway:
        found = await gateway.vectors(name, TEXTS)
    how = {"mean": lambda each: each.mean(axis=0), "cls": lambda each: each[0], "last": lambda each: each[-1]}
    pooled = np.array([how[pooling](_states(tokenizer, text)) for text in TEXTS])
    np.testing.assert_allclose(found, pooled if normalize else _unit(pooled), atol=1e-6)
    shapes = [each["inputs"]["input_ids"][0] for each in encoders.requests(name)]
    assert {rows for rows, _ in shapes} == ({1} if name == "bert" else {8, 3})
    if name == "bert":
        assert encoders.requests(name)[0]["inputs"]["token_type_ids"][0] == shapes[0]


async def test_a_fixed_number_of_rows_is_filled(encoders: EncoderServer, tokenizer: Tokenizer) -> None:
    """Also of the last batch, whose other rows are left out of the response; the mask is a float."""
    async with serving(encoders.model("fixed")) as gateway:
        found = await gateway.vectors("fixed", TEXTS)
    pooled = np.array([_states(tokenizer, text).mean(axis=0) for text in TEXTS])
    np.testing.assert_allclose(found, _unit(pooled), atol=1e-6)
    assert [each["inputs"]["attention_mask"][0][0] for each in encoders.requests("fixed")] == [4, 4, 4]


async def test_a_fixed_number_of_texts_is_filled(encoders: EncoderServer) -> None:
    async with serving(encoders.model("fixed_texts")) as gateway:
        np.testing.assert_array_equal(await gateway.vectors("fixed_texts", TEXTS), _of(TEXTS))
    assert [each["inputs"]["text"][0] for each in encoders.requests("fixed_texts")] == [[4]] * 3


async def test_positions_count_from_0(encoders: EncoderServer, tokenizer: Tokenizer) -> None:
    async with serving(encoders.model("positions")) as gateway:
        found = await gateway.vectors("positions", TEXTS)
    np.testing.assert_array_equal(found, _of([_named(tokenizer, text) for text in TEXTS]))
    for each in encoders.requests("positions"):
        assert each["inputs"]["position_ids"][0] == each["inputs"]["input_ids"][0]


async def test_special_tokens_are_counted_where_the_model_counts_them(
    encoders: EncoderServer, tokenizer: Tokenizer
) -> None:
    async with serving(encoders.model("gemma")) as gateway:
        for body, special in (({}, True), ({"add_special_tokens": False}, False)):
            answer = await gateway.client.post("/tokenize", json={"prompt": "a text", **body})
            assert answer.json()["tokens"] == tokenizer.encode("a text", add_special_tokens=special).ids
        whole = tokenizer.encode("a text").ids
        back = await gateway.client.post("/detokenize", json={"model": "gemma", "tokens": whole})
        used = (await gateway.embed("gemma", "a text")).json()["usage"]["prompt_tokens"]
    assert back.json() == {"prompt": "[CLS]a text[SEP]"}
    assert used == len(whole)


async def test_a_cut_leaves_room_beside_special_tokens(encoders: EncoderServer, tokenizer: Tokenizer) -> None:
    """Two of a text and three of a pair: a cut to fewer tokens would leave nothing of a text."""
    query: dict[str, Any] = {"query": "q", "documents": ["abc"]}
    async with serving(
        encoders.model("gemma", encoder={"token_ids": "own"}), encoders.model("jina_reranker")
    ) as gateway:
        for path, body, least in (
            ("/v1/embeddings", {"model": "gemma", "input": "abc"}, 3),
            ("/v1/rerank", {"model": "jina_reranker", **query}, 5),
        ):
            error = (await gateway.client.post(path, json={**body, "truncate_prompt_tokens": least - 1})).json()[
                "error"
            ]
            assert (error["param"], error["code"]) == ("truncate_prompt_tokens", "integer_below_min_value")
            assert f"at least {least}, for special tokens" in error["message"]
            answer = (await gateway.client.post(path, json={**body, "truncate_prompt_tokens": least})).json()
            assert answer["usage"]["total_tokens"] == least
        ids = tokenizer.encode("abc").ids  # which have their special tokens already
        assert (await gateway.embed("gemma", ids, truncate_prompt_tokens=1)).json()["usage"]["total_tokens"] == 1


async def test_a_pooled_output_comes_before_hidden_states(encoders: EncoderServer, tokenizer: Tokenizer) -> None:
    async with serving(encoders.model("gemma")) as gateway:
        found = await gateway.vectors("gemma", TEXTS)
    np.testing.assert_array_equal(found, _of([_named(tokenizer, text) for text in TEXTS]))


async def test_prefixes_and_fixed_parameters(encoders: EncoderServer) -> None:
    async with serving(encoders.model("several")) as gateway:
        for input_type, prefix in ((None, "passage: "), ("passage", "passage: "), ("query", "query: ")):
            found = await gateway.vectors("several", TEXTS, **({"input_type": input_type} if input_type else {}))
            np.testing.assert_array_equal(found, _of([prefix + text for text in TEXTS]))
        wrong = await gateway.embed("several", "a", input_type="title")
    assert wrong.status_code == 400
    assert "'passage', 'query'" in wrong.json()["error"]["message"]
    assert encoders.requests("several")[0]["parameters"].items() >= {"embed_model": "e5", "truncation": True}.items()


async def test_vectors_behind_one_another(encoders: EncoderServer) -> None:
    async with serving(encoders.model("flat")) as gateway:
        np.testing.assert_array_equal(await gateway.vectors("flat", TEXTS), _of(TEXTS))
        lost = await gateway.embed("flat", ["a", "!row", "c"])
    *_, first = sorted(encoders.requests("flat"), key=lambda each: int(each["inputs"]["TEXT"][0][0]))
    assert first["inputs"]["MODEL_NAME"] == [[1], ["e5-small"]]
    assert first["inputs"]["TEXT"][0] == [3]
    assert (lost.status_code, "malformed" in lost.json()["error"]["message"]) == (500, True)


async def test_halves_and_length_1(encoders: EncoderServer) -> None:
    async with serving(encoders.model("minilm")) as gateway:
        np.testing.assert_allclose(await gateway.vectors("minilm", TEXTS), _unit(_of(TEXTS)), atol=1e-6)


@pytest.mark.parametrize("name", ["nim_rerank", "cross", "jina_reranker", "bert_cross"])
async def test_scores_of_pairs(encoders: EncoderServer, tokenizer: Tokenizer, name: str) -> None:
    """Sorted or not, they come back in the order of the documents; logits become probabilities."""
    pairs = [("which?", text) for text in TEXTS]
    async with serving(encoders.model(name)) as gateway:
        found = await gateway.score(name, pairs)
    by_ids = name in {"jina_reranker", "bert_cross"}
    names = [_named(tokenizer, *pair, types=name == "bert_cross") if by_ids else pair_of(pair) for pair in pairs]
    logits = np.array([vector(each, 1) for each in names])
    expected = logits if name == "cross" else 1 / (1 + np.exp(-logits))
    np.testing.assert_allclose(found.values, expected, atol=1e-6)
    asked = sorted(encoders.requests(name), key=lambda each: -int(next(iter(each["inputs"].values()))[0][0]))
    assert len(asked) == (1 if name == "jina_reranker" else 2)
    if name == "nim_rerank":  # whose configuration names the request parameter
        assert asked[0]["parameters"]["truncate"] == "NONE"
        assert asked[0]["inputs"]["query"] == [[8, 1], [["which?"]] * 8]
        assert found.tokens == sum(len(each.split()) for each in names)
    if name == "cross":
        by_length = sorted(pairs, key=lambda pair: len(pair[1]))
        assert asked[0]["inputs"]["INPUT_PAIRS"] == [[8, 2], [list(pair) for pair in by_length[:8]]]


async def test_programs_rerank(encoders: EncoderServer) -> None:
    """Open WebUI asks for all documents and puts them in order by ``index``; LiteLLM asks as for vLLM."""
    body = {"model": "cross", "query": "which?", "documents": TEXTS}
    async with serving(encoders.model("cross")) as gateway:
        for path, more in (("/v1/rerank", {"top_n": len(TEXTS)}), ("/rerank", {"return_documents": True})):
            answer = await gateway.client.post(path, json={**body, **more})
            found = sorted(answer.json()["results"], key=lambda each: int(each["index"]))
            scores = [vector(pair_of(("which?", text)), 1)[0] for text in TEXTS]
            assert [each["relevance_score"] for each in found] == scores
            assert [each["document"]["text"] for each in found] == TEXTS


async def test_classes(encoders: EncoderServer) -> None:
    async with serving(encoders.model("classes")) as gateway:
        found = await gateway.score("classes", [(text, None) for text in TEXTS])
        assert gateway.app.state.registry.get("classes").labels == ("bad", "so", "good")
    powers = np.exp(np.array([vector(text, 3) for text in TEXTS]))
    np.testing.assert_allclose(found.values, powers / powers.sum(axis=1, keepdims=True), atol=1e-6)


async def test_classes_of_a_fixed_number_of_texts(encoders: EncoderServer) -> None:
    """The scores of all texts come in one vector, whose declared length is not the number of classes."""
    async with serving(encoders.model("fixed_classes")) as gateway:
        body = {"model": "fixed_classes", "input": TEXTS}
        answer = await gateway.client.post("/v1/classify", json=body)
    assert answer.status_code == 200, answer.text
    assert [each["probs"] for each in answer.json()["data"]] == _of(TEXTS, 3).tolist()
    assert {each["num_classes"] for each in answer.json()["data"]} == {3}


async def test_a_large_request(encoders: EncoderServer) -> None:
    """As many inputs as a request may have, and as many tokens."""
    short = [f"{number}" for number in range(2048)]
    long = [f"{number} {'x' * 990}" for number in range(300)]
    async with serving(encoders.model("ensemble")) as gateway:
        np.testing.assert_array_equal(await gateway.vectors("ensemble", short), _of(short))
        answer = await gateway.embed("ensemble", long)
    assert answer.json()["usage"]["prompt_tokens"] == sum(len(text) + 2 for text in long) > 298_000
    np.testing.assert_array_equal([each["embedding"] for each in answer.json()["data"]], _of(long))


def test_every_row_has_a_test() -> None:
    tested = {
        "nim", "vllm", "ensemble", "bge_py", "litellm", "jina_v3", "bert", "deploy", "gemma",
        "positions", "fixed", "fixed_texts", "several", "flat", "minilm", "nim_rerank", "cross", "jina_reranker",
        "bert_cross", "classes", "fixed_classes",
    }  # fmt: skip
    assert set(ROWS) == tested
