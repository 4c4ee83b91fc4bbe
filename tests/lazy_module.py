"""Libraries that take long to import: every worker collects all tests, and one of them runs those of a library."""

from __future__ import annotations

import importlib
from typing import Any


class LazyModule:
    """A module, or package with modules, that is imported when a test first takes something from it.

    For mypy the module itself is imported, under ``TYPE_CHECKING``.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # which pytest asks every object of a test's module for
            raise AttributeError(name)
        module = importlib.import_module(self._name)
        if not hasattr(module, name):
            importlib.import_module(f"{self._name}.{name}")
        return getattr(module, name)
