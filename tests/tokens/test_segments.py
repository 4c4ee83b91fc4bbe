"""Texts that are tokenized by parts have the ids that they have as a whole, whatever the tokenizer and its tokens."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, models, normalizers, pre_tokenizers

from gateway.text.tokens import Tokenizer, TokenizerError
from gateway.text.tokens.folder import FolderMetadata
from gateway.text.tokens.segments import CacheScope, NoBounds, SegmentTokenizer, obstacle
from gateway.text.tokens.token_cache import TokenCache
from gateway.text.tokens.token_ids import TokenIds
from tests.rings import examples
from tests.tokens import vocabularies
from tests.tokens.build import FIXED, byte_level, sentence_piece, unigram, word_piece
from tests.tokens.families import FAMILIES, WINDOWS, qwen

QUICK = settings(FIXED, max_examples=examples(60, long=300))


def word_level() -> Tokenizer:
    """A whole word is a token, in lower case."""
    words = {word: index for index, word in enumerate(["[UNK]", "hello", "world", "a", "</s>", "é", "!"])}
    backend = tokenizers.Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    backend.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()])
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens([AddedToken(text, normalized=False) for text in ("</s>", "<|im_end|>")])
    return Tokenizer(backend, FolderMetadata(special_tokens={"eos_token": "</s>"}))


KINDS: dict[str, Callable[[], Tokenizer]] = {
    **FAMILIES,
    **WINDOWS,
    "byte_level": byte_level,
    **{f"sentence_piece_{style}": functools.partial(sentence_piece, style)
       for style in ("llama2", "mistral", "gemma", "metaspace")},
    "unigram": unigram,
    "word_level": functools.cache(word_level),
}  # fmt: skip

PIECES = [
    "", " ", "  ", "\n", "\n\n", "\t", "\r\n", "\u3000", "\u00a0", "\u2581", "\u2581\u2581", "_", "a", "Hello world",
    " the capital of", "ing ", "it's", "12345.67", "é", "e\u0301", "\u0301", "ﬁ ½", "你好", "😀", "👩‍👩‍👧", "\ufeff",
    "<", ">", "<|", "|>", "<|im_", "end|>", "</", "s>", "[INST", "]", "<0x41>", "two words", "x\r\n\ty",
]  # fmt: skip


def texts(backend: tokenizers.Tokenizer) -> st.SearchStrategy[str]:
    """Texts with many added tokens, halves of them, and what is hard to cut."""
    added = sorted(token.content for token in backend.get_added_tokens_decoder().values())
    halves = [text[: len(text) // 2] for text in added] + [text[len(text) // 2 :] for text in added]
    piece = st.sampled_from([*added, *PIECES]) | st.sampled_from([*added, *halves]) | st.text(max_size=5)
    return st.lists(piece, max_size=14).map("".join)


def whole(backend: tokenizers.Tokenizer, text: str) -> list[int]:
    ids: list[int] = backend.encode(text, add_special_tokens=False).ids
    return ids


def check(backend: tokenizers.Tokenizer, data: st.DataObject) -> None:
    text, more = data.draw(texts(backend)), data.draw(texts(backend))
    sizes = {"least": data.draw(st.sampled_from([0, 1, 8, 40])), "block": data.draw(st.sampled_from([1, 20, 100]))}
    segments, cache = SegmentTokenizer(backend, **sizes), TokenCache(2**16)
    for each in (text, text, text + more, more + text, text + more):
        for how in (NoBounds(), NoBounds(CacheScope(cache))):
            assert TokenIds(segments.encode(each, how)).tolist() == whole(backend, each)


def check_parts(tokenizer: Tokenizer) -> None:
    assert tokenizer.obstacle is None

    @given(st.data())
    @QUICK
    def holds(data: st.DataObject) -> None:
        check(tokenizer.backend, data)

    holds()


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_has_the_same_ids_by_parts(kind: str) -> None:
    check_parts(KINDS[kind]())


@pytest.mark.usefixtures("one_helper")
@pytest.mark.parametrize(
    "make",
    [
        vocabularies.llama2,
        vocabularies.tekken,
        *(
            pytest.param(make, marks=pytest.mark.long)
            for make in (vocabularies.llama3, vocabularies.gemma, vocabularies.unigram)
        ),
    ],
)
def test_a_converted_vocabulary_has_the_same_ids_by_parts(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    check_parts(Tokenizer.from_folder(make(tmp_path / "model")))


@st.composite
def added_tokens(draw: st.DrawFn) -> list[AddedToken]:
    """Added tokens that take spaces, need a word's edge, begin or hold one another, or are found in normalized text."""
    shapes = ["<a>", "<a>b", "a>", "<a><b>", "<b>", " c ", "c", "<A>", "[X", "X]", "a b", "<"]
    shapes += ["\n\n", " ", "▁", "é", "e"]
    picked = draw(st.lists(st.sampled_from(shapes), min_size=1, max_size=6, unique=True))
    flag = st.sampled_from([False, False, True])
    names = ("lstrip", "rstrip", "single_word", "normalized")
    return [AddedToken(text, special=draw(st.booleans()), **{name: draw(flag) for name in names}) for text in picked]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["qwen", "mistral_v1", "mistral_v3", "gemma", "word_pieces", "unigram", "word_level"])
def test_any_added_tokens_leave_the_ids_as_they_are_or_are_refused(kind: str) -> None:
    source = KINDS[kind]().backend.to_str()

    @given(st.data())
    @settings(FIXED, max_examples=300)
    def holds(data: st.DataObject) -> None:
        backend = tokenizers.Tokenizer.from_str(source)
        added = data.draw(added_tokens())
        # The library panics on any text where the normalizer leaves nothing of a token.
        normalizer = backend.normalizer
        assume(not normalizer or all(normalizer.normalize_str(t.content) for t in added if t.normalized))
        backend.add_tokens(added)
        if obstacle(backend) is None:
            for _ in range(4):
                check(backend, data)

    holds()


@pytest.mark.parametrize(
    "token",
    [AddedToken("<end>", rstrip=True, normalized=False), AddedToken("<end>", lstrip=True, normalized=False),
     AddedToken("end", single_word=True, normalized=False)],
)  # fmt: skip
def test_tokens_that_take_spaces_or_need_a_words_edge(token: AddedToken) -> None:
    backend = tokenizers.Tokenizer.from_str(qwen().backend.to_str())
    backend.add_tokens([token])
    assert obstacle(backend) is None
    segments = SegmentTokenizer(backend, least=0)
    for text in (f"a {token.content} \n b<|im_end|>{token.content} <|im_start|>", f"<|im_end|>x{token.content}x"):
        assert TokenIds(segments.encode(text, NoBounds())).tolist() == whole(backend, text)


def test_a_tokenizer_without_tokens_to_cut_at_says_so() -> None:
    assert "no added tokens" in str(word_piece().obstacle)
    backend = tokenizers.Tokenizer.from_str(qwen().backend.to_str())
    backend.model.dropout = 0.5
    assert "dropout" in str(obstacle(backend))
    backend = tokenizers.Tokenizer.from_str(qwen().backend.to_str())
    backend.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("<end>", rstrip=True, normalized=False)])
    assert "spaces" in str(obstacle(backend))


def test_a_tokenizer_on_which_the_library_panics_fails_by_a_sentence() -> None:
    backend = tokenizers.Tokenizer.from_str(word_level().backend.to_str())
    backend.add_tokens([AddedToken(" ", normalized=True)])  # nothing is left of it, which is found within characters
    tokenizer = Tokenizer(backend, FolderMetadata())
    assert tokenizer.obstacle == "its tokenizer fails on some texts"
    with pytest.raises(TokenizerError, match="cannot be tokenized"):
        tokenizer.encode_known("h\u00e9")
    assert tokenizer.encode_known("a").tolist() == tokenizer.encode("a")


@pytest.mark.parametrize(("size", "known"), [(20, False), (252, True), (500, True), (5_000, True)])
def test_what_requests_begin_with_is_known_of_the_next_one(size: int, *, known: bool) -> None:
    segments = SegmentTokenizer(word_level().backend)
    cache = TokenCache(2**20)
    found = []
    for said in ("hello", "world"):
        recall = CacheScope(cache, b"model")
        segments.encode(f"{'hello ' * (size // 6)}<|im_end|>{said}<|im_end|>", NoBounds(recall))
        found.append(recall.found)
    assert found == [0, found[1]]
    assert (found[1] > size // 6) == known
