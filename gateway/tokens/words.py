"""A word that must not be generated, as the token sequences that would write it."""

from __future__ import annotations

from gateway.tokens.tokenizer import Tokenizer

_ANCHOR = "\n"  # text after it continues no word and begins no text


def word_sequences(tokenizer: Tokenizer, word: str) -> tuple[tuple[int, ...], ...]:
    """Token sequences that write ``word``: at the start of a text, after a space, and right after other text.

    An engine bans exact token sequences (wire contract 1.4), and most vocabularies write a word with a space before
    it in another way than without. Unusual ways to split the word into tokens are not in here, so a ban makes the word
    unlikely rather than impossible. A word that begins with a space is only meant with it.

    Returns:
        The sequences without repeats; empty when the word is.

    Raises:
        TokenizerError: the word is not valid Unicode.
    """
    if not word:
        return ()
    found = [tokenizer.encode(word)]
    anchor, inside = tokenizer.encode(_ANCHOR), tokenizer.encode(_ANCHOR + word)
    if anchor and inside[: len(anchor)] == anchor:
        found.append(inside[len(anchor) :])
    if not word[0].isspace():
        found.append(tokenizer.encode(" " + word))
        spaced = tokenizer.encode(f"{_ANCHOR} {word}")
        if anchor and spaced[: len(anchor)] == anchor:
            found.append(spaced[len(anchor) :])
    return tuple(dict.fromkeys(tuple(ids) for ids in found if ids))
