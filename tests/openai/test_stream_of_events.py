"""The order of a stream's events, whatever falls together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.api.openai import endpoint
from gateway.api.openai.errors import OpenAIError
from gateway.settings import TimeoutSettings


class _Ended:
    """A generation whose engine has ended before its first piece is taken."""

    complete = True
    done = False
    _calls = 0

    async def __aenter__(self) -> _Ended:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def wait_for_response(self, _: float) -> bool:
        return True

    async def ready(self, *_: object) -> list[object]:
        self._calls += 1
        self.done = self._calls > 1
        return []


class _Events:
    """Events of an answer that is held back, and refused at its end."""

    def __init__(self) -> None:
        self._taken = 0

    def opening(self) -> bytes:
        return b"opening "

    def take(self, *_: object) -> bytes:
        self._taken += 1
        if self._taken > 1:
            raise OpenAIError(502, "It is no call.", code="invalid_model_output")
        return b""

    def error(self, error: OpenAIError) -> bytes:
        return f"error {error.code}".encode()


async def test_an_answer_that_fails_at_its_end_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "together", lambda _: _Ended())

    async def keep(_: object) -> None:
        pass

    answer: Any = SimpleNamespace(padded=False, kept=False, generations=(), names=dict, keep=keep)
    answer.note = lambda *_, **__: None
    output: Any = SimpleNamespace(write=None, copy=None, ending=False)
    record: Any = SimpleNamespace(error=None)
    events: Any = _Events()
    found = [part async for part in endpoint.stream(answer, events, output, record, TimeoutSettings())]
    assert b"".join(found) == b"opening error invalid_model_output"
    assert record.error == "invalid_model_output"
