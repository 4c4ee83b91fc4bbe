"""One choice of a completion: makes text and log-prob lists from the pieces of a generation."""

from __future__ import annotations

import codecs
import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.api.openai.chat.answer import finish_marks
from gateway.api.openai.completions.protocol import CompletionRequest
from gateway.api.openai.endpoint import prompt_logprobs_list
from gateway.generation import EngineError, ErrorKind, Piece, TokenLogprob
from gateway.generation.token_logprobs import make_entry, named_by_id
from gateway.serving.generation import Generation
from gateway.serving.prompts import PromptSource, TextPrompt
from gateway.text.prompt.prompt import Prompt
from gateway.text.tokens import IncrementalDetokenizer, Tokenizer

_utf8_decoder = codecs.getincrementaldecoder("utf-8")


@dataclass(frozen=True, slots=True)
class LogprobRow:
    """The entries of one token in the log-prob lists.

    Attributes:
        token: its text.
        bytes: what it adds to the text.
        logprob: natural logarithm; None for the first token of a prompt.
        top: alternatives by their text, the token itself among them; None where ``logprob`` is.
        offset: the character at which it begins, for a prompt's token; None: where the text before it ends.
    """

    token: str
    bytes: bytes
    logprob: float | None
    top: dict[str, float] | None
    offset: int | None = None


def row_of(entry: TokenLogprob, offset: int | None = None, *, names_as_ids: bool = False) -> LogprobRow:
    """Make the row of a token; of alternatives with the same text the better one stays."""
    if names_as_ids:
        entry = named_by_id(entry)
    top: dict[str, float] = {}
    for token, _, logprob in entry.top:
        top.setdefault(token, logprob)
    top[entry.token] = entry.logprob  # OpenAI always lists the chosen token, even beyond the requested number
    return LogprobRow(entry.token, entry.bytes, entry.logprob, top, offset)


def prompt_rows(
    tokenizer: Tokenizer,
    ids: Sequence[int],
    text: str,
    logprobs: Sequence[float],
    top: Sequence[Sequence[tuple[int, float]]],
    *,
    silent_bos: bool,
    names_as_ids: bool = False,
) -> list[LogprobRow]:
    """Make the rows of a prompt's tokens, with the text of special tokens.

    Args:
        tokenizer: of the model.
        ids: of the prompt.
        text: as the answer shows it. No offset is beyond it: some tokenizers add a space, or lose one.
        logprobs: of each id but the first.
        top: for each of these its alternatives as (id, log-prob), best first; empty where none were asked for.
        silent_bos: whether the first id is a BOS that is not in the text.
        names_as_ids: whether tokens are named by their ids.

    Raises:
        EngineError: when the log-probs do not fit the prompt, or one is not a number.
    """
    if len(logprobs) != len(ids) - 1 or (top and len(top) != len(logprobs)):
        raise EngineError(ErrorKind.INTERNAL, "The engine returned log-probabilities that do not fit the prompt.")
    detokenizer = IncrementalDetokenizer(tokenizer, skip_special_tokens=False)
    rows: list[LogprobRow] = []
    for position, index in enumerate(ids):
        offset = min(detokenizer.characters, len(text))
        if position == 0:
            entry = make_entry(tokenizer, detokenizer, index, 0.0, ())
            rows.append(LogprobRow(row_of(entry, names_as_ids=names_as_ids).token, entry.bytes, None, None, offset))
            if silent_bos:
                continue  # the text begins after it, for decoders that treat the start of a text in their own way
        else:
            others = top[position - 1] if top else ()
            entry = make_entry(tokenizer, detokenizer, index, logprobs[position - 1], others)
            rows.append(row_of(entry, offset, names_as_ids=names_as_ids))
        detokenizer.push(index)
    return rows


class LogprobWriter:
    """Writes the log-prob lists of one choice, whole or event by event, with continuing text offsets."""

    __slots__ = ("_decode", "_offset")

    def __init__(self, offset: int) -> None:
        """Begin at a character.

        Args:
            offset: characters before the first token that is generated: those of the prompt, which OpenAI counts also
                where it is not echoed.
        """
        self._offset = offset
        self._decode = _utf8_decoder("replace").decode

    def write(self, rows: Iterable[LogprobRow]) -> dict[str, Any]:
        """Make the ``logprobs`` object of the next rows."""
        tokens: list[str] = []
        token_logprobs: list[float | None] = []
        top_logprobs: list[dict[str, float] | None] = []
        text_offset: list[int] = []
        for row in rows:
            tokens.append(row.token)
            token_logprobs.append(row.logprob)
            top_logprobs.append(row.top)
            if row.offset is not None:
                text_offset.append(row.offset)
                continue
            text_offset.append(self._offset)  # inside a character, the offset of that character
            self._offset += len(self._decode(row.bytes))
        return {
            "tokens": tokens,
            "token_logprobs": token_logprobs,
            "top_logprobs": top_logprobs,
            "text_offset": text_offset,
        }


@dataclass(frozen=True, slots=True)
class PreparedPrompt:
    """A prompt of the request, ready for the engine.

    Attributes:
        source: as the client sent it.
        prompt: as the engine gets it.
    """

    source: PromptSource
    prompt: Prompt

    @property
    def text(self) -> str:
        """The text for ``echo``: the client's own, or that of its ids, or that of the ids that were kept."""
        source, prompt = self.source, self.prompt
        if not isinstance(source, TextPrompt):
            return prompt.text
        if prompt.text.endswith(source.text):
            return source.text
        has_bos = not source.add_special_tokens or source.text.startswith(prompt.bos_text)
        return prompt.text if has_bos else prompt.text.removeprefix(prompt.bos_text)

    @property
    def silent_bos(self) -> bool:
        """Whether the ids begin with a BOS token that is not in the text."""
        return self.prompt.text != self.text


@dataclass(frozen=True, slots=True)
class VisibleParts:
    """The parts of a choice that the response has.

    Attributes:
        echo: whether its text begins with the prompt.
        logprobs: alternatives in its log-prob lists; None: it has no such lists.
        generated: whether what is generated is shown; not where ``max_tokens`` is 0.
        end_ids: ids that end an answer, where the engine is set to return them; they have a row but no text.
        text: whether it has its text; else it is empty.
        token_ids: whether it has the ids of the answer.
        prompt_ids: whether it has the ids of the prompt.
        names_as_ids: whether its log-prob lists name tokens by their ids.
        prompt_logprobs: alternatives with which it has the log-probs of the prompt by themselves; None: not at all.
    """

    echo: bool = False
    logprobs: int | None = None
    generated: bool = True
    end_ids: frozenset[int] = frozenset()
    text: bool = True
    token_ids: bool = False
    prompt_ids: bool = False
    names_as_ids: bool = False
    prompt_logprobs: int | None = None

    @classmethod
    def of(cls, request: CompletionRequest, end_ids: Sequence[int]) -> VisibleParts:
        """The parts that a request asks for.

        Args:
            request: of the client.
            end_ids: of the model.
        """
        return cls(
            echo=request.echo,
            logprobs=request.logprobs,
            generated=request.max_tokens != 0,
            end_ids=frozenset(end_ids) if request.shows_end and not request.ignore_eos else frozenset(),
            text=request.detokenize,
            token_ids=request.return_token_ids or not request.detokenize,
            prompt_ids=request.return_token_ids,
            names_as_ids=request.return_tokens_as_token_ids,
            prompt_logprobs=request.prompt_logprobs,
        )


class ChoiceReader:
    """Reads one generation: its output by ``opening`` (once, after the first response) and ``take``.

    Attributes:
        running: the generation.
        prepared: its prompt.
        logprob_sum: sum of the log-probs of the tokens generated so far.
        tokens: number of the tokens generated so far.
    """

    def __init__(
        self, running: Generation, prepared: PreparedPrompt, parts: VisibleParts, tokenizer: Tokenizer
    ) -> None:
        """Begin before anything was generated.

        Args:
            running: the generation.
            prepared: its prompt.
            parts: the parts that the choice shows.
            tokenizer: of the model.
        """
        self.running = running
        self.prepared = prepared
        self.logprob_sum = 0.0
        self.tokens = 0
        self._shown = parts
        self._tokenizer = tokenizer
        self._writer = LogprobWriter(len(prepared.text))
        self._ended = False
        self._new_ids: list[int] = []

    @property
    def plain(self) -> bool:
        """Whether the chunks of the choice have only text."""
        shown = self._shown
        return shown.generated and not shown.token_ids and shown.logprobs is None and not shown.end_ids

    @property
    def finish_reason(self) -> str:
        """The finish reason; valid at the end."""
        if not self._shown.generated:
            return "length"
        return "stop" if self._ended else self.running.assembler.finish_reason

    @property
    def finish_marks(self) -> dict[str, Any]:
        """Further fields about the end of the choice: the stop reason, and whether it is estimated."""
        return finish_marks(self.running) if self._shown.generated else {"stop_reason": None}

    @property
    def mean_logprob(self) -> float:
        """The log-prob per token, by which ``best_of`` chooses; minus infinity without tokens."""
        return self.logprob_sum / self.tokens if self.tokens else -math.inf

    def opening(self) -> tuple[str, list[LogprobRow]]:
        """The prompt's text and rows where the choice shows them; else empty.

        Raises:
            EngineError: when the engine did not give the prompt's log-probs.
        """
        if not self._shown.echo:
            return "", []
        text = self.prepared.text if self._shown.text else ""
        return text, self._prompt_rows() if self._shown.logprobs is not None else []

    def take(self, pieces: Sequence[Piece]) -> tuple[str, list[LogprobRow]]:
        """The text and rows of the next pieces."""
        texts: list[str] = []
        rows: list[LogprobRow] = []
        for piece in pieces:
            text = piece.text
            if piece.ids is not None:
                self._new_ids += piece.ids
            for entry in piece.logprobs:
                self.logprob_sum += entry.logprob
                self.tokens += 1
                if entry.index in self._shown.end_ids:
                    self._ended, text = True, ""
                    entry = dataclasses.replace(entry, bytes=b"")  # noqa: PLW2901
                rows.append(row_of(entry, names_as_ids=self._shown.names_as_ids))
            texts.append(text)
        if not self._shown.generated:
            return "", []
        return "".join(texts) if self._shown.text else "", rows if self._shown.logprobs is not None else []

    def logprobs(self, rows: Sequence[LogprobRow]) -> dict[str, Any] | None:
        """Make the ``logprobs`` object of the next rows; None where the choice shows none."""
        return self._writer.write(rows) if self._shown.logprobs is not None else None

    def prompt_extras(self) -> dict[str, Any]:
        """Further fields of the choice about its prompt, for the first chunk."""
        extras: dict[str, Any] = {}
        if self._shown.prompt_logprobs is not None:
            entries = self.running.assembler.prompt_entries()
            most = self._shown.prompt_logprobs  # 'logprobs' may have asked for more
            extras["prompt_logprobs"] = prompt_logprobs_list(
                [dataclasses.replace(entry, top=entry.top[:most]) for entry in entries]
            )
        if self._shown.prompt_ids:
            extras["prompt_token_ids"] = list(self.prepared.prompt.ids)
        return extras

    def new_extras(self) -> dict[str, Any]:
        """Further fields of the choice about the tokens since the last call."""
        if not self._shown.token_ids:
            return {}
        ids, self._new_ids = self._new_ids, []
        return {"token_ids": ids if self._shown.generated else []}

    def _prompt_rows(self) -> list[LogprobRow]:
        ids, assembler = self.prepared.prompt.ids, self.running.assembler
        given = assembler.prompt_logprobs
        if given is None and len(ids) > 1:
            raise EngineError(ErrorKind.INTERNAL, "The engine did not return the log-probabilities of the prompt.")
        chosen, top = (given, assembler.prompt_top_logprobs) if given is not None else ((), ())
        top = [others[: self._shown.logprobs] for others in top]  # prompt_logprobs may have asked for more
        text, silent = self.prepared.text, self.prepared.silent_bos
        as_ids = self._shown.names_as_ids
        return prompt_rows(self._tokenizer, ids, text, chosen, top, silent_bos=silent, names_as_ids=as_ids)
