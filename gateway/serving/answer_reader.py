"""Reads answers that may have tool calls or reasoning: text in, parser events out.

Stop strings are searched here instead of in the raw text, so that they match only in the content that the client sees.
For each token the reader knows what became of its text.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from dataclasses import dataclass

from gateway.generation import SamplingParams, StopMatcher
from gateway.serving.budgeted_engine import ReasoningBudget
from gateway.text.families import (
    CallArguments,
    CallStart,
    Content,
    Event,
    Family,
    Parser,
    Preparation,
    Reasoning,
    ToolPlan,
)
from gateway.text.families.family_parser import FamilyParser
from gateway.text.families.json_scanner import JsonScanner
from gateway.text.families.model_family import ModelFamily
from gateway.text.families.parser_events import PassthroughState
from gateway.text.tokens import Tokenizer

_WHOLE_CALL = ""  # stands for a stop string where an answer that is one call has ended
_NEAR = 256  # characters searched for arguments, which a family may format differently from the model


class AnswerReader:
    """A ``Reader`` for the assembler, which returns the parser events of an answer.

    Attributes:
        matched: the text that ended the answer: a stop string in its content, or a text of ``end_at``; empty where a
            complete call ended it.
        position: characters of the model's text before it.
        end: characters of the model's text up to and including it.
        reasoning_tokens: tokens so far whose text, or a part of it, is reasoning; None where tokens are not known.
        passing: the kind of the texts that need no parsing; None while the parser reads.
        passed: unparsed texts that were not taken yet; code that shows them immediately may clear it.
    """

    def __init__(
        self, parser: Parser, stops: tuple[str, ...] = (), *, include_stop: bool = False, one_call: bool = False
    ) -> None:
        """Read one answer.

        Args:
            parser: a fresh one.
            stops: stop strings.
            include_stop: whether the stop string that ended the answer is part of its content.
            one_call: whether the answer ends with its first whole call.
        """
        self.matched: str | None = None
        self.position = 0
        self.end = 0
        self.reasoning_tokens: int | None = None
        self._parser = parser
        self._stops = stops
        # Texts that can only be content or reasoning bypass the parser, and are held back until requested.
        self._may_pass = isinstance(parser, FamilyParser) and not stops and not one_call
        self.passing: PassthroughState | None = None
        self.passed: list[str] = []
        self._include_stop = include_stop
        self._call_scanner = JsonScanner() if one_call else None
        self._search = _ContentSearch(stops)
        self._ends: StopMatcher | None = None
        self._events: list[Event] = []
        self._raw = ""  # from the character ``_base`` on: what was not located or not let pass yet
        self._base = 0
        self._located = 0
        self._passed = 0
        self._tokens: deque[tuple[int, int]] = deque()
        self._closed = False

    def take(self) -> list[Event]:
        """Return the events since the last call."""
        self._tell_passed()
        events, self._events = self._events, []
        return events

    def close(self, *, cut: bool) -> None:
        """End the answer: read the text that the parser and the search hold back. Later calls do nothing.

        Args:
            cut: whether the token limit ended it.
        """
        if self._closed:
            return
        self._closed = True
        self._end_passing()
        if not self._ended:
            self._say(self._parser.finish(cut=cut), search=True)
        if not self._ended:
            self._content(self._search.flush())

    @property
    def thinking(self) -> bool:
        """Whether the next text is reasoning, as far as is known."""
        return isinstance(self._parser, FamilyParser) and self._parser.thinking

    @property
    def _ended(self) -> bool:
        """Whether nothing that the parser may still say belongs to the answer."""
        return self._has_call or (self.matched is not None and self.matched in self._stops)

    @property
    def _has_call(self) -> bool:
        """Whether the answer was to be one call, and that is whole."""
        return self._call_scanner is not None and self._call_scanner.complete

    def push(self, text: str) -> str:
        """Add text; returns the part that certainly does not belong to a stop string."""
        if self.matched is not None:
            return ""
        if self._ends is None:
            return self._read(text, search=True)
        before = self._ends.push(text)
        shown = self._read(before, search=True)
        if self._ends.matched is not None and self.matched is None:
            self.matched, self.position, self.end = self._ends.matched, self._ends.position, self._ends.end
        return shown

    def skip(self, text: str) -> str:
        """Add text in which no stop string is searched."""
        return self._read(text, search=False)

    def take_token(self, text: str) -> str | None:
        """Add a token's text that is only content or reasoning, as ``count`` and ``push`` would.

        Args:
            text: text of a whole token behind a whole one; not empty.

        Returns:
            The text; None where it was not taken.
        """
        passing = self.passing or self._begin_passing()
        if passing is None or passing.more(text) is not None:
            return None
        if passing.kind is Reasoning:
            self.reasoning_tokens = (self.reasoning_tokens or 0) + 1
        self._base += len(text)
        self.passed.append(text)
        return text

    def _begin_passing(self) -> PassthroughState | None:
        """Start to pass text to the client unparsed, where the parser holds nothing back."""
        if not self._may_pass or self._raw or self._ends is not None or self._events:
            return None
        if self._tokens:
            if self._tokens[-1][1] > self._base:  # a character that has begun
                return None
            self._tokens.clear()  # all of their text is located: none of it can still turn out to be reasoning
        if isinstance(self._parser, FamilyParser):
            self.passing = self._parser.passing()
        if self.reasoning_tokens is None:
            self.reasoning_tokens = 0
        return self.passing

    def _end_passing(self) -> None:
        """Feed texts to the parser again."""
        if self.passing is not None:
            self._tell_passed()
            self.passing = None
            self._located = self._passed = self._base

    def _tell_passed(self) -> None:
        """Make an event of the texts that passed by."""
        if self.passed and self.passing is not None:
            self._events.append(self.passing.kind("".join(self.passed)))
            self.passed.clear()

    def flush(self) -> str:
        """End the text; returns the held-back part, empty after a match."""
        if self.matched is not None:
            return ""
        self._end_passing()
        shown = "" if self._ends is None else self._read(self._ends.flush(), search=True)
        return shown + self._pass(self._base + len(self._raw))

    def end_at(self, texts: tuple[str, ...]) -> None:
        """Add texts that end the answer."""
        self._end_passing()
        self._ends = StopMatcher(texts)

    def count(self, start: int, end: int) -> None:
        """Count a token that covers these characters."""
        if self.reasoning_tokens is None:
            self.reasoning_tokens = 0
        if end > start:
            self._tokens.append((start, end))

    def _read(self, text: str, *, search: bool) -> str:
        self._end_passing()
        self._raw += text
        self._say(self._parser.feed(text), search=search)
        whole = self._base + len(self._raw)
        if self._has_call and search and self.matched is None:
            self.matched, self.position, self.end = _WHOLE_CALL, whole, whole
        if self.matched is not None:
            return self._pass(self.end if self._include_stop else self.position)
        return self._pass(min(whole, self._search.held_from(whole)))

    def _say(self, events: list[Event], *, search: bool) -> None:
        for event in events:
            if self._ended:
                return
            if isinstance(event, Content):
                start = self._locate(event.text, len(self._raw))
                self._settle(start, start)
                self._content(self._search.push(event.text, start, search=search))
                if self._search.matched is not None:
                    self._match()
            elif isinstance(event, Reasoning):
                start = self._locate(event.text, len(self._raw))
                self._settle(start, start + len(event.text))
                self._events.append(event)
            else:
                self._call(event)

    def _call(self, event: CallStart | CallArguments) -> None:
        """A stop string does not reach across a call: what was held back for it is content."""
        self._may_pass = False
        if isinstance(event, CallStart):
            self._content(self._search.flush())
            self._search = _ContentSearch(self._stops)
        else:
            self._locate(event.text, len(event.text) + _NEAR)
            if self._call_scanner is not None:
                self._call_scanner.scan(event.text, 0)
        self._events.append(event)

    def _content(self, text: str) -> None:
        if text:
            self._events.append(Content(text))

    def _match(self) -> None:
        self.matched, self.position, self.end = self._search.matched, *self._search.span
        if self._include_stop and self.matched is not None:
            self._content(self.matched)

    def _locate(self, text: str, reach: int) -> int:
        """Find the position in the model's text of a text from the parser; the last position where there is none.

        Its leading whitespace may come from further ahead, from before a call.
        """
        start = self._located - self._base
        body = text.lstrip() or text
        found = self._raw.find(body, start, start + reach)
        if found >= 0:
            self._located = self._base + found + len(body)
            return self._located - len(text)
        return self._located

    def _settle(self, start: int, end: int) -> None:
        """Tokens before ``start`` were no reasoning; those that reach into ``start`` to ``end`` are."""
        tokens = self._tokens
        while tokens and tokens[0][0] < max(start, end):
            if tokens.popleft()[1] > start and end > start:
                self.reasoning_tokens = (self.reasoning_tokens or 0) + 1

    def _pass(self, upto: int) -> str:
        """Let the text pass up to a character."""
        text = self._raw[self._passed - self._base : max(upto, self._passed) - self._base]
        self._passed += len(text)
        done = min(self._passed, self._located) - self._base
        if done > 0:
            self._raw = self._raw[done:]
            self._base += done
        return text


class _ContentSearch:
    """Looks for stop strings in content, and knows where its characters stand in the model's text."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._matcher = StopMatcher(stops) if stops else None
        self._parts: deque[tuple[int, int, int]] = (
            deque()
        )  # of the content still held: start in it, in the text, length
        self._given = 0
        self._shown = 0

    @property
    def matched(self) -> str | None:
        return None if self._matcher is None else self._matcher.matched

    @property
    def span(self) -> tuple[int, int]:
        """The start and end of the match in the model's text."""
        if self._matcher is None:
            return 0, 0
        return self._place(self._matcher.position), self._place(self._matcher.end - 1) + 1

    def push(self, text: str, start: int, *, search: bool) -> str:
        """Take content that stands at ``start`` of the model's text; returns what may be shown."""
        if self._matcher is None:
            return text
        self._parts.append((self._given, start, len(text)))
        self._given += len(text)
        shown = self._matcher.push(text) if search else self._matcher.skip(text)
        self._shown += len(shown)
        if self._matcher.matched is None:
            while self._parts and sum(self._parts[0][::2]) <= self._shown:
                self._parts.popleft()
        return shown

    def flush(self) -> str:
        self._parts.clear()
        return "" if self._matcher is None else self._matcher.flush()

    def held_from(self, whole: int) -> int:
        """The position at which the held-back content begins; ``whole`` when none is held back."""
        return self._place(self._shown) if self._parts else whole

    def _place(self, character: int) -> int:
        for begins, start, length in self._parts:
            if begins <= character < begins + length:
                return start + character - begins
        return self._parts[-1][1] + self._parts[-1][2] if self._parts else 0


@dataclass(frozen=True, slots=True)
class PreparedTurn:
    """A turn with its rendered prompt.

    Attributes:
        turn: the turn.
        preparation: the family's preparation for it.
        family: of the model.
        prompt: the rendered prompt.
        eager: whether unguided calls are reported before they are complete.
    """

    turn: ToolPlan
    preparation: Preparation
    family: Family
    prompt: str
    eager: bool = False

    @property
    def read(self) -> bool:
        """Whether the answer needs a reader, because it may have calls or reasoning."""
        return self.turn.calls or self.family.reasons

    def apply(self, params: SamplingParams, tokenizer: Tokenizer) -> SamplingParams:
        """Add the family's needs to the parameters.

        Args:
            params: of the request.
            tokenizer: of the model.
        """
        if not self.read:
            return dataclasses.replace(params, guide=self.preparation.guide)
        return dataclasses.replace(
            params,
            guide=self.preparation.guide,
            end_ids=_special(self.preparation.stop, tokenizer),
            visible_ids=frozenset(_special(tuple(self.preparation.special), tokenizer)),
        )

    def thought_budget(self, params: SamplingParams, tokenizer: Tokenizer) -> ReasoningBudget | None:
        """The budget of the reasoning; None without one, or where the reasoning cannot be ended.

        Args:
            params: of the request.
            tokenizer: of the model.
        """
        tokens = params.thinking_token_budget
        if tokens is None or tokens < 0 or not isinstance(self.family, ModelFamily):
            return None
        end = self.family.thought_end(self.turn)
        return None if end is None else ReasoningBudget(tokens, tuple(tokenizer.encode(end.text)), end.guide)

    def reader(self, params: SamplingParams) -> AnswerReader:
        """Make a reader for one of the answers."""
        parser = self.family.parser(self.turn, self.preparation, self.prompt, eager=self.eager)
        # A guide ends such an answer by itself.
        one_call = self.turn.single and not self.preparation.guided
        return AnswerReader(parser, params.stop, include_stop=params.include_stop_str_in_output, one_call=one_call)


def prepare(turn: ToolPlan, family: Family, prompt: str, *, eager: bool) -> PreparedTurn:
    """Prepare a turn by the model's family.

    Args:
        turn: what is wanted.
        family: of the model.
        prompt: the rendered prompt.
        eager: whether unguided calls are reported while they form.
    """
    return PreparedTurn(turn, family.prepare(turn, prompt), family, prompt, eager)


def _special(texts: tuple[str, ...], tokenizer: Tokenizer) -> tuple[int, ...]:
    """Ids of those texts that are special tokens of the model."""
    ids = (tokenizer.token_id(text) for text in texts)
    return tuple(index for index in ids if index is not None and tokenizer.is_special(index))
