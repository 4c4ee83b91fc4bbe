"""What a request may add to the model: an adapter, rows of embeddings, a draft (contract sections 1.3 and 2.8)."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from reference.request import Draft, LoraTask, PromptTable, RefusedError

LORA, PROMPT_TABLE, DRAFT = "lora", "prompt_table", "draft"
_EVERY = frozenset((LORA, PROMPT_TABLE, DRAFT))

# By what an engine must have to be sent them; the others refuse them in these words.
REFUSALS: dict[str, tuple[tuple[str, ...], str]] = {
    LORA: (("lora_task_id", "lora_weights", "lora_config"), "lora: the engine was not built with the LoRA plugin"),
    PROMPT_TABLE: (
        ("prompt_embedding_table", "prompt_vocab_size", "prompt_table_extra_ids"),
        "prompt_embedding_table: the engine was not built with a prompt table",
    ),
    DRAFT: (
        ("draft_input_ids", "draft_logits", "draft_acceptance_threshold"),
        "draft_input_ids: the engine does not accept draft tokens",
    ),
}


class Reader(Protocol):
    """Typed access to the inputs of one request."""

    def scalar(self, name: str) -> Any:
        """First value of a tensor as a Python value, None when absent."""

    def row(self, name: str) -> NDArray[Any] | None:
        """A tensor without its batch dimension, None when absent."""


def refusals(takes: frozenset[str]) -> dict[str, str]:
    """Inputs that an engine refuses, and in which words.

    Args:
        takes: which of the additions it has.
    """
    return {name: words for kind in _EVERY - takes for name in REFUSALS[kind][0] for words in [REFUSALS[kind][1]]}


def parse_lora(read: Reader) -> LoraTask | None:
    """The adapter of a request.

    Its tensors are ``lora_task_id`` UINT64 [1, 1], ``lora_weights`` FP16 [1, rows, width] and ``lora_config`` INT32
    [1, rows, 3].

    Raises:
        RefusedError: weights without a task id, or one of the two without the other, in TensorRT-LLM's words.
    """
    task, weights, rows = read.scalar("lora_task_id"), read.row("lora_weights"), read.row("lora_config")
    if task is None and weights is None and rows is None:
        return None
    if task is None:
        raise RefusedError("lora_task_id must be set for LoRA inference")
    if (weights is None) != (rows is None):
        raise RefusedError("Request for LoRA inference must have both lora_weights and lora_keys")
    return LoraTask(int(task), _copy(weights), _copy(rows))


def parse_prompt_table(read: Reader) -> PromptTable | None:
    """The prompt table of a request.

    Its tensors are ``prompt_embedding_table`` FP16 [1, rows, hidden], ``prompt_vocab_size`` INT32 [1, 1] and
    ``prompt_table_extra_ids`` UINT64 [1, prompt].

    Raises:
        RefusedError: a part without the others, or a size that the table does not have.
    """
    table, size, extra = (
        read.row("prompt_embedding_table"),
        read.scalar("prompt_vocab_size"),
        read.row("prompt_table_extra_ids"),
    )
    if table is None and size is None and extra is None:
        return None
    if table is None or size is None:
        raise RefusedError("prompt_embedding_table and prompt_vocab_size must be given together")
    if size != len(table):
        raise RefusedError(f"prompt_vocab_size is {size}, but prompt_embedding_table has {len(table)} rows")
    if not np.isfinite(table).all():
        raise RefusedError("prompt_embedding_table must be finite")
    extra_ids = () if extra is None else tuple(int(value) for value in extra.reshape(-1))
    return PromptTable(table.astype(np.float32), extra_ids)


def parse_draft(read: Reader) -> Draft:
    """The draft.

    Its tensors are ``draft_input_ids`` INT32 [1, tokens], ``draft_logits`` FP32 [1, tokens, vocabulary] and
    ``draft_acceptance_threshold`` FP32 [1, 1].

    Raises:
        RefusedError: a part without those that it belongs to, or a value that no draft can have.
    """
    ids, logits, threshold = (
        read.row("draft_input_ids"),
        read.row("draft_logits"),
        read.scalar("draft_acceptance_threshold"),
    )
    if logits is not None and ids is None:
        raise RefusedError("draft_logits must be given together with draft_input_ids")
    if threshold is not None and logits is None:
        raise RefusedError("draft_acceptance_threshold must be given together with draft_logits")
    if threshold is not None and not 0 < threshold <= 1:
        raise RefusedError("draft_acceptance_threshold must be above 0, to 1")
    if logits is not None and np.isnan(logits).any():
        raise RefusedError("draft_logits must not hold NaN")
    return Draft(() if ids is None else tuple(ids.reshape(-1).tolist()), _copy(logits), threshold)


def _copy(array: NDArray[Any] | None) -> NDArray[Any] | None:
    return None if array is None else array.copy()  # Triton's memory is only lent
