"""Descriptions of tensors: name, datatype, shape and meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Datatype = Literal["BOOL", "UINT8", "UINT64", "INT32", "INT64", "FP16", "FP32", "STRING", "LOGITS"]

_ON_THE_WIRE = {"STRING": "BYTES", "LOGITS": "FP32"}
ANY = -1
"""A dimension whose size varies."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output of a model (wire contract 1.1 to 1.6).

    Attributes:
        name: as in ``config.pbtxt`` and on the wire.
        datatype: the configuration's type without ``TYPE_``. ``LOGITS`` stands for FP32 or FP16, the deployer's choice.
        dims: without the batch dimension that every model of this family has; ``ANY`` varies.
        optional: whether a request may leave it out. Outputs are always optional in this sense: absent when not made.
        older: the name before TensorRT-LLM 0.20, where it was renamed.
        extension: True for what only this project's engines have; never required.
    """

    name: str
    datatype: Datatype
    dims: tuple[int, ...] = (1,)
    optional: bool = True
    older: str | None = None
    extension: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Every name it has had, newest first."""
        return (self.name,) if self.older is None else (self.name, self.older)

    @property
    def wire_datatype(self) -> str:
        """The type's name on the wire, where STRING is BYTES and logits are FP32 unless configured otherwise."""
        return _ON_THE_WIRE.get(self.datatype, self.datatype)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The inputs and outputs of one model.

    Attributes:
        name: the stock name of the model.
        inputs: what it may be sent.
        outputs: what it may answer.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    def input(self, name: str) -> TensorSpec:
        """Find an input by its newest name.

        Raises:
            KeyError: there is none of that name.
        """
        return _by_name(self.inputs, name)

    def output(self, name: str) -> TensorSpec:
        """Find an output by its name.

        Raises:
            KeyError: there is none of that name.
        """
        return _by_name(self.outputs, name)

    @property
    def required_inputs(self) -> frozenset[str]:
        """Names of the inputs that no request may leave out."""
        return frozenset(spec.name for spec in self.inputs if not spec.optional)


def _by_name(specs: tuple[TensorSpec, ...], name: str) -> TensorSpec:
    for spec in specs:
        if spec.name == name:
            return spec
    raise KeyError(name)
