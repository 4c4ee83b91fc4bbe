"""A served model that turns texts into vectors or scores: its inputs, their tokens, and its requests to the engine."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import time
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import anyio.to_thread
import numpy as np
from numpy.typing import NDArray

from gateway.generation import EngineError, EngineFeatures, ErrorKind
from gateway.generation.encoder import EncoderParams, EncoderRequest
from gateway.generation.engine import MalformedOutputError
from gateway.generation.ids import new_id
from gateway.generation.route import RoutingHints
from gateway.generation.token_counts import Usage
from gateway.http.access.caller import caller
from gateway.http.access.permit import permit
from gateway.serving.admission.admission import GenerationDemand
from gateway.serving.encoder_batches import EncoderBatches, split
from gateway.serving.encoder_call import EncoderCall
from gateway.serving.prompts import work_of
from gateway.serving.served_model import ServedModel
from gateway.settings import ConfigError
from gateway.telemetry.traces import current_trace
from gateway.text.tokens import TokenizerError
from gateway.text.tokens.encoder_tokenizer import EncoderInput, EncoderTokenizer

_log = logging.getLogger(__name__)
_OF_AN_INPUT = ErrorKind.CONTEXT_LENGTH, ErrorKind.INVALID_REQUEST
_OF_INPUTS = (*_OF_AN_INPUT, ErrorKind.INTERNAL)
_MOST_BATCHES = 2  # of a request in Triton: one runs and one waits; more would only hold up other requests
_MOST_CHARACTERS = 8  # of queries for each token; texts have 1 to 6


@dataclass(frozen=True, slots=True)
class EncoderResult:
    """The response to all inputs of one request of a client.

    Attributes:
        values: float32 [inputs, width]: vectors, or scores by class.
        tokens: tokens of all inputs.
    """

    values: NDArray[np.float32]
    tokens: int


class EncoderModel(ServedModel):
    """A served model that embeds, reranks or classifies.

    Attributes:
        labels: names of the classes, in order; empty without classes.
        tokenizer: the tokenizer; None without one, or before it is loaded.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        """Prepare a model; see ``ServedModel``."""
        super().__init__(*given, **named)
        self.labels: Sequence[str] = ()
        self.tokenizer: EncoderTokenizer | None = None
        self._folder: Path | None = None
        self._width: int | None = None
        self._running: set[EncoderCall] = set()

    @property
    def max_seq_len(self) -> int | None:
        """The most tokens of one input; None where it is unknown."""
        own, found = self.settings.max_seq_len, self._features.max_seq_len if self._features else None
        return min([each for each in (own, found) if each is not None], default=None)

    @property
    def tokenizer_folder(self) -> Path | None:
        """The folder of the tokenizer; None without one."""
        return self._folder

    @property
    def vocab_size(self) -> int | None:
        """One more than the largest token id; None without a tokenizer."""
        return self.tokenizer.vocab_size if self.tokenizer else None

    def prefix(self, input_type: str | None) -> str:
        """The text before each input of a type; of the default type where it is None."""
        encoder = self.settings.encoder
        own = encoder.input_types.get(input_type or encoder.default_input_type or "")
        return own.prefix if own else ""

    def check_ready(self) -> None:
        """Check that the encoder was found; see ``ServedModel``."""
        _ = self.backend.features

    async def encode(
        self, inputs: Sequence[EncoderInput], params: EncoderParams, request_id: str, arrived: float
    ) -> EncoderResult:
        """Encode the inputs of one request, in as many requests to the engine as they need.

        Args:
            inputs: at least one.
            params: parameters of all inputs.
            request_id: prefix of the engine's request ids.
            arrived: ``time.perf_counter()`` at the arrival of the request.

        Raises:
            EngineError: as the backend's ``engine`` when the model is not ready, or of the first input that failed.
            InputTooLongError: an input is too long.
            LimitedError: the caller has too few tokens left.
        """
        self.check_ready()
        most = self.settings.encoder.max_tokens
        queries = sum(len(each.text) for each in inputs if each.pair is not None)  # repeated for each document
        if queries > most * _MOST_CHARACTERS:
            what = f"The queries of all pairs have {queries} characters together, max {most * _MOST_CHARACTERS}."
            raise EngineError(ErrorKind.INVALID_REQUEST, what, param="query", code="max_tokens_per_request")
        trace = current_trace()
        with contextlib.nullcontext() if trace is None else trace.step("prompt"):
            prepared = await self._prepare(inputs, params)
        granted, known = permit(), sum(len(each.ids) for each in prepared)
        if known > most:
            what = f"Requested at least {known} tokens, max {most} tokens per request."
            raise EngineError(ErrorKind.INVALID_REQUEST, what, param="input", code="max_tokens_per_request")
        tally = None if granted is None else await granted.reserve(known)
        batches = EncoderBatches(prepared, params, request_id, arrived, self._timeouts.first_token_s)
        try:
            values = await self._encode_all(batches)
        finally:
            self.metrics.prompt_tokens.inc(batches.tokens)
            if tally is not None:
                tally.ended(Usage(batches.tokens, 0))
        return EncoderResult(values, batches.tokens)

    async def width(self) -> int:
        """The length of the model's vectors; found by a short text if no response has shown it yet.

        Raises:
            EngineError: the model is not ready, or has failed.
        """
        if self._width is None:
            self.check_ready()
            prepared = await self._prepare([EncoderInput("a")], params := EncoderParams())
            batches = EncoderBatches(prepared, params, "probe", time.perf_counter(), self._timeouts.first_token_s)
            return (await self._encode_all(batches)).shape[1]
        return self._width

    async def _prepare(self, inputs: Sequence[EncoderInput], params: EncoderParams) -> Sequence[EncoderInput]:
        """The inputs with prefixes, and with token ids where there is a tokenizer."""
        prepared = [self._prefixed(each, params.input_type) for each in inputs]
        if self.tokenizer is None:
            return prepared
        bounds = [each for each in (self.max_seq_len, params.most_tokens) if each is not None]
        how = min(bounds, default=None), params.truncate, params.document_tokens
        tokenize = functools.partial(self.tokenizer.tokenize, prepared, *how, total=self.settings.encoder.max_tokens)
        work = work_of(sum(len(each.text) + len(each.pair or "") for each in prepared))
        return tokenize() if work is None else await work.run(lambda left: tokenize(stopped=left.is_set))

    def abort(self, error: EngineError) -> None:
        """End all running requests with an error."""
        for call in list(self._running):
            call.abort(error)

    def _prefixed(self, given: EncoderInput, input_type: str | None) -> EncoderInput:
        """An input as the model wants texts of its type; ids stay as they are."""
        prefix = self.prefix(input_type)
        if not prefix or given.ids:
            return given
        return EncoderInput(prefix + given.text, given.pair, prefix=len(prefix) if given.pair is None else 0)

    async def _encode_all(self, batches: EncoderBatches) -> NDArray[np.float32]:
        """Encode inputs in batches, several at a time; results are in the inputs' order."""
        places = split(batches.inputs, self.backend.features)
        if len(places) > 1:  # the last one waits for others
            batches.limit_s = self._timeouts.total_s
        given = "max_parallel_generations" in self.settings.model_fields_set
        most = self.settings.max_parallel_generations if given else _MOST_BATCHES
        slots = asyncio.Semaphore(min(most, self.admission.limit or most))  # alone it fills no queue

        async def encode(batch: Sequence[int]) -> NDArray[np.float32]:
            async with slots:
                try:
                    return await self._encode(batches, batch)
                except EngineError as error:
                    raise await self._locate_fault(batches, batch, error) from None

        try:
            results = [await encode(places[0])] if len(places) == 1 else await all_or_none(map(encode, places))
        except EngineError as error:
            self.metrics.failures[error.kind.value].inc()
            raise
        except asyncio.CancelledError:
            self.metrics.cancelled.inc()
            raise
        values = np.empty((len(batches.inputs), results[0].shape[1]), np.float32)
        for batch, rows in zip(places, results, strict=True):
            if rows.shape[1] != values.shape[1]:
                raise MalformedOutputError(f"vectors of {values.shape[1]} and of {rows.shape[1]} numbers")
            values[batch] = rows
        if batches.params.dimensions is None:
            self._width = values.shape[1]
        return values

    async def _locate_fault(self, batches: EncoderBatches, batch: Sequence[int], error: EngineError) -> EngineError:
        """Name the input at fault in an error, or the inputs of its batch; halves are sent again to find it."""
        suspects, tried = batch, True
        while error.kind in _OF_AN_INPUT and error.param is None and (len(suspects) > 1 or not tried):
            half = suspects[: -(-len(suspects) // 2)]
            tried = len(half) == len(suspects)
            try:
                await self._encode(batches, half)
            except EngineError as other:
                if other.kind not in _OF_AN_INPUT:
                    return other
                error, suspects, tried = other, half, True
            else:
                if tried:  # the batch as a whole was at fault
                    suspects = batch
                    break
                suspects = suspects[len(half) :]
        if not error.items and error.kind in _OF_INPUTS and error.param is None:
            error.items = [(index, False) for index in sorted(suspects)]
            error.param = "input" if len(suspects) == 1 and error.kind in _OF_AN_INPUT else None
        return error

    async def _encode(self, batches: EncoderBatches, batch: Sequence[int]) -> NDArray[np.float32]:
        """Encode one batch and count its tokens."""
        who, items = caller(), [batches.inputs[index] for index in batch]
        known = sum(len(item.ids) for item in items)
        pad_id = self.tokenizer.pad_id if self.tokenizer else 0
        call = EncoderCall(
            EncoderRequest(f"{batches.request_id}-{new_id()}", items, batches.params, pad_id=pad_id),
            enter=functools.partial(self.admission.enter, GenerationDemand(who.id, who.weight, known)),
            find=functools.partial(self.backend.find, RoutingHints()),
            limit_s=batches.limit_s,
            metrics=self.metrics,
            arrived=batches.arrived,
        )
        self._running.add(call)
        try:
            encoded = await call.run()
        finally:
            self._running.discard(call)
        batches.tokens += known if encoded.token_counts is None else sum(encoded.token_counts)
        invalid = _invalid_row(encoded.values, zeros=self.task != "embed")
        if invalid is not None:
            row, message = invalid
            error = MalformedOutputError(message, message)
            error.items, error.param = [(batch[row], False)], "input"
            raise error
        return encoded.values

    async def _load(self) -> bool:
        if self.settings.tokenizer is None:
            return False
        await anyio.to_thread.run_sync(self._load_tokenizer, self.settings.tokenizer)
        return True

    def _load_tokenizer(self, folder: Path) -> None:
        try:
            self.tokenizer = EncoderTokenizer.from_folder(folder)
        except TokenizerError as error:
            raise ConfigError(f"{self._key}.tokenizer (GATEWAY_TOKENIZER): {error}") from None
        self._folder = folder
        self.labels = self.settings.encoder.labels or labels_of(folder)

    def _check_engine(self, features: EngineFeatures) -> None:
        folder = self.settings.tokenizer or (Path(features.tokenizer_dir) if features.tokenizer_dir else None)
        readable = folder is not None and (folder == self.settings.tokenizer or folder.is_dir())
        if folder is not None and readable and folder != self._folder:
            self._load_tokenizer(folder)
        self.labels = self.labels or self.settings.encoder.labels
        if self.task == "classify" and self.labels and features.width not in (None, len(self.labels)):
            raise ConfigError(
                f"{self._key}.encoder.labels: there are {len(self.labels)} labels, but the Triton model "
                f"{features.model!r} returns {features.width} scores; name as many."
            )
        if self.tokenizer is None and (features.prompt_ids or "prompt_tokens" in features.estimates):
            why = "takes token ids" if features.prompt_ids else "does not count tokens, which usage needs"
            raise ConfigError(
                f"{self._key}.tokenizer (GATEWAY_TOKENIZER): the Triton model {features.model!r} {why}; set the folder "
                "of its tokenizer.json."
            )

    def _adopt(self, features: EngineFeatures) -> None:
        self._capabilities, self._width = features.capabilities, None
        _log.info(
            "model %s is served on the %s path: %s", self.name, features.path, features.reason,
            extra={"event": "model_served", "max_seq_len": self.max_seq_len, "tokenizer": str(self._folder)},
        )  # fmt: skip


Result = TypeVar("Result")


async def all_or_none(works: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Await all together; when one fails, or the caller is cancelled, the others are cancelled."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _invalid_row(values: NDArray[np.float32], *, zeros: bool) -> tuple[int, str] | None:
    """The first row with numbers that no input can have, with a sentence; ``zeros``: whether a row may be zeros."""
    finite = np.isfinite(values).all(axis=1)
    if not finite.all():
        return int(finite.argmin()), "The model returned numbers that are not finite."
    some = values.any(axis=1)
    if not zeros and not some.all():
        return int(some.argmin()), "The model returned a vector of zeros."
    return None


def labels_of(folder: Path) -> Sequence[str]:
    """Read the names of classes in order, from ``id2label`` of ``config.json``; empty without them."""
    try:
        named = json.loads((folder / "config.json").read_bytes())["id2label"]
        return [str(named[str(index)]) for index in range(len(named))]
    except (OSError, ValueError, KeyError, TypeError):
        return ()
