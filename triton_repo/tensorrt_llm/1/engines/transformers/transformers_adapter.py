"""``TRITON_ENGINE=transformers``: any Hugging Face causal language model on CUDA, where TensorRT-LLM is not installed.

It needs torch and transformers 5.17 in the Python of Triton's stub. Prompts go as ids; streaming, greedy decoding,
temperature, top-k, top-p, seeds, stop words, log-probs of the chosen tokens (of the model's own distribution, before
temperature, top-k and top-p) and cancel are served. Penalties, biases, alternatives, guides and min_tokens are
rejected.

Environment, beside TRITON_ENGINE and MODEL_DIR: `engines.llmapi.options.read_options`; ``HF_ATTENTION`` (``sdpa``).
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from engines.llm_adapter import LlmAdapter
from engines.llmapi.options import read_options
from wire.base_adapter import parameters_of


class Adapter(LlmAdapter):
    """Runs a `TransformersEngine` for Triton."""

    def __init__(self, args: dict[str, str], folder: Path) -> None:
        """Load the model.

        Raises:
            RuntimeError: torch or transformers is missing, there is no CUDA device, or a setting has no valid value.
        """
        options = read_options(os.environ, parameters_of(args), folder)
        super().__init__(args, max_active=options.max_batch_size)
        if (gpus := options.gpus_of(args["model_instance_name"], 1)) is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = gpus  # before torch is imported; each instance is a process of its own
        batching = _import_batching()
        self._engine = batching.TransformersEngine(
            batching.TransformersLlm(folder, options, attention=os.environ.get("HF_ATTENTION") or "sdpa"),
            batching.SamplingParams,
            options,
            applies_penalties=False,
            to_tensor=_unused,
            on_response=self._send,
            on_failure=self._fail,
        )


def _import_batching() -> Any:
    try:
        return importlib.import_module("engines.transformers.continuous_batching")
    except ImportError as error:
        raise RuntimeError(
            "TRITON_ENGINE is 'transformers', which needs torch and transformers 5.17 in the Python of Triton's stub,"
            f" and importing them failed ({error}); use TRITON_ENGINE=llmapi where TensorRT-LLM is installed"
        ) from error


def _unused(_: Any) -> Any:
    raise AssertionError("biases are rejected")
