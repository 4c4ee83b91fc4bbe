"""The dialect of ensembles and BLS models: text in; token ids out where exposed, else text (contract 1 and 4).

A gRPC cancel does not reach the ensemble's engine step; a ``stop`` request to the engine does (wire contract 3.6).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace

from tritonclient.grpc import service_pb2

from gateway.generation.engine import EngineChunk, EngineError, EngineFeatures, ErrorKind, TokenGenerator
from gateway.generation.request import GenerationRequest
from gateway.settings import EnginePath
from gateway.text.contract import BLS, TENSORRT_LLM
from gateway.text.prompt.prompt import Prompt
from gateway.triton import hints
from gateway.triton.abilities import NO_OPTIONS, Abilities, EngineOptions, read_abilities
from gateway.triton.connection import BackgroundTasks, Connection
from gateway.triton.dialects.dialect import Dialect, DiscoveryError, TritonEngine, check_required
from gateway.triton.dialects.tensorrt_llm import ALWAYS, TensorRtLlmDialect, one_response, relative
from gateway.triton.dialects.tokens import TokensDialect
from gateway.triton.error_mapping import unsupported
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import Models, is_bls, is_own_bls
from gateway.triton.response_stream import END_TIMEOUT_S, ResponseStream
from gateway.triton.tensors.answer_readers import TextReader, TokenReader
from gateway.triton.tensors.request_encoder import RequestEncoder
from gateway.triton.tensors.request_tensors import put_parameters
from gateway.triton.text_path import TextPath, read_text_path

# Beyond it the server is left waiting: a slow client must not fill the gateway's memory.
_QUEUED = 64
# Of stop requests.
_RPC_TIMEOUT_S = 2.0
_RETRY_S = 0.25
_MOST_RETRY_S = 2.0

# The text is always requested: it is the output of the last step, and a request for only the outputs of the
# engine step ended with one empty final response (Triton 2.51).
_TEXT_OUTPUTS = ("text_output",)
_TOKEN_OUTPUTS = ("text_output", "output_ids", "sequence_length")


_TEXT = frozenset({"text_input", "max_tokens"})


class EnsembleDialect(TensorRtLlmDialect):
    """The dialect of ensembles and BLS models, which take text."""

    path = "ensemble"
    kind = "ensemble"
    name = "a BLS model"
    served = "an ensemble or a BLS model of TensorRT-LLM (text_input and max_tokens)"
    spec = BLS
    always = ALWAYS | _TEXT | {"stream"}

    def recognizes(self, model: ModelView) -> bool:
        """Tell whether a model has steps, or calls models as a BLS model does; see ``Dialect``."""
        return bool(model.steps) or is_bls(model)

    def kind_of(self, model: ModelView) -> str | None:
        """Tell BLS models from ensembles; see ``Dialect``."""
        if is_bls(model):
            return "BLS"
        return self.kind if model.inputs >= _TEXT else None

    def check(self, models: Models, path: EnginePath) -> None:
        """Reject models that do not fit each other, or the path; see ``Dialect``."""
        if models.bls:
            _check_bls(models, path)
            _check_engine_name(models.entry)
        elif path == "tokens" and models.engine is None:
            raise DiscoveryError(
                f"path: tokens is configured, but exactly one step of {models.entry.name!r} must take token ids"
            )

    def choose(self, models: Models, path: EnginePath) -> tuple[Dialect[TokenGenerator], str]:
        """Choose the engine step of an ensemble that has the stock steps; see ``Dialect``."""
        if models.pipeline is None:
            drafting = f" with the draft model {models.draft.name!r}" if models.draft else ""
            return self, f"{models.entry.name!r} is a BLS model{drafting}"
        if path == "tokens":
            return TokensDialect(), "path: tokens is configured"
        if path == "ensemble":
            return self, "path: ensemble is configured"
        if models.pipeline.deviation is not None:
            return self, f"the ensemble is not the stock ensemble: {models.pipeline.deviation}"
        step = models.engine.name if models.engine else ""
        return TokensDialect(), f"the ensemble has the stock steps, and {step!r} returns token ids"

    def make(
        self, connection: Connection, models: Models, reason: str, options: EngineOptions = NO_OPTIONS
    ) -> EnsembleEngine:
        """Make the engine; see ``Dialect``."""
        entry, engine = _as_read(models.entry), models.engine
        check_text(models, options)
        check_required(entry, self.spec, self.always)
        path = read_text_path(models, options)
        abilities = read_abilities(
            entry,
            engine,
            options,
            token_ids=path.token_ids,
            guided=models.guided,
            draft=models.draft,
            drafted=models.drafted,
        )
        if path.cumulative:
            abilities = replace(abilities, beams=1)  # it puts the tokens of one sequence together
        features = replace(
            self.features(entry, models, abilities, options, reason),
            adds_special_tokens=hints.adds_special_tokens(models.preprocessing),
            streams=path.streams,
            whole=path.whole,
            estimates=path.estimates,
        )
        stopped = engine if takes_stops(models) else None
        return EnsembleEngine(connection, entry, features, abilities, path, engine=stopped)

    def lost(self, models: Models, options: EngineOptions) -> tuple[str, ...]:
        """List what answers lose; see ``Dialect``."""
        return tuple(_losses(models, read_text_path(models, options), options))

    def otherwise(self, models: Models) -> str:
        """Name the path ``tokens`` as the cure for an ensemble; a BLS model has none. See ``Dialect``."""
        return "" if models.bls else "Set path: tokens, so that the gateway calls the engine step with token ids."


def _check_bls(models: Models, path: EnginePath) -> None:
    entry, engine = models.entry, models.engine
    if path == "tokens":
        raise DiscoveryError(f"path: tokens is configured, but {entry.name!r} is a BLS model, which only reads text")
    if engine is not None and engine.decoupled and not entry.decoupled:
        raise DiscoveryError(
            f"the BLS model {entry.name!r} is not decoupled and cannot call the decoupled model {engine.name!r}; "
            "set model_transaction_policy { decoupled: true } in the config.pbtxt of both models or of neither"
        )


def _check_engine_name(model: ModelView) -> None:
    name = model.parameters.get("tensorrt_llm_model_name", "")
    # Upstream's model takes an unfilled name for the default since 0.13, which brought this parameter.
    reads_defaults = is_own_bls(model) or "multimodal_encoders_name" in model.parameters
    if name.startswith("${") and not reads_defaults:
        raise DiscoveryError(
            f"the BLS model {model.name!r} calls engine model {name!r}, which is an unfilled template placeholder; "
            "set tensorrt_llm_model_name to the name of the engine model"
        )


def check_text(models: Models, options: EngineOptions) -> None:
    """Reject an ensemble or a BLS model if the text of its answers cannot be determined.

    Raises:
        DiscoveryError: with the reason.
    """
    name = models.entry.name
    if not models.entry.inputs >= {"text_input", "max_tokens"}:
        raise DiscoveryError(f"ensemble {name!r} has no inputs text_input and max_tokens")
    if "text_output" not in models.entry.outputs:
        raise DiscoveryError(f"ensemble {name!r} has no output text_output")
    if read_text_path(models, options).echoes:
        raise DiscoveryError(
            f"model {name!r} returns the prompt before the answer and has no input exclude_input_in_output; set the "
            "parameter exclude_input_in_output of its engine model to true, or set path: tokens"
        )


_CURES = "set path: tokens, or accumulate_tokens in a BLS model, or text_streaming: whole for one event at the end"


def _losses(models: Models, path: TextPath, options: EngineOptions) -> Iterator[str]:
    name = models.entry.name
    if not path.decoupled:
        yield one_response(models)
    yield from _not_passed_on(models)
    if path.token_ids:
        yield from relative(models.entry, models, options)
        return
    damage = f"{name!r} decodes each response by itself, which breaks characters of several tokens and drops spaces"
    if path.streams == "rejected":
        yield f"streamed answers are rejected: {damage}; {_CURES}"
    elif path.streams == "damaged":
        yield f"streamed answers are damaged (text_streaming: lossy): {damage}"
    elif path.streams == "whole" and path.decoupled:
        yield f"a streamed answer is one event at the end (text_streaming: whole): {damage}"
    if path.whole:
        yield "a stop string cuts an answer that is not streamed, but does not end its generation in the engine"
    elif path.streams == "damaged":
        yield "answers that are not streamed are damaged as well because they would start with the prompt"
    if not path.counts:
        yield f"{name!r} does not report token counts: usage.completion_tokens and finish_reason are estimated"
    elif path.estimates:
        yield "usage.completion_tokens of an answer that a stop string cuts is estimated"
    yield "log-probs are rejected because text does not show its tokens"


def _not_passed_on(models: Models) -> Iterator[str]:
    if models.bls and not is_own_bls(models.entry):
        yield "the BLS model does not forward cancellation: a cancelled request continues to its end in the engine"
        yield "the BLS model does not forward engine errors during an answer, which then ends by timeout"
    elif not models.bls and not takes_stops(models):
        yield (
            "the ensemble's engine does not support stop requests: a cancelled request continues to its end in the "
            "engine"
        )


def takes_stops(models: Models) -> bool:
    """Tell whether the engine step of an ensemble takes requests that end another request."""
    return models.engine is not None and "stop" in models.engine.inputs and not models.bls


def _as_read(model: ModelView) -> ModelView:
    """Drop the inputs that a model declares but ignores, so that requests that need such inputs are rejected.

    A BLS model before 0.13 passes no temperature on. It is known by an input that came with 0.13 (wire contract 1.6).
    """
    old = is_bls(model) and not is_own_bls(model) and "prompt_table_extra_id" not in model.inputs
    return replace(model, inputs=model.inputs - {"temperature"}) if old else model


class ResponsePump:
    """Passes on the responses of a stream; cancelling the reader does not cancel the RPC.

    Attributes:
        task: runs until the request has ended.
        final: whether the last read response was the final one.
    """

    def __init__(self, stream: ResponseStream, background: BackgroundTasks) -> None:
        self._stream = stream
        self._queue: asyncio.Queue[tuple[service_pb2.ModelInferResponse, bool] | EngineError] = asyncio.Queue(_QUEUED)
        self._abandoned = False
        self.final = False
        self.task = background.spawn(self._run())
        self.task.add_done_callback(self._on_done)

    async def _run(self) -> None:
        try:
            while not self._stream.final:
                response = await self._stream.read()
                if not self._abandoned:
                    await self._queue.put((response, self._stream.final))
        except EngineError as error:
            if not self._abandoned:
                await self._queue.put(error)
        finally:
            self._stream.close()

    def _on_done(self, task: asyncio.Task[None]) -> None:
        # No reader may be left waiting, however the task ended.
        if task.cancelled():
            self._fail(EngineError(ErrorKind.CANCELLED, "The gateway is shutting down."))
        elif task.exception() is not None:
            self._fail(
                EngineError(ErrorKind.INTERNAL, "The engine's response could not be read.", repr(task.exception()))
            )

    def _fail(self, error: EngineError) -> None:
        if self._queue.full():
            self._queue.get_nowait()
        self._queue.put_nowait(error)

    async def read(self) -> service_pb2.ModelInferResponse:
        """Read the next response; see ``ResponseStream.read``."""
        item = await self._queue.get()
        if isinstance(item, EngineError):
            raise item
        response, self.final = item
        return response

    def abandon(self) -> None:
        """Drop queued and later responses until the request has ended."""
        self._abandoned = True
        while not self._queue.empty():
            self._queue.get_nowait()


class StopSender:
    """Ends requests that run in the engine step of an ensemble.

    Args:
        connection: connection to Triton.
        engine: the engine step's model; it must declare the input ``stop``.
    """

    def __init__(self, connection: Connection, engine: ModelView) -> None:
        self._connection = connection
        self._encoder = RequestEncoder(engine, TENSORRT_LLM)

    async def stop(self, request_id: str, ended: asyncio.Task[None]) -> None:
        """Send ``stop`` for a request until it has ended, for as long as a request may take.

        ``stop`` is repeated because a stop that overtakes its request, still in preprocessing, finds nothing to end,
        and because a Triton that hangs for a while would otherwise compute the rest of an answer without a reader.

        Args:
            request_id: the id of the request to end.
            ended: a task that ends with the request.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._connection.timeout
        pause = _RETRY_S
        while not ended.done() and loop.time() < deadline:
            await self.send(request_id)
            await asyncio.wait({ended}, timeout=pause)
            pause = min(2 * pause, _MOST_RETRY_S)

    async def send(self, request_id: str) -> None:
        """Send ``stop`` for a request once; a failure is only reported to the connection."""
        stream = ResponseStream(self._connection.transport.infer(self.encode(request_id), timeout=_RPC_TIMEOUT_S))
        try:
            while not stream.final:
                await stream.read()
        except EngineError as error:
            self._connection.report(error)
        finally:
            stream.close()

    def encode(self, request_id: str) -> service_pb2.ModelInferRequest:
        """Make the stop request for a request; all tensors except ``stop`` are only there because they are required."""
        wire = self._encoder.request(request_id, ("output_ids", "sequence_length"))
        self._encoder.put(wire, "input_ids", 0)
        self._encoder.put(wire, "input_lengths", 1)
        self._encoder.put(wire, "request_output_len", 1)
        self._encoder.put(wire, "stop", True)
        return wire


class EnsembleEngine(TritonEngine):
    """An Engine that calls an ensemble or a BLS model with text.

    Args:
        connection: connection to Triton.
        model: the ensemble or BLS model.
        features: its features by discovery.
        abilities: its abilities with their tensors.
        path: the form of its answers.
        engine: its engine step's model, which takes the ``stop`` requests; None when there is none that does: a
            request is then left by a gRPC cancel, which an ensemble does not pass on.
    """

    def __init__(
        self,
        connection: Connection,
        model: ModelView,
        features: EngineFeatures,
        abilities: Abilities,
        path: TextPath,
        *,
        engine: ModelView | None,
    ) -> None:
        super().__init__(connection, model, BLS, features)
        self._abilities = abilities
        self._path = path
        self._stopper = StopSender(connection, engine) if engine is not None else None

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineChunk, None]:
        """Generate one sequence; see ``gateway.generation.engine.TokenGenerator``.

        When the generator is closed early, the request is stopped in the background.
        """
        reader = self._reader(request)
        message = self.encode(request)
        connection = self._connection
        stream = ResponseStream(
            connection.transport.infer(message, timeout=connection.timeout, traceparent=request.traceparent)
        )
        pump = ResponsePump(stream, connection.background)
        whole, gone, late, answered = not self._streams(request), False, False, False
        try:
            while not pump.final:
                response = await pump.read()
                answered = whole
                chunk = reader.read(response, final=pump.final)
                if chunk.ids or chunk.text is not None or chunk.final or chunk.failure or chunk.finish_reason:
                    yield chunk
        except EngineError as error:
            gone = error.kind is ErrorKind.UNAVAILABLE
            late = error.kind is ErrorKind.TIMEOUT
            connection.report(error)
            raise
        finally:
            if not pump.final and not gone:
                pump.abandon()
                # A task of its own, since nothing can be awaited here when the reader was cancelled.
                connection.background.spawn(self._end(request.id, pump, stream, late=late, answered=answered))

    def _reader(self, request: GenerationRequest) -> TokenReader | TextReader:
        if self._path.token_ids:
            return TokenReader(request, self._abilities)
        beams, path = request.params.beam_width, self._path
        return TextReader(request.max_tokens, cumulative=path.cumulative, counts=path.counts, beams=beams)

    def _streams(self, request: GenerationRequest) -> bool:
        draft = self._abilities.draft_model if request.num_draft_tokens else None
        whole = self._features.one_response(stream=request.params.stream) or request.params.beam_width > 1
        return not whole and (draft is None or draft.streams)

    async def _end(
        self, request_id: str, pump: ResponsePump, stream: ResponseStream, *, late: bool, answered: bool
    ) -> None:
        if answered:  # in one response, which the end follows: a cancel would meet it (wire contract 9.1, row 7)
            await asyncio.wait({pump.task}, timeout=END_TIMEOUT_S)
        if self._stopper is not None and late:
            await self._stopper.send(request_id)  # the call ended at its deadline, but not the request in the engine
        elif self._stopper is not None:
            await self._stopper.stop(request_id, pump.task)
        stream.close()

    def encode(self, request: GenerationRequest) -> service_pb2.ModelInferRequest:
        """Convert a request to tensors.

        Raises:
            EngineError: the request needs what the model lacks, or its prompt cannot travel as text.
        """
        encoder = self._encoder
        tokens = self._features.token_ids
        wire = encoder.request(request.id, _TOKEN_OUTPUTS if tokens else _TEXT_OUTPUTS)
        encoder.put(wire, "text_input", self._prompt_text(request.prompt))
        encoder.put(wire, "max_tokens", request.max_tokens)
        encoder.put(wire, "stream", self._streams(request))
        encoder.put(wire, "exclude_input_in_output", True)
        encoder.put(wire, "seed", request.seed)
        self._put_words(wire, request)
        put_parameters(encoder, wire, request, self._abilities)
        if request.params.logit_bias:
            raise unsupported("logit_bias", encoder.model.name)
        if request.prompt_table is not None:
            raise unsupported("prompt_table", encoder.model.name)
        for name in self._put_counts(wire):
            wire.outputs.add(name=name)
        return wire

    def _put_words(self, wire: service_pb2.ModelInferRequest, request: GenerationRequest) -> None:
        encoder = self._encoder
        if request.params.stop_token_ids and not self._features.token_ids:
            raise unsupported("stop_token_ids", encoder.model.name)
        # With min_tokens only end_id is held back in the engine; see the tokens dialect.
        others = () if request.params.min_tokens else [text for text in request.end_texts[1:] if text]
        if others:
            encoder.put(wire, "stop_words", *others)
        if request.bad_word_ids or request.params.bad_words:
            # At the start of a text and after a space a word is made of different tokens in most vocabularies.
            words = [form for text in request.params.bad_words if text for form in (text, f" {text}")]
            if not words or not encoder.put(wire, "bad_words", *words):
                raise unsupported("bad_words", encoder.model.name)

    def _put_counts(self, wire: service_pb2.ModelInferRequest) -> list[str]:
        counts = ("num_input_tokens", *(("num_output_tokens",) if "tokens" in self._path.counts else ()))
        declared = self._encoder.model.outputs
        asked = [name for name in counts if name in declared and self._encoder.put(wire, f"return_{name}", True)]
        if "logprobs" in self._path.counts:
            self._encoder.put(wire, "return_log_probs", True)
            asked.append("output_log_probs")
        return asked

    def _prompt_text(self, prompt: Prompt) -> str:
        if prompt.escaped:
            raise EngineError(
                ErrorKind.INVALID_REQUEST,
                "The messages contain the text of a control token, which cannot be escaped in prompts that are sent "
                "as text. Ask the operator to set path: tokens or escape_special_tokens: false.",
                param="prompt",
            )
        text, bos = prompt.text, prompt.bos_text
        if not bos:
            return text
        # BOS exactly once, from the gateway or from preprocessing (wire contract 1.4).
        if self._features.adds_special_tokens:
            return text.removeprefix(bos)
        return text if text.startswith(bos) else bos + text
