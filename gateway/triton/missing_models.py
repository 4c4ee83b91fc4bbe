"""Explains a missing model by Triton's repository index: it may still load, or something must change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from gateway.generation.engine import EngineError, ErrorKind
from gateway.triton.dialects.dialect import DiscoveryError
from gateway.triton.dialects.registry import SERVED_KINDS, kind_of
from gateway.triton.model_view import ModelView
from gateway.triton.triton_client import ModelState, TritonClient

_MOST_CANDIDATES = 16  # whose configurations are read
_MOST_NAMES = 8
_LONGEST_REASON = 300


class NotLoadedError(EngineError):
    """A model is not loaded, or perhaps not in Triton's repository."""


async def reject_missing(client: TritonClient, model: str, caller: ModelView | None = None) -> NoReturn:
    """Raise the error of a model that is not ready, by the repository index.

    Args:
        client: client of the Triton.
        model: the model that is not ready.
        caller: the model that calls it; None where it is the configured one.

    Raises:
        DiscoveryError: the model is not in Triton's repository, so that a name or the repository must change.
        NotLoadedError: UNAVAILABLE: the model is in the repository but not ready, or that is unknown.
    """
    calls = f", which {caller.name!r} calls," if caller else ""
    try:
        there = await client.repository()
    except EngineError:  # a server may keep the index to itself
        what = f"Model {model!r}{calls} is unknown to Triton, failed to load, or is still loading."
        raise NotLoadedError(ErrorKind.UNAVAILABLE, what) from None
    if model in there:
        raise NotLoadedError(
            ErrorKind.UNAVAILABLE, f"Model {model!r}{calls} is not ready in Triton: {_words(there[model])}."
        )
    if not there:
        raise DiscoveryError(f"model {model!r}{calls} is not in Triton's repository, which is empty")
    ready = sorted(name for name, state in there.items() if state.ready)
    candidates = [] if caller else await _candidates(client, ready[:_MOST_CANDIDATES])
    if candidates:
        raise DiscoveryError(
            f"model {model!r} is not in Triton's repository, which has {_listed(candidates)}; set triton.model to "
            f"{('it' if len(candidates) == 1 else 'one of them')}"
        )
    found = _listed([repr(name) for name in sorted(there)])
    expected = "" if caller else f", but no ready model of a supported kind: {SERVED_KINDS}"
    raise DiscoveryError(f"model {model!r}{calls} is not in Triton's repository, which has {found}{expected}")


async def _candidates(client: TritonClient, names: Iterable[str]) -> list[str]:
    """The models that could be configured, with what they are."""
    views = [ModelView.of(await client.model_config(name)) for name in names]
    return [f"{view.name!r} ({kind})" for view in views if (kind := kind_of(view))]


def _words(state: ModelState) -> str:
    """The first line of what Triton says; a failure to load may come with a traceback."""
    first = state.words.strip().partition("\n")[0].strip().rstrip(".")
    return first[:_LONGEST_REASON] or "it was not loaded"


def _listed(names: list[str]) -> str:
    shown = names[:_MOST_NAMES]
    if len(names) > len(shown):
        return f"{', '.join(shown)} and {len(names) - len(shown)} more"
    *others, last = shown
    return f"{', '.join(others)} and {last}" if others else last
