"""Assembles the answer of one sequence from an engine's chunks: text, log-probs, usage and finish reason.

They follow from the token ids, so they are the same whether the answer is streamed or not and however the engine groups
its tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NoReturn

from gateway.generation.engine import (
    EngineChunk,
    EngineError,
    EngineFinish,
    ErrorKind,
    MalformedOutputError,
    ScoredToken,
)
from gateway.generation.request import GenerationRequest
from gateway.generation.stop import AnswerTextReader, StopMatcher, StopSearch
from gateway.generation.token_counts import PredictedCounts, TextCounter, TokenCount, Usage
from gateway.generation.token_logprobs import (
    LOWEST,
    REPLACEMENT,
    EntryQueue,
    PromptTokenLogprob,
    TokenLogprob,
    make_alternatives,
    make_entry,
    prompt_entries,
)
from gateway.text.tokens import IncrementalDetokenizer, Tokenizer

_NO_DRAFT = PredictedCounts(0, 0)
_UNSEARCHED = StopMatcher(())  # of all answers whose text is not searched, so nothing changes it


@dataclass(slots=True)
class Piece:
    """The part of an answer that one event shows.

    Attributes:
        text: new text; may be empty when only log-prob entries are left to show.
        logprobs: entries of the tokens whose text became complete with this event; empty when not requested.
        ids: token ids that were counted since the last piece; None when not requested.
    """

    text: str
    logprobs: list[TokenLogprob] = field(default_factory=list)
    ids: Sequence[int] | None = None


class SequenceAssembler:
    """Assembles one sequence from its first chunk to its end.

    Feed it every chunk. Once ``stopped`` is true, close the engine's generator (chunks that still arrive may be fed:
    they are counted as surplus and show nothing). Then call ``finish`` once.

    Log-prob entries come with the event that completes their token's text, so those of held-back text wait with it;
    a token without text rides with the next event. At a stop string, tokens that begin before it keep their entries.

    Text-only engines (chunks with text and no ids) get stop strings and the texts of end ids cut on text; tokens that
    they do not count are counted by tokenizing the text again, which may differ from the engine's own count.

    A stop id (``stop_ids``) ends the answer with the reason ``stop``. As in vLLM it is a token of the answer: counted,
    in ``token_ids``, and its text is shown only with ``include_stop_str_in_output`` (and, when it is special, only with
    ``skip_special_tokens`` off); its log-prob entry comes with its text. An end id is none of these. Before
    ``min_tokens`` tokens neither kind of id ends the answer, and the text is not searched for stop strings.

    Attributes:
        stopped: a stop string matched or an end or stop id came: nothing more will be shown but by ``finish``.
        stop_reason: the stop string or stop id that ended the answer; None when something else did.
        surplus_tokens: ids that arrived after the end of the answer, and are not shown.
        failure: why the engine failed; None without a failure. It counts unless ``stopped`` came first.
        finish_reason: why the sequence ended; valid after ``finish``.
        finish_estimated: whether that follows from an estimated count of tokens: nothing tells whether the engine ended
            the sequence or cut it.
        token_ids: the ids that ``usage`` counts, in order, where they are kept. Ids of a stop string's beginning are in
            it as they come, so after ``stopped`` it may have lost some at its end.
        prompt_logprobs: log-prob of each prompt token but the first; None until they came.
        prompt_top_logprobs: their alternatives as (id, log-prob), best first.
    """

    __slots__ = (
        "_cached_tokens",
        "_characters",
        "_completion",
        "_detokenizer",
        "_end_ids",
        "_engine_finish",
        "_extras",
        "_finished",
        "_foresee",
        "_keep",
        "_most",
        "_params",
        "_plain",
        "_predicted",
        "_prompt_ranks",
        "_prompt_tokens",
        "_push",
        "_queue",
        "_reader",
        "_recent",
        "_request",
        "_stop_ids",
        "_stops",
        "_sums",
        "_take_text",
        "_takes_scored",
        "_takes_tokens",
        "_textual",
        "_tokenizer",
        "_vocab_size",
        "failure",
        "finish_estimated",
        "finish_reason",
        "prompt_logprobs",
        "prompt_top_logprobs",
        "stop_reason",
        "stopped",
        "surplus_tokens",
        "token_ids",
    )

    def __init__(
        self,
        request: GenerationRequest,
        tokenizer: Tokenizer,
        reader: AnswerTextReader | None = None,
    ) -> None:
        """Start a sequence.

        Args:
            request: as the engine was asked.
            tokenizer: whose ids the engine generates.
            reader: reads the text and looks for stop strings in it; None: all of the text is searched.
        """
        params = request.params
        self._request = request
        self._params = params
        self._most = request.max_tokens
        self._tokenizer = tokenizer
        self._detokenizer = IncrementalDetokenizer(tokenizer, params.skip_special_tokens, params.visible_ids)
        self._push = self._detokenizer.push
        self._foresee = self._detokenizer.foresee
        self._end_ids = frozenset(request.end_ids)
        self._stop_ids = frozenset(params.stop_token_ids) - self._end_ids
        self._reader = reader
        self._queue = EntryQueue() if params.logprobs else None
        self._keep = params.return_token_ids
        watched = params.stop or params.logprobs or params.stop_token_ids or params.min_tokens or request.draft
        # Neither stop strings nor log-probs, and not ended: one question for each token.
        bare = not (watched or params.return_token_ids)
        self._takes_tokens = self._plain = bare and reader is None
        self._stops: StopSearch = (
            (_UNSEARCHED if self._plain else StopMatcher(params.stop)) if reader is None else reader
        )
        self._take_text = self._single_token_path(reader)
        ends = params.stop or params.stop_token_ids or params.min_tokens or params.return_token_ids or request.draft
        self._takes_scored = params.logprobs and not ends and reader is None
        self._vocab_size = max(tokenizer.vocab_size, request.vocab_size or 0)
        self._extras = request.cached_tokens or params.prompt_logprobs is not None
        self._cached_tokens: int | None = None
        self._predicted = 0  # tokens of the draft that the answer begins with
        self._textual: TextCounter | None = None
        self._recent: list[int] = []  # where the tokens begin that came since text last became complete
        self._characters = 0  # shown so far
        self._completion = 0
        self._prompt_tokens: int | None = None
        self._engine_finish: EngineFinish | None = None
        self._finished = False
        self._sums: Usage | None = None  # once they are final
        self.failure: EngineError | None = None
        self.finish_reason: Literal["stop", "length"] = "stop"
        self.finish_estimated = False
        self.stop_reason: str | int | None = None
        self.token_ids: list[int] = []
        self.prompt_logprobs: Sequence[float] | None = None
        self.prompt_top_logprobs: Sequence[Sequence[tuple[int, float]]] = ()
        self._prompt_ranks: Sequence[int] = ()
        self.stopped = False
        self.surplus_tokens = 0

    def feed(self, chunk: EngineChunk) -> Piece | None:
        """Add the next chunk; returns the part of the answer to show, None without one.

        Raises:
            EngineError: when the engine's log-probs do not fit its tokens, or its tokens are more than were requested
                or none at all.
        """
        if chunk.prompt_tokens is not None and self._prompt_tokens is None:
            self._prompt_tokens = chunk.prompt_tokens
        if chunk.cached_tokens is not None and self._extras:
            self._cached_tokens = chunk.cached_tokens
        if chunk.prompt_logprobs is not None and self._extras:
            self._take_prompt_logprobs(chunk, chunk.prompt_logprobs)
        if self._takes_tokens and len(chunk.ids) == 1 and (text := self.feed_token(chunk.ids[0])) is not None:
            piece = Piece(text) if text else None
        elif chunk.text is not None and not chunk.ids:
            piece = self._feed_text(chunk, chunk.text)
        elif self.stopped:
            self.surplus_tokens += len(chunk.ids)
            return None
        elif not chunk.ids:
            piece = None
        else:
            self._check(chunk.ids)
            piece = self._feed_plain(chunk.ids) if self._plain else self._feed_watched(chunk)
        if chunk.finish_reason is not None or chunk.failure is not None:
            self._engine_finish, self.failure = chunk.finish_reason, chunk.failure
        return piece

    def feed_token(self, index: int) -> str | None:
        """Add a single token as ``feed`` does; returns the text to show.

        Returns:
            None where there is more to do with it: then nothing was taken, and ``feed`` is to be called.
        """
        if not self._takes_tokens or index in self._end_ids or not 0 <= index < self._vocab_size:
            return None if self._take_text is None else self.feed_searched(index)
        if self._completion >= self._most:
            return None
        self._completion += 1
        return self._push(index)

    def feed_searched(self, index: int) -> str | None:
        """Add a single token as ``feed_token`` does, where stop strings are searched."""
        take = self._take_text
        if take is None or self.stopped or self._completion >= self._most or index in self._end_ids:
            return None
        text = self._foresee(index) if 0 <= index < self._vocab_size else None
        if not text or self._recent:
            return None
        shown = take(text)
        if shown is not None:
            self._completion += 1
            self._characters += len(shown)
            self._push(index)
        return shown

    @property
    def feed_alone(self) -> Callable[[int], str | None]:
        """The method for single tokens of this sequence, ``feed_token`` or ``feed_searched``."""
        return self.feed_token if self._take_text is None else self.feed_searched

    def feed_scored(self, token: ScoredToken) -> Piece | None:
        """Add a single token with its log-prob as ``feed`` does, where both are shown immediately.

        Returns:
            None where there is more to do with it: then nothing was taken, and ``feed`` is to be called.
        """
        index, logprob, top = token
        if not self._takes_scored or self.stopped or self._completion >= self._most or index in self._end_ids:
            return None
        text = self._foresee(index) if 0 <= index < self._vocab_size else None
        if not text or REPLACEMENT in text or self._recent or self._queue:
            return None
        if not LOWEST <= logprob < math.inf:  # false for NaN, too
            return None
        entry = TokenLogprob(text, text.encode(), logprob, (), index)
        if (wanted := self._params.top_logprobs) and not self._add_alternatives(entry, top and top[:wanted]):
            return None
        self._completion += 1
        self._characters += len(text)
        self._push(index)
        return Piece(text, [entry])

    def _add_alternatives(self, entry: TokenLogprob, top: Sequence[tuple[int, float]] | None) -> bool:
        """Add alternatives to an entry; returns whether they are valid, which ``feed`` checks otherwise."""
        if not top:
            return False
        try:
            entry.top = make_alternatives(self._tokenizer, self._detokenizer, top)
        except MalformedOutputError:
            return False
        entry.top_ids = tuple([other for other, _ in top])
        return True

    def finish(self) -> Piece | None:
        """End the sequence; returns the held-back text: a part of a stop string, or an unfinished character.

        Raises:
            EngineError: when the engine ended the answer with an error before anything else ended it.
            RuntimeError: when called twice.
        """
        if self._finished:
            raise RuntimeError("finish() was called twice")
        self._finished = True
        if self.failure is not None and not self.stopped:
            self._give_up()
        text = ""
        if self._plain and self._textual is None:
            text = self._detokenizer.flush()
        elif self._stops.matched is None:
            text = self._search(self._detokenizer.flush())
            if self._stops.matched is None:
                text += self._shown(self._stops.flush())
        entries: list[TokenLogprob] = []
        if self._queue is not None:
            entries = self._queue.rest() if self._stops.matched is None else self._queue.cut(self._cut)
        self.finish_reason = self._reason()
        return Piece(text, entries) if text or entries else None

    @property
    def usage(self) -> Usage:
        """Count tokens so far; final after ``finish``."""
        if self._sums is not None:
            return self._sums
        prompt = len(self._request.prompt.ids) if self._prompt_tokens is None else self._prompt_tokens
        textual = self._textual
        completion, estimated = (self._completion, False) if textual is None else self._count_text(textual)
        predicted = self._compare_with_draft() if self._request.draft else _NO_DRAFT
        usage = Usage(prompt, completion, self._cached_tokens, predicted, estimated)
        if self._finished:
            self._sums = usage
        return usage

    def prompt_entries(self, *, skip_special_tokens: bool = False) -> list[PromptTokenLogprob]:
        """Make the log-prob entries of the prompt; see ``token_logprobs.prompt_entries``.

        Raises:
            EngineError: the engine did not return them, or not one for each token.
        """
        if self.prompt_logprobs is None:
            raise EngineError(ErrorKind.INTERNAL, "The engine did not return the log-probabilities of the prompt.")
        return prompt_entries(
            self._tokenizer,
            self._request.prompt.ids,
            self.prompt_logprobs,
            self.prompt_top_logprobs,
            self._prompt_ranks,
            skip_special_tokens=skip_special_tokens,
        )

    def _single_token_path(self, reader: AnswerTextReader | None) -> Callable[[str], str | None] | None:
        """Choose the fast path for the text of a single token; None for requests that need more than the text.

        The function adds the token's text and returns it, without a held-back end; or it adds nothing and returns None.
        """
        params = self._params
        more = params.logprobs or params.stop_token_ids or params.min_tokens or params.return_token_ids
        if more or self._request.draft:
            return None
        if reader is not None:
            return None if params.stop else reader.take_token
        return self._stops.take if isinstance(self._stops, StopMatcher) and params.stop else None

    def _check(self, ids: Sequence[int]) -> None:
        """Reject ids that a sound engine does not send, since they would pass for an answer or never end."""
        if self._completion + len(ids) > self._most:
            asked = f"The engine sent more tokens than the {self._most} that were requested."
            raise MalformedOutputError(f"{len(ids)} tokens after {self._completion}", asked)
        if min(ids) < 0 or max(ids) >= self._vocab_size:
            detail = f"token ids from {min(ids)} to {max(ids)}, but the vocabulary has {self._vocab_size} tokens"
            raise MalformedOutputError(detail, "The engine sent a token id outside the vocabulary.")

    def _give_up(self) -> NoReturn:
        """Raise the engine's failure, and keep no reference to it: its frames lead back here."""
        failure, self.failure = self.failure, None
        try:
            raise failure  # type: ignore[misc] # asked before
        finally:
            del failure

    def _take_prompt_logprobs(self, chunk: EngineChunk, logprobs: Sequence[float]) -> None:
        if self.prompt_logprobs is None:
            self.prompt_logprobs = logprobs
            self.prompt_top_logprobs = chunk.prompt_top_logprobs or ()
            self._prompt_ranks = chunk.prompt_ranks or ()

    def _feed_plain(self, ids: Sequence[int]) -> Piece | None:
        """Take ids where there are neither stop strings nor log-probs: the common case, kept short."""
        text = ""
        for offset, index in enumerate(ids):
            shown = self.feed_token(index)
            if shown is None:
                self._end(len(ids) - offset - 1)
                break
            text += shown
        return Piece(text) if text else None

    def _feed_watched(self, chunk: EngineChunk) -> Piece | None:
        shown = ""
        for offset, index in enumerate(chunk.ids):
            early = self._completion < self._params.min_tokens
            if index in self._end_ids and not early:
                self.stopped = True
            elif index in self._stop_ids and not early:
                shown += self._end_at_stop_id(chunk, offset, index)
            else:
                shown += self._take(chunk, offset, index, early=early)
            if self.stopped:
                self.surplus_tokens += len(chunk.ids) - offset - 1
                break
        return self._piece(shown)

    def _take(self, chunk: EngineChunk, offset: int, index: int, *, early: bool) -> str:
        """Make a token part of the answer; return the text that it lets show."""
        start = self._detokenizer.characters
        drawn = chunk.drawn
        entry = self._entry(chunk, offset, index) if self._queue is not None and drawn else None
        self._count(index)
        self._recent.append(start)
        text = self._push(index)
        if drawn and self._reader is not None:  # others may complete a character of the reasoning, and are none of it
            self._reader.count(start, self._detokenizer.characters + self._detokenizer.unfinished)
        if self._queue is not None and entry is not None:
            detokenizer = self._detokenizer
            self._queue.add(start, detokenizer.characters + detokenizer.unfinished, entry)
        if not text:
            return ""
        shown = self._shown(self._stops.skip(text)) if early else self._search(text)
        if self._stops.matched is None:
            self._recent.clear()
        return shown

    def _end_at_stop_id(self, chunk: EngineChunk, offset: int, index: int) -> str:
        shown = ""
        if self._params.include_stop_str_in_output:
            shown = self._take(chunk, offset, index, early=False)
        else:
            self._count(index)
        if not self.stopped:
            self.stopped, self.stop_reason = True, index
        return shown

    def _compare_with_draft(self) -> PredictedCounts | None:
        if self._textual is not None:
            return None
        accepted = min(self._predicted, self._completion)  # of those that completed a stop string some may not count
        return PredictedCounts(accepted, len(self._request.draft) - accepted)

    def _count(self, index: int) -> None:
        draft, place = self._request.draft, self._completion
        if place == self._predicted < len(draft) and draft[place] == index:
            self._predicted += 1
        self._completion += 1
        if self._keep:
            self.token_ids.append(index)

    def _feed_text(self, chunk: EngineChunk, text: str) -> Piece | None:
        if self._textual is None:
            if self._queue is not None:
                raise EngineError(
                    ErrorKind.INTERNAL, "The engine returned text without the requested log-probabilities."
                )
            self._textual, self._take_text = TextCounter(self._tokenizer, self._request.end_texts), None
            ends = tuple(filter(None, self._request.end_texts))
            if self._reader is None:
                self._stops = StopMatcher(self._params.stop + ends)
            else:
                self._reader.end_at(ends)
        if self.stopped:
            self.surplus_tokens += chunk.output_tokens or 0
            return None
        self._textual.add(text, chunk.output_tokens)
        shown = self._search(text)
        return Piece(shown) if shown else None

    def _piece(self, shown: str) -> Piece | None:
        if self._queue is None:
            return Piece(shown) if shown else None
        if self._stops.matched is not None:
            entries = self._queue.cut(self._cut)
            return Piece(shown, entries) if shown or entries else None
        return Piece(shown, self._queue.shown(self._characters)) if shown else None

    def _search(self, text: str) -> str:
        """Look for stop strings in new text; return the part that may be shown."""
        shown = self._stops.push(text)
        matched = self._stops.matched
        if matched is not None and not self.stopped:
            if matched in self._params.stop:
                self.stop_reason = matched
                if self._params.include_stop_str_in_output:
                    shown += matched
            self._settle_match()
        return self._shown(shown)

    @property
    def _cut(self) -> int:
        """Characters of the whole text that the answer keeps after a match."""
        included = self._params.include_stop_str_in_output and self._stops.matched in self._params.stop
        return self._stops.end if included else self._stops.position

    def _shown(self, text: str) -> str:
        self._characters += len(text)
        return text

    def _end(self, surplus: int) -> None:
        """End the answer before an end id, which ``surplus`` ids follow in its chunk."""
        self.stopped, self._takes_tokens = True, False
        self.surplus_tokens += surplus

    def _settle_match(self) -> None:
        """End the answer at a stop string: tokens that begin after it and still waited for their text do not count."""
        self.stopped, self._takes_tokens = True, False
        late = sum(start >= self._stops.end for start in self._recent)
        if late:
            self._completion -= late
            self.surplus_tokens += late
            del self.token_ids[-late:]

    def _entry(self, chunk: EngineChunk, offset: int, index: int) -> TokenLogprob:
        top: Sequence[tuple[int, float]] = ()
        if chunk.logprobs is None or offset >= len(chunk.logprobs):
            raise EngineError(ErrorKind.INTERNAL, "The engine returned a token without its log-probability.")
        if self._params.top_logprobs:
            if chunk.top_logprobs is None or offset >= len(chunk.top_logprobs):
                raise EngineError(ErrorKind.INTERNAL, "The engine returned a token without its alternatives.")
            top = chunk.top_logprobs[offset][: self._params.top_logprobs]
        return make_entry(self._tokenizer, self._detokenizer, index, chunk.logprobs[offset], top)

    def _count_text(self, textual: TextCounter) -> TokenCount:
        """Count the tokens so far of an answer that came as text."""
        ended = self._finished or self.stopped
        counted = textual.completion_tokens(self._stops) if ended else textual.so_far()
        if not counted.estimated:
            return counted
        # What the engine itself has cut has as many tokens as were asked for, and no answer has more.
        cut = self._engine_finish == "length" and not self.stopped
        return TokenCount(self._most, False) if cut else TokenCount(min(counted.tokens, self._most), True)

    def _reason(self) -> Literal["stop", "length"]:
        """Apply the rule of wire contract 2.9, with the engine's own word where it has one."""
        if self.stopped:
            return "stop"
        unreported = self._engine_finish == "unreported"
        if self._engine_finish is not None and not unreported:
            return "stop" if self._engine_finish == "stop" else "length"
        textual = self._textual
        completion, estimated = (self._completion, False) if textual is None else self._count_text(textual)
        short = completion < self._most
        self.finish_estimated = estimated or (unreported and short)
        return "stop" if short else "length"
