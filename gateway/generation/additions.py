"""Additions to the model itself for one request: an adapter, rows of embeddings. In the engine's own formats."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix as it travels.

    Attributes:
        values: its elements in row-major order, little-endian.
        rows: how many.
        columns: how many.
    """

    values: bytes
    rows: int
    columns: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.rows, self.columns


@dataclass(frozen=True, slots=True)
class LoraAdapter:
    """A LoRA adapter that is added to the model (wire contract 2.8).

    Attributes:
        task_id: by which the engine keeps it, unsigned 64-bit.
        weights: float16, a row for each module of each layer; None where the engine is thought to have them.
        config: int32 with three columns, module, layer and rank, for each row of the weights; None likewise.
    """

    task_id: int
    weights: Matrix | None = None
    config: Matrix | None = None

    def by_id(self) -> LoraAdapter:
        """The same adapter without its weights."""
        return LoraAdapter(self.task_id)


@dataclass(frozen=True, slots=True)
class PromptTable:
    """Virtual tokens that go before the prompt (p-tuning).

    Attributes:
        embeddings: float16, a row for each virtual token.
        extra_id: tells this table from others in the engine's KV cache, unsigned 64-bit and not 0.
    """

    embeddings: Matrix
    extra_id: int

    @property
    def length(self) -> int:
        """Virtual tokens."""
        return self.embeddings.rows
