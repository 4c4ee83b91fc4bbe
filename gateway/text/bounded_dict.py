"""A dictionary with a bounded number of keys."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class BoundedDict(OrderedDict[_Key, _Value]):
    """A dictionary that removes the oldest key when it would have more than ``most``."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._most = capacity

    def __setitem__(self, key: _Key, value: _Value) -> None:
        super().__setitem__(key, value)
        if len(self) > self._most:
            self.popitem(last=False)
