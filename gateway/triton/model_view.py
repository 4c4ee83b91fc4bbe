"""The declarations of a model, read from its ModelConfig."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tritonclient.grpc import model_config_pb2


@dataclass(frozen=True, slots=True)
class EnsembleStep:
    """One step of an ensemble.

    Attributes:
        model: the model that it runs.
        inputs: the model's input name to the ensemble's tensor.
        outputs: the model's output name to the ensemble's tensor.
    """

    model: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ModelView:
    """The parts of a model's configuration that decide how it is called (wire contract 0.3).

    Attributes:
        name: the model.
        inputs: names of declared inputs; sending any other fails the request.
        required: inputs that every request must have.
        outputs: names of declared outputs.
        batched: whether tensors carry a leading batch dimension (``max_batch_size`` above 0).
        decoupled: whether it may answer a request with several responses.
        parameters: the configuration's parameters, as strings, unfilled ``${...}`` included.
        steps: the steps of an ensemble; empty for other models.
        backend: the backend's name, empty for an ensemble.
        datatypes: types of declared inputs by name, as the wire calls them (``BYTES``, not ``STRING``).
        answered: types of declared outputs by name.
        dims: dimensions of declared inputs and outputs by name, without that of the batch.
        batch_size: most requests of one batch (``max_batch_size``); 0: the model has no batch dimension.
        single: names of inputs that are vectors, and of outputs, that may hold just one element.
    """

    name: str
    inputs: frozenset[str]
    required: frozenset[str]
    outputs: frozenset[str]
    batched: bool
    decoupled: bool
    parameters: Mapping[str, str]
    steps: tuple[EnsembleStep, ...] = ()
    backend: str = ""
    datatypes: Mapping[str, str] = field(default_factory=dict)
    answered: Mapping[str, str] = field(default_factory=dict)
    single: frozenset[str] = frozenset()
    dims: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    batch_size: int = 0

    @staticmethod
    def of(config: model_config_pb2.ModelConfig) -> ModelView:
        """Read a configuration."""
        return ModelView(
            name=config.name,
            inputs=frozenset(tensor.name for tensor in config.input),
            required=frozenset(tensor.name for tensor in config.input if not tensor.optional),
            outputs=frozenset(tensor.name for tensor in config.output),
            batched=config.max_batch_size > 0,
            decoupled=config.model_transaction_policy.decoupled,
            parameters={key: value.string_value for key, value in config.parameters.items()},
            steps=tuple(
                EnsembleStep(step.model_name, dict(step.input_map), dict(step.output_map))
                for step in config.ensemble_scheduling.step
            ),
            backend=config.backend,
            datatypes={tensor.name: _wire_type(tensor.data_type) for tensor in config.input if tensor.data_type},
            answered={tensor.name: _wire_type(tensor.data_type) for tensor in config.output if tensor.data_type},
            dims={tensor.name: tuple(tensor.dims) for tensor in (*config.input, *config.output)},
            batch_size=config.max_batch_size,
            single=frozenset(
                tensor.name
                for tensors in (config.input, config.output)
                for tensor in tensors
                if all(dim in (1, -1) for dim in tensor.dims) and (tensors is config.output or len(tensor.dims) == 1)
            ),
        )


def _wire_type(number: int) -> str:
    name = str(model_config_pb2.DataType.Name(number)).removeprefix("TYPE_")
    return "BYTES" if name == "STRING" else name
