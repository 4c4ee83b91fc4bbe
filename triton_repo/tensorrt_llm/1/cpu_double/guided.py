"""Guided decoding (wire contract 2.7) by llguidance: which tokens may follow, so that an answer keeps to its guide.

Guides are compiled in a thread of their own and kept by their text: a large schema does not stall other requests.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import llguidance
import numpy as np
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

from cpu_double.gbnf import GuideError, gbnf_to_lark
from cpu_double.structural_tag import structural_tag_to_lark

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from wire.request import Guide, Request

_KEPT = 64  # compiled guides
# One space after a comma or colon at most: where any whitespace may stand, small models write nothing else.
_JSON: Any = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?", "lenient": False}
# Rules of single characters need more items than llguidance allows; a step is still bounded, at some 50 ms.
_LIMITS = llguidance.LLParserLimits(step_max_items=1_000_000, max_items_in_row=20_000, verbose_errors=False)
_END_FILES = ("generation_config.json", "config.json")


class Matcher:
    """The place of one answer in its guide.

    Attributes:
        ended: whether a token that ends answers was taken, or would have to follow where there is none.
    """

    def __init__(self, matcher: Any, vocab: int, model_ends: Sequence[int], ends: Sequence[int]) -> None:
        """Start at the beginning.

        Args:
            matcher: llguidance's.
            vocab: length of the logits.
            model_ends: ids of the tokens that end the model's answers; they are elsewhere only by name of a guide.
            ends: ids of those that may end this one.
        """
        self._matcher, self._vocab = matcher, vocab
        self._model_ends, self._ends = list(model_ends), list(ends)
        self._bits = allocate_token_bitmask(1, vocab)
        self.ended = False

    def allowed(self) -> NDArray[np.bool_]:
        """The tokens that may come next: [vocab]. Those that end the answer may where the guide is fulfilled.

        Raises:
            GuideError: the guide is too complex to go on.
        """
        fill_next_token_bitmask(self._matcher, self._bits, 0)
        self._check()
        bits = np.unpackbits(self._bits.view(np.uint8), count=self._vocab, bitorder="little").view(np.bool_)
        if self._matcher.is_accepting():
            bits[self._model_ends] = False
            bits[self._ends] = True
        return bits

    def advance(self, token: int) -> None:
        """Take a token that was allowed.

        Raises:
            GuideError: it was not, or the guide is too complex to go on.
        """
        if token in self._ends and self._matcher.is_accepting():
            self.ended = True
            return
        self._matcher.consume_token(token)
        self._check()
        self.ended = token in self._ends or (not self._ends and self._matcher.is_stopped())

    def _check(self) -> None:
        if self._matcher.is_error():
            raise GuideError(_in_a_line(self._matcher.get_error()))


class _Vocabulary:
    """A tokenizer as llguidance's ``TokenizerWrapper`` wants it.

    Left to itself, llguidance takes each added token of the form ``<...>`` for a special one, which text never holds;
    but ``<think>`` and ``<tool_call>`` of many models are text.
    """

    def __init__(self, tokenizer: str, vocab: int, special: frozenset[int], ends: Sequence[int]) -> None:
        self._plain = llguidance.LLTokenizer(tokenizer, n_vocab=vocab)
        self.tokens = [self._plain.decode_bytes([token]) for token in range(vocab)]
        # Ids without a token have such a name with llguidance; nothing may hold them.
        surplus = {token for token, text in enumerate(self.tokens) if text == f"<[{token}]>".encode()}
        self.special_token_ids = sorted({*special, *surplus, *ends})
        self.eos_token_id = ends[0] if ends else self._plain.eos_token
        self.bos_token_id = None

    def __call__(self, text: bytes) -> list[int]:
        ids: list[int] = self._plain.tokenize_bytes(text)
        return ids


class GuidedDecoder:
    """Makes a `Matcher` for each request that has a guide."""

    def __init__(self, tokenizer: str, vocab: int, ends: Sequence[int]) -> None:
        """Read the tokenizer.

        Args:
            tokenizer: content of ``tokenizer.json``.
            vocab: length of the logits.
            ends: ids of the tokens that end answers.

        Raises:
            ValueError: llguidance cannot read the tokenizer, or an end token is not of the vocabulary.
        """
        self._vocab, self._ends = vocab, list(ends)
        if any(not 0 <= end < vocab for end in ends):
            raise ValueError("an end token is outside of the vocabulary")
        added = json.loads(tokenizer).get("added_tokens", [])
        self._special = {token["content"]: token["id"] for token in added if token["special"]}
        vocabulary = _Vocabulary(tokenizer, vocab, frozenset(self._special.values()), ends)
        wrapper = llguidance.TokenizerWrapper(vocabulary)
        self._tokenizer = llguidance.LLTokenizer(wrapper, n_vocab=vocab, eos_token=list(ends) or None)
        self._compiler = ThreadPoolExecutor(1, "guides")
        self._lock = threading.Lock()
        self._compiled: OrderedDict[Guide, Future[Any]] = OrderedDict()

    @classmethod
    def of(cls, folder: Path, vocab: int) -> GuidedDecoder:
        """Make one from a model folder.

        Raises:
            OSError: there is no tokenizer.json.
            ValueError: it cannot be used.
        """
        return cls((folder / "tokenizer.json").read_text(encoding="utf-8"), vocab, _read_ends(folder))

    def compile(self, guide: Guide) -> Future[Any]:
        """Begin to compile a guide, unless it is known: a future for `start`, which raises `GuideError`."""
        with self._lock:
            future = self._compiled.get(guide)
            if future is None:
                future = self._compiled[guide] = self._compiler.submit(self._make, guide)
            self._compiled.move_to_end(guide)
            while len(self._compiled) > _KEPT:
                self._compiled.popitem(last=False)
        return future

    def start(self, request: Request, compiled: Future[Any]) -> Matcher:
        """Begin the answer to a request whose guide is compiled.

        Its end id ends it, and those of the model's own ends that are its stop words; without an end id, all of them.

        Raises:
            GuideError: the guide has a mistake, or asks for what is not supported.
        """
        ends = self._ends
        if request.end_id >= 0:
            ends = [request.end_id, *(end for end in self._ends if (end,) in request.stop_words)]
        return Matcher(compiled.result().deep_copy(), self._vocab, self._ends, ends)

    def close(self) -> None:
        """End the compiling thread."""
        self._compiler.shutdown(cancel_futures=True)

    def _make(self, guide: Guide) -> Any:
        try:
            matcher = llguidance.LLMatcher(self._tokenizer, self._grammar(guide), log_level=0, limits=_LIMITS)
        except (ValueError, RecursionError) as error:
            raise GuideError(_in_a_line(str(error))) from None
        if matcher.is_error():
            raise GuideError(_in_a_line(matcher.get_error()))
        return matcher

    def _grammar(self, guide: Guide) -> str:
        make = llguidance.LLMatcher
        if guide.kind == "json":
            return str(make.grammar_from_json_schema('{"type": "object"}', overrides=_JSON))
        if guide.kind == "json_schema":
            return str(make.grammar_from_json_schema(json.dumps(_schema(guide.text)), overrides=_JSON))
        if guide.kind == "regex":
            lark = f"start: /{_to_regex(guide.text)}/"
        elif guide.kind == "ebnf_grammar":
            root, rules = gbnf_to_lark(guide.text)
            lark = "\n".join([f"start: {root}", *rules])
        else:
            lark = structural_tag_to_lark(_parse(guide.text), self._special, _to_regex, _JSON)
        return str(make.grammar_from_lark(lark))


def _to_regex(pattern: str) -> str:
    """A regular expression in the sense of JSON schema as one between slashes; digits and word letters are ASCII."""
    return str(llguidance.regex_to_lark(pattern, "dw"))


def _schema(text: str) -> Any:
    schema = _parse(text)
    if isinstance(schema, dict):
        schema.pop("x-guidance", None)
    return schema


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise GuideError(f"the guide is not JSON: {error}") from None


def _read_ends(folder: Path) -> list[int]:
    for name in _END_FILES:
        path = folder / name
        found = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id") if path.exists() else None
        if found is not None:
            return found if isinstance(found, list) else [found]
    return []


def _in_a_line(text: str) -> str:
    return " ".join(text.split())[:300]
