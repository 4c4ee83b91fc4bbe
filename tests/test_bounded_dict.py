"""A dictionary whose size is bounded."""

from __future__ import annotations

from gateway.text.bounded_dict import BoundedDict


def test_the_oldest_keys_are_forgotten() -> None:
    known = BoundedDict[int, str](8)
    for number in range(100):
        known[number] = str(number)
        known[number] = "again"
    assert known == dict.fromkeys(range(92, 100), "again")
