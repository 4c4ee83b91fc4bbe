from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.text.tokens import Tokenizer, word_sequences
from tests.tokens.build import FIXED, all_exact, byte_level, sentence_piece

WORDS = st.text(alphabet="ab thé你😀", min_size=1, max_size=8)


@FIXED
@given(WORDS, st.sampled_from(all_exact()))
def test_each_sequence_writes_the_word(word: str, tokenizer: Tokenizer) -> None:
    sequences = word_sequences(tokenizer, word)
    assert sequences
    assert len(set(sequences)) == len(sequences)
    written = tokenizer.decode(tokenizer.encode(word))
    for ids in sequences:
        assert tokenizer.decode(ids).lstrip(" ") == written.lstrip(" ")


def test_a_word_is_banned_at_the_start_after_a_space_and_inside() -> None:
    tokenizer = byte_level()
    sequences = word_sequences(tokenizer, "capital")
    assert tuple(tokenizer.encode(" capital")) in sequences
    assert tuple(tokenizer.encode("capital")) in sequences
    llama = sentence_piece("llama2")
    inside = llama.encode("\ncapital")[len(llama.encode("\n")) :]
    assert tuple(inside) in word_sequences(llama, "capital")
    assert tuple(llama.encode("capital")) in word_sequences(llama, "capital")
    # One that begins with a space is meant with it.
    assert word_sequences(tokenizer, " capital") == (tuple(tokenizer.encode(" capital")),)
    assert word_sequences(tokenizer, "") == ()
