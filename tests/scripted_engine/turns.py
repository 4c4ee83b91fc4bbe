"""Scripts of the scripted engine: a file of turns, each of which answers the prompts that it matches.

The script is an object::

    {"chunk": 1, "guided": true, "turns": [{"match": "weather in Paris", "text": "<tool_call>...", "chunk": 3}, ...]}

``chunk`` is the number of tokens in a response, or a list of such numbers that is gone through again and again.
``guided`` false rejects guides as an engine without a guided decoder does; true takes them, journals them, and replays
all the same. A turn has

- ``match``: a regular expression that is searched for in the decoded prompt, special tokens included; or
  ``prompt_ids``: the prompt's exact ids. The last turn that matches plays, so that turns of a conversation stand in
  their order;
- ``ids``: the answer's token ids; or ``text``, from which they are made, special tokens included; or ``sampled``, an
  answer by chance: true, or ``{"pieces": [...], "end": 0.1}``. Pieces are drawn and encoded one by one; after each, the
  end token follows with the given chance. The same prompt and the same heeded parameters draw the same where a request
  is greedy or has a seed; or ``logits``, a table from which the computing engine's sampler draws by the request's
  parameters: for each token of the answer, and the last for all that follow, ``{"40": 2.0, "41": 1.5}``. What a row
  leaves out has 30 less than its best;
- ``chunk``: its own; ``pause``: seconds before each response;
- ``finish``: why it ends when all is said, ``stop`` by default; an end token, a stop word or the limit may end it
  earlier;
- ``hold``: true keeps the answer open after its last token, until it is cancelled or stopped;
- ``until``: a file without which the last token does not come;
- ``stall_after``: tokens after which it stands still as with ``hold``; ``fail_after``: tokens after which it fails,
  with the text ``error``;
- ``fails``: words of the failure that comes in place of an answer;
- ``spoil``, of models of text: outputs to leave out or to replace: ``{"logprobs": null, "finish_reason": "abort"}``.

A prompt that no turn matches is rejected, but a request for up to two tokens, which probes send, is answered with an
echo.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer

sys.path.append(str(Path(__file__).resolve().parents[2] / "triton_repo" / "tensorrt_llm" / "1"))

from cpu_double.sampler import Draw, Sampler
from wire.request import Request, Sampling

Turn = dict[str, Any]

_ECHOED = 2  # tokens that a probe asks for at most
_PIECES = ("a", " the", " then", "\n", " 世界", "😀", " مرحبا", "  ", " one", ".")
_LOOK_S = 0.01  # how often an answer that stands still looks whether it may go on
_UNTIL_S = 0.1  # many may wait
_LESS = 30.0
_GREEDY_BELOW = 1e-5


class UnknownPromptError(LookupError):
    """No turn matches a prompt, and the request is no probe."""


class ScriptedError(RuntimeError):
    """The script lets an answer fail."""


@dataclass(frozen=True)
class Asked:
    """What decides about an answer.

    Attributes:
        prompt: its ids.
        limit: tokens at most.
        ends: ids that end it.
        stop_words: token sequences that end it and stay in it.
        min_tokens: before which no end token is drawn.
        heeded: the parameters that a sampled answer depends on; None where nothing makes it the same again.
        sampling: by which it is drawn from a table of logits.
        normalizes: whether its log-probs are among the candidates that are left.
    """

    prompt: list[int]
    limit: int
    ends: frozenset[int] = frozenset()
    stop_words: Sequence[Sequence[int]] = ()
    min_tokens: int = 0
    heeded: Any = None
    sampling: Sampling = field(default_factory=Sampling)
    normalizes: bool = False


@dataclass(frozen=True)
class Answer:
    """What is said to a request.

    Attributes:
        turn: what the script says of it.
        ids: tokens, without the one that ended it.
        finish: why it ends after them; None where it is kept open.
        end: the token that ended it, if one did.
        log_probs: of the tokens, where they were drawn from a table.
    """

    turn: Turn
    ids: list[int]
    finish: str | None
    end: int | None = None
    log_probs: Sequence[float] = ()

    @property
    def drawn(self) -> list[int]:
        """The tokens with the one that ended it."""
        return self.ids if self.end is None else [*self.ids, self.end]

    def told(self) -> dict[str, Any]:
        """What a journal tells of it."""
        return {"answer": {"ids": self.ids}, "generated": len(self.ids), "finish": self.finish}


class Step(NamedTuple):
    """New tokens of an answer, and its finish reason where they are the last."""

    ids: list[int]
    finish: str | None = None


class Script:
    """The file, read when it changed.

    Args:
        path: of the file.
        tokenizer: of the engine.
        eos: the token that the model draws after a turn's text, to say the same again where that does not end the
            answer; None: the answer ends there, and only ``sampled`` ones draw ``end``.
        end: the token by which sampled answers end.
    """

    def __init__(self, path: Path, tokenizer: Tokenizer, *, eos: int | None = None, end: int | None = None) -> None:
        self._path, self._tokenizer, self._eos = path, tokenizer, eos
        self._end = eos if end is None else end
        self._version: tuple[int, int] | None = None
        self._content: dict[str, Any] = {}
        self._draws = itertools.count()
        self._lock = threading.Lock()

    def read(self) -> dict[str, Any]:
        """The script as it is now; another object once it was replaced."""
        with self._lock:
            status = self._path.stat()
            version = (status.st_mtime_ns, status.st_ino)
            if version != self._version:
                self._content, self._version = json.loads(self._path.read_text(encoding="utf-8")), version
                self._draws = itertools.count()
            return self._content

    def decode(self, ids: list[int]) -> str:
        """The text of ids, special tokens included."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without those that a tokenizer adds."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def turn(self, prompt_ids: list[int]) -> Turn | None:
        """What answers a prompt: ``ids``, ``chunk`` as a list, and the rest as the script has it; None without one."""
        content = self.read()
        prompt = self.decode(prompt_ids)
        for turn in reversed(content.get("turns", [])):
            if "prompt_ids" in turn:
                matches = turn["prompt_ids"] == prompt_ids
            else:
                matches = re.search(turn["match"], prompt, re.DOTALL) is not None
            if matches:
                chunk = turn.get("chunk") or content.get("chunk", 1)
                ids = turn["ids"] if "ids" in turn else self.encode(turn.get("text", ""))
                return {**turn, "ids": ids, "chunk": chunk if isinstance(chunk, list) else [chunk]}
        return None

    def answer(self, asked: Asked) -> Answer:
        """What is said to a request.

        Raises:
            UnknownPromptError: see there.
            ScriptedError: the turn fails.
        """
        turn = self.turn(asked.prompt)
        if turn is None:
            if asked.limit > _ECHOED:
                raise UnknownPromptError("no turn of the script matches the prompt")
            return Answer({"chunk": [1]}, (asked.prompt[:1] * _ECHOED)[: asked.limit], "length")
        if "fails" in turn:
            raise ScriptedError(turn["fails"])
        if "logits" in turn:
            drawn, scores = itertools.tee(self._by_table(turn["logits"], asked))
            answer = cut(turn, (draw.token for draw in drawn), asked)
            return replace(answer, log_probs=[draw.log_prob for draw in itertools.islice(scores, len(answer.ids))])
        return cut(turn, self._drawn(turn, asked), asked)

    def _drawn(self, turn: Turn, asked: Asked) -> Iterable[int]:
        if turn.get("sampled"):
            return self._by_chance({} if turn["sampled"] is True else turn["sampled"], asked)
        if self._eos is None or turn.get("hold") or "finish" in turn:
            return list(turn["ids"])
        return itertools.cycle([*turn["ids"], self._eos] if turn["ids"] else [self._eos, *asked.prompt[-1:]])

    def _by_chance(self, how: dict[str, Any], asked: Asked) -> Iterator[int]:
        again = next(self._draws) if asked.heeded is None else None
        chance = Random(json.dumps([asked.prompt, asked.heeded, again], sort_keys=True))
        pieces = [self.encode(piece) for piece in how.get("pieces", _PIECES)]
        while True:
            yield from chance.choice(pieces)
            if self._end is not None and chance.random() < how.get("end", 0.1):
                yield self._end

    def _by_table(self, rows: Sequence[Mapping[str, float]], asked: Asked) -> Iterator[Draw]:
        sampling = asked.sampling if asked.heeded is not None else replace(asked.sampling, seed=next(self._draws))
        request = Request("", asked.prompt, asked.limit, max(asked.ends, default=-1), sampling=sampling, log_probs=True)
        sampler = Sampler(request, self._tokenizer.get_vocab_size(), normalize_log_probs=asked.normalizes)
        tokens = list(asked.prompt)
        for row in itertools.chain(rows, itertools.repeat(rows[-1])):
            logits = np.full(sampler.vocab, max(row.values()) - _LESS, np.float32)
            logits[list(map(int, row))] = list(row.values())
            draw = sampler.draw(logits, tokens)
            tokens.append(draw.token)
            yield draw


def cut(turn: Turn, drawn: Iterable[int], asked: Asked) -> Answer:
    """The tokens that are drawn, up to where the request ends them."""
    said: list[int] = []
    for token in drawn:
        if token in asked.ends:
            if asked.min_tokens <= max(len(said), 1):
                return Answer(turn, said, "stop", token)
            continue
        said.append(token)
        so_far = asked.prompt + said
        if any(so_far[-len(word) :] == list(word) for word in asked.stop_words):
            return Answer(turn, said, "stop")
        if len(said) == asked.limit:
            return Answer(turn, said, "length")
    return Answer(turn, said, None if turn.get("hold") else turn.get("finish", "stop"))


def play(answer: Answer, ids: list[int], is_over: Callable[[], bool], *, end_alone: bool = False) -> Iterator[Step]:
    """The steps in which an answer comes, the last with its finish reason.

    Args:
        answer: whose turn has the pace.
        ids: its tokens as the engine sends them.
        is_over: asked before each step, and while it stands still; true ends it as ``cancelled``.
        end_alone: whether the end comes in a step without tokens.

    Raises:
        ScriptedError: the script lets it fail.
    """
    turn, made = answer.turn, 0
    stops = {turn.get("stall_after"), len(ids) if answer.finish is None else None}
    fails, last = turn.get("fail_after"), len(ids) - 1 if "until" in turn else None
    marks = [mark for mark in (*stops, fails, last, len(ids)) if mark is not None]
    for size in itertools.cycle(turn["chunk"]):
        while (made in stops or (made == last and not Path(turn["until"]).exists())) and not is_over():
            time.sleep(_UNTIL_S if made == last else _LOOK_S)
        time.sleep(turn.get("pause", 0))
        if is_over() or made in stops:
            yield Step([], "cancelled")
            return
        if made == fails:
            raise ScriptedError(turn.get("error", "the script says so"))
        new = ids[made : min([made + size, *(mark for mark in marks if mark > made)])]
        made += len(new)
        is_last = made == len(ids) and made not in stops and made != fails and not (end_alone and new)
        yield Step(new, answer.finish if is_last else None)
        if is_last:
            return


def sampling_of(effective: Mapping[str, Any]) -> Sampling:
    """The parameters that a model of text follows, as the computing engine's sampler takes them."""
    known = {each.name for each in fields(Sampling)} - {"bias", "bad_words"}
    found = {name: value for name, value in effective.items() if name in known and value is not None}
    greedy = effective.get("greedy", found.get("temperature", 1.0) < _GREEDY_BELOW)
    return Sampling(**{"top_p": 1.0, **found, **({"temperature": None, "top_k": 1} if greedy else {})})


class Journal:
    """A file with lines of JSON; those of one request have its ``key``, and the later ones add to the first."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, key: str, **what: Any) -> None:
        """Add to what is known of a request."""
        with self._path.open("ab", buffering=0) as file:  # several engines share it: one write of one line
            file.write(json.dumps({"key": key, **what}).encode() + b"\n")
