"""A helper that converts the folders of all tests of a process: two seconds of each start are imports of its own."""

from __future__ import annotations

import atexit
import functools
from typing import Any

import pytest

from gateway.text.tokens import conversion
from gateway.text.untrusted_work import Helper


class KeptHelper(Helper):
    """A helper that stays for the next folder, where a gateway ends it after each."""

    def close(self) -> None:
        pass


@functools.cache
def _kept(*name: str, **bounds: Any) -> KeptHelper:
    helper = KeptHelper(*name, **bounds)
    atexit.register(Helper.close, helper)
    return helper


@pytest.fixture
def one_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convert folders in one process."""
    monkeypatch.setattr(conversion, "Helper", _kept)
