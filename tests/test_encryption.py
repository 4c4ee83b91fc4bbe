"""Sealed texts: who can open them, and what becomes of those that nobody can."""

from __future__ import annotations

import base64

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.api.openai.encryption import TextCipher

OLD, NEW, OTHER = (base64.urlsafe_b64encode(bytes([number]) * 32).decode() for number in range(3))
SEAL = TextCipher([OLD]).of("me")
SEALED = SEAL.encrypt("reasoning", "Hm, é\0.")


def test_only_its_owner_opens_a_text() -> None:
    assert SEAL.decrypt("reasoning", SEALED) == "Hm, é\0."
    assert TextCipher([OLD]).of("you").decrypt("reasoning", SEALED) is None
    assert TextCipher([OTHER]).of("me").decrypt("reasoning", SEALED) is None
    assert SEAL.decrypt("compaction", SEALED) is None
    assert "Hm, é".encode() not in base64.urlsafe_b64decode(SEALED.removeprefix("sealed1."))


def test_a_key_that_is_no_longer_the_first_still_opens() -> None:
    turned = TextCipher([NEW, OLD]).of("me")
    assert turned.decrypt("reasoning", SEALED) == "Hm, é\0."
    sealed = turned.encrypt("reasoning", "new")
    assert TextCipher([NEW]).of("me").decrypt("reasoning", sealed) == "new"
    assert SEAL.decrypt("reasoning", sealed) is None


@given(st.text())
@example("sealed1.")
@example("sealed1.é")
@example("sealed1.\ud800")
@example("sealed1.gAAAAA")
@example("gAAAAABoISQ24OyVRYbkYfukdJoqdzWT-3uiErKInHDC-lgAaXeky44N77j7aibc")
@example("sealed1." + "gAAAAA" + "A" * 10_000_000)
def test_what_others_wrote_opens_to_nothing(text: str) -> None:
    assert SEAL.decrypt("reasoning", text) is None


@given(st.integers(0, len(SEALED) - 1), st.sampled_from("AZaz09-_=.é"))
def test_what_was_changed_opens_to_nothing(place: int, letter: str) -> None:
    assert SEAL.decrypt("reasoning", SEALED[:place]) is None
    changed = SEALED[:place] + letter + SEALED[place + 1 :]
    if changed != SEALED and place < len(SEALED) - 3:  # the end of base64 has bits that say nothing
        assert SEAL.decrypt("reasoning", changed) is None


@pytest.mark.parametrize("key", ["", "short", OLD[:-4]])
def test_a_key_that_is_none(key: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        TextCipher([key])
