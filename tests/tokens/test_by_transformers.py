"""What our tokenizer makes of a tokenizer.json is what transformers makes of it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.text.tokens import IncrementalDetokenizer, Tokenizer
from tests.lazy_module import LazyModule
from tests.rings import examples
from tests.tokens.build import FIXED, write_folder
from tests.tokens.families import FAMILIES, WINDOWS
from tests.tokens.test_families import SOURCES

if TYPE_CHECKING:
    import transformers
else:
    transformers = LazyModule("transformers")

ALL = FAMILIES | WINDOWS
QUICK = settings(FIXED, max_examples=examples(60, long=400))
TEXTS = st.text(max_size=40) | st.lists(st.sampled_from(SOURCES), max_size=5).map("".join)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Loads a family as transformers does, from its file alone."""

    @functools.cache
    def load(family: str) -> Any:
        tokenizer = ALL[family]()
        config = {"tokenizer_class": "PreTrainedTokenizerFast", **tokenizer.special_tokens}
        folder = write_folder(tmp_path_factory.mktemp(family), tokenizer, tokenizer_config=config)
        return transformers.AutoTokenizer.from_pretrained(str(folder))

    return load


def check_ids(tokenizer: Tokenizer, other: Any) -> None:
    @QUICK
    @given(TEXTS)
    @example("")
    def check(text: str) -> None:
        assert tokenizer.encode(text) == other.encode(text, add_special_tokens=False)

    check()


def check_texts(tokenizer: Tokenizer, other: Any) -> None:
    ids = st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=12) | TEXTS.map(tokenizer.encode)

    @QUICK
    @given(ids, st.booleans())
    def check(ids: list[int], skip: bool) -> None:
        text = other.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
        detokenizer = IncrementalDetokenizer(tokenizer, skip)
        assert tokenizer.decode(ids, skip_special_tokens=skip) == text
        assert "".join([*map(detokenizer.push, ids), detokenizer.flush()]) == text

    check()


@pytest.mark.parametrize("family", ALL)
def test_texts_become_the_same_ids(family: str, theirs: Any) -> None:
    check_ids(ALL[family](), theirs(family))


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_become_the_same_text_at_once_and_one_by_one(family: str, theirs: Any) -> None:
    check_texts(ALL[family](), theirs(family))


@pytest.mark.parametrize("family", FAMILIES)
def test_special_tokens_are_the_same(family: str, theirs: Any) -> None:
    tokenizer, other = ALL[family](), theirs(family)
    assert tokenizer.vocab_size == len(other)
    assert tokenizer.eos_token == other.eos_token
    assert {index for index, token in other.added_tokens_decoder.items() if token.special} == {
        index for index in range(tokenizer.vocab_size) if tokenizer.is_special(index)
    }
