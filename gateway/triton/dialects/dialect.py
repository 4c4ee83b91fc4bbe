"""The interface of a dialect, and checks that all dialects have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

from tritonclient.grpc import service_pb2

from gateway.generation.engine import Engine, EngineError, EngineFeatures, TokenGenerator
from gateway.generation.request import GenerationRequest
from gateway.settings import EngineForm, EnginePath
from gateway.text.contract import ModelSpec
from gateway.triton.abilities import NO_OPTIONS, EngineOptions
from gateway.triton.connection import Connection
from gateway.triton.engine_probe import ask
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import Models
from gateway.triton.tensors.request_encoder import RequestEncoder, describe_tensors

Made = TypeVar("Made", bound=Engine)


class DiscoveryError(ValueError):
    """The configured model cannot be served; the message says why, in one sentence.

    It stays so until the model repository or the gateway's settings change.
    """


def decoupled(model: ModelView) -> ModelView:
    """Make the configuration of a model decoupled, so that a request may have several responses."""
    return replace(model, decoupled=True)


class Dialect(ABC, Generic[Made]):
    """Calls one kind of Triton model, for the gateway and ``gateway check``.

    Attributes:
        path: the value of the setting ``path``.
        kind: a word or two for lists of models.
        name: the kind with its article.
        served: the kind with its tensors, for lists of supported models.
        lacking: error with ``{name}`` for a setting ``path`` of this dialect with a model of another kind; empty where
            the other kind's check makes the error.
        spec: the tensors by the contract.
        always: tensors that every request has.
        cures: changes of a configuration that may end a loss, by their sentence.
    """

    path: ClassVar[EngineForm]
    kind: ClassVar[str]
    name: ClassVar[str]
    served: ClassVar[str]
    lacking: ClassVar[str] = ""
    spec: ClassVar[ModelSpec]
    always: ClassVar[frozenset[str]]
    cures: ClassVar[Mapping[str, Callable[[ModelView], ModelView]]] = {}

    @abstractmethod
    def recognizes(self, model: ModelView) -> bool:
        """Tell whether a model is of this kind, by its tensors and never by its name."""

    def kind_of(self, model: ModelView) -> str | None:
        """The kind of a recognized model; None where it lacks what a configured model needs."""
        del model
        return self.kind

    def completed(self, model: ModelView) -> ModelView:
        """Complete a model from files as Triton does when it loads it, for ``gateway check``."""
        return model

    @abstractmethod
    def check(self, models: Models, path: EnginePath) -> None:
        """Reject recognized models that cannot be served.

        Raises:
            DiscoveryError: with the reason.
        """

    def choose(self, models: Models, path: EnginePath) -> tuple[Dialect[Made], str]:
        """Choose the dialect of the requests, if the engine responds, with the reason."""
        del path
        return self, f"{models.entry.name!r} is {self.name}"

    def assume(self, models: Models) -> Models:
        """Fill in the most probable result of ``learn``."""
        return models

    async def learn(self, engine: Made, make: Callable[[Models], Made], models: Models) -> Models:
        """Probe an engine for facts that configurations do not tell.

        Args:
            engine: the engine of the models.
            make: makes another engine.
            models: the models, without learned facts.

        Raises:
            DiscoveryError: the model cannot be served.
            EngineError: Triton is not available.
        """
        del engine, make
        return models

    @abstractmethod
    def make(self, connection: Connection, models: Models, reason: str, options: EngineOptions = NO_OPTIONS) -> Made:
        """Make the engine.

        Raises:
            DiscoveryError: the called model requires inputs that are not sent.
        """

    @abstractmethod
    async def ask(self, engine: Made) -> EngineError | None:
        """Send the smallest request that makes the engine work, and return its failure.

        Raises:
            EngineError: Triton is not available.
        """

    @abstractmethod
    def lost(self, models: Models, options: EngineOptions) -> tuple[str, ...]:
        """List what answers lack, one sentence each, without a capital and without a full stop."""

    def losses(self, models: Models, options: EngineOptions) -> dict[str, str]:
        """List what answers lack, with the remedy of each; empty where answers are streamed token ids.

        Returns:
            By the sentence on the loss, the sentence on its remedy; empty where no change of the configuration helps.
        """
        said = self.lost(models, options)
        left = {
            fix: self.lost(
                replace(models, entry=change(models.entry), engine=models.engine and change(models.engine)), options
            )
            for fix, change in (self.cures.items() if said else ())
        }
        otherwise = self.otherwise(models)
        return {loss: next((fix for fix, rest in left.items() if loss not in rest), otherwise) for loss in said}

    def otherwise(self, models: Models) -> str:
        """The cure of a loss that none of ``cures`` ends."""
        del models
        return ""


class GeneratorDialect(Dialect[TokenGenerator]):
    """A dialect of models that generate text."""

    async def ask(self, engine: TokenGenerator) -> EngineError | None:
        """Generate one token; see ``Dialect``."""
        return await ask(engine)


class TritonEngine(ABC):
    """An Engine that calls a Triton model.

    Args:
        connection: connection to Triton.
        model: the called model.
        spec: its tensors by the contract.
        features: its features by discovery.
    """

    def __init__(self, connection: Connection, model: ModelView, spec: ModelSpec, features: EngineFeatures) -> None:
        self._connection = connection
        self._encoder = RequestEncoder(model, spec)
        self._features = features

    @property
    def features(self) -> EngineFeatures:
        """The features of this engine."""
        return self._features

    def describe(self, request: GenerationRequest) -> list[dict[str, Any]]:
        """The tensors that ``generate`` would send; see ``gateway.generation.engine.DescribingEngine``."""
        return describe_tensors(self.encode(request))

    @abstractmethod
    def encode(self, request: GenerationRequest) -> service_pb2.ModelInferRequest:
        """Convert a request to tensors.

        Raises:
            EngineError: the request needs what the model lacks, or its prompt cannot travel as text.
        """


def check_required(model: ModelView, spec: ModelSpec, filled: frozenset[str]) -> None:
    """Reject a model that requires unsent inputs, or takes inputs of another type or shape.

    Args:
        model: the model that is called.
        spec: its tensors by the contract.
        filled: names of the tensors that every request has.

    Raises:
        DiscoveryError: with the names.
    """
    known = {name for tensor in spec.inputs if tensor.name in filled for name in tensor.names}
    unknown = sorted(model.required - known)
    if unknown:
        raise DiscoveryError(
            f"model {model.name!r} requires inputs that the gateway does not send: {', '.join(unknown)}; "
            "declare them with optional: true"
        )
    encoder = RequestEncoder(model, spec)
    for name in sorted(filled):
        if encoder.declares(name) and (misfit := encoder.misfit(name)):
            raise DiscoveryError(f"model {model.name!r} cannot be called: {misfit}")
