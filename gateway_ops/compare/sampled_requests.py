"""Makes requests for a comparison: varied, greedy, and equal for equal seeds."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from gateway_ops.bench.plan import WORDS
from gateway_ops.compare.asking import ComparedRequest

_CHAT, _COMPLETIONS = "/v1/chat/completions", "/v1/completions"
_LIMITS = (16, 32, 64)
_LONGEST = 200  # words of a long prompt, where the context is not known to be short
_CONTEXT_SHARE = 16  # tokens of the context for each word: some tokenizers make many tokens of a word
_SENTENCES = (
    "Bitte erkläre in zwei Sätzen, was {0} mit {1} zu tun hat.",
    "請用一句話說明 {0} 和 {1}。🙂",
    "Explique en une phrase : {0}, {1}.",
    "اكتب جملة واحدة عن {0} و {1}.",
)


@dataclass(frozen=True, slots=True)
class _Kind:
    """Requests of one kind.

    Attributes:
        name: of the kind.
        make: a body without its limit, from a source of chance and the words of a long prompt.
        needs: parameters that a model must serve.
        path: of the endpoint.
        streamed: whether the answer comes as a stream.
    """

    name: str
    make: Callable[[random.Random, int], dict[str, Any]]
    needs: tuple[str, ...] = ()
    path: str = _CHAT
    streamed: bool = False

    def request(self, place: int, source: random.Random, longest: int) -> ComparedRequest:
        """The request at a place of the sample."""
        body = {**self.make(source, longest), "max_tokens": source.choice(_LIMITS), "temperature": 0}
        if self.streamed:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return ComparedRequest(place, self.name, self.path, body)


def _two(source: random.Random) -> list[str]:
    return [source.choice(WORDS), source.choice(WORDS)]


def _question(source: random.Random) -> str:
    return "What has a {} to do with a {}?".format(*_two(source))


def _user(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def _short(source: random.Random, _longest: int) -> dict[str, Any]:
    return _user(_question(source))


def _long(source: random.Random, longest: int) -> dict[str, Any]:
    words = (source.choice(WORDS) for _ in range(source.randint(longest // 2, longest)))
    return _user(f"Summarise: {' '.join(words)}")


def _other_scripts(source: random.Random, _longest: int) -> dict[str, Any]:
    return _user(source.choice(_SENTENCES).format(*_two(source)))


def _turns(source: random.Random, _longest: int) -> dict[str, Any]:
    said = [("system", "Answer briefly."), ("user", _question(source)), ("assistant", "Not much."), ("user", "Why?")]
    return {"messages": [{"role": role, "content": text} for role, text in said]}


def _prompt(source: random.Random, _longest: int) -> dict[str, Any]:
    return {"prompt": "The {} of the {} is".format(*_two(source))}


def _stop(source: random.Random, _longest: int) -> dict[str, Any]:
    return {**_user(_question(source)), "stop": source.sample([".", "\n", " the", "e", "?"], 2)}


def _log_probs(source: random.Random, _longest: int) -> dict[str, Any]:
    return {**_user(_question(source)), "logprobs": True}


def _json(source: random.Random, _longest: int) -> dict[str, Any]:
    text = "Answer with a JSON object about {} and {}.".format(*_two(source))
    return {**_user(text), "response_format": {"type": "json_object"}}


def _tools(source: random.Random, _longest: int) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    function = {"name": "look_up", "description": "Look a word up.", "parameters": parameters}
    text = f"Look up the word {source.choice(WORDS)}."
    return {**_user(text), "tools": [{"type": "function", "function": function}]}


_KINDS = (
    _Kind("short", _short),
    _Kind("short, streamed", _short, ("stream",), streamed=True),
    _Kind("long", _long),
    _Kind("long, streamed", _long, ("stream",), streamed=True),
    _Kind("stop strings", _stop, ("stop",)),
    _Kind("stop strings, streamed", _stop, ("stop", "stream"), streamed=True),
    _Kind("completion", _prompt, path=_COMPLETIONS),
    _Kind("completion, streamed", _prompt, ("stream",), path=_COMPLETIONS, streamed=True),
    _Kind("several turns", _turns),
    _Kind("other scripts, streamed", _other_scripts, ("stream",), streamed=True),
    _Kind("log-probs", _log_probs, ("logprobs",)),
    _Kind("tools", _tools, ("tools",)),
    _Kind("JSON mode", _json, ("response_format",)),
)


class Sample:
    """A sample of requests of all kinds in turn.

    Args:
        count: number of requests.
        seed: equal seeds give equal requests.
        lacking: parameters that one target does not serve; kinds that need one are left out.
        context: tokens of the shorter context of the two, where it is known.

    Attributes:
        left_out: names of omitted kinds, with the parameters that they need.
    """

    def __init__(self, count: int, seed: int, lacking: Collection[str] = (), context: int | None = None) -> None:
        self.count = count
        self._seed = seed
        self._longest = max(8, min(_LONGEST, (context or _LONGEST * _CONTEXT_SHARE) // _CONTEXT_SHARE))
        missing = {kind: [name for name in kind.needs if name in lacking] for kind in _KINDS}
        self._kinds = [kind for kind in _KINDS if not missing[kind]]
        self.left_out = {kind.name: names[0] for kind, names in missing.items() if names}

    def __iter__(self) -> Iterator[ComparedRequest]:
        source = random.Random(self._seed)  # noqa: S311 - words and limits
        for place, kind in zip(range(1, self.count + 1), itertools.cycle(self._kinds), strict=False):
            yield kind.request(place, source, self._longest)
