"""``TRITON_ENGINE=llmapi``: the model ``tensorrt_llm`` served by TensorRT-LLM's LLM API (package tensorrt_llm).

Not yet run on TensorRT-LLM itself: only against a stand-in with the signatures of 1.0.0, 1.2.1 and main, recorded from
its sources and documentation (tests/llmapi). Alternatives to the chosen token need ``LLM_SAMPLER_TYPE=TorchSampler``
before TensorRT-LLM 1.3; that sampler then rejects penalties and bad words, and does not know seeds of single requests.

Environment, beside TRITON_ENGINE and MODEL_DIR: `engines.llmapi.options.read_options`.
"""

from __future__ import annotations

import importlib
import inspect
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from engines.llm_adapter import LlmAdapter
from engines.llmapi.extensions import Extensions, retention_config
from engines.llmapi.llm_arguments import SamplerChoice, choose_sampler, llm_arguments, visible_gpus
from engines.llmapi.llm_engine import LlmEngine
from engines.llmapi.options import Options, read_options
from engines.llmapi.peft_adapters import read_adapters
from wire.additions import BEAMS, LORA, RETENTION, TOP_P_DECAY
from wire.base_adapter import parameters_of


class Adapter(LlmAdapter):
    """Runs an `LlmEngine` for Triton."""

    def __init__(self, args: dict[str, str], folder: Path) -> None:
        """Load the model.

        Raises:
            RuntimeError: tensorrt_llm is not importable, or a setting has no valid value.
        """
        options = read_options(os.environ, parameters_of(args), folder)
        super().__init__(args, max_active=options.max_batch_size)
        if (gpus := visible_gpus(options, args["model_instance_name"])) is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = gpus  # before torch is imported; each instance is a process of its own
        self._gathers_logits = self._is_true("gather_logits", "true")
        package, llm_args, torch = (_import(name) for name in ("tensorrt_llm", "tensorrt_llm.llmapi.llm_args", "torch"))
        sampler = choose_sampler(package.__version__, llm_args.TorchLlmArgs.model_fields, options.sampler_type)
        arguments = llm_arguments(options, folder, sampler, llm_args.KvCacheConfig)
        extensions = _extensions(package, options, sampler)
        self._guided = extensions.guided is not None
        self._takes = frozenset((BEAMS, RETENTION, TOP_P_DECAY))
        if options.lora_dir:
            adapters = read_adapters(options.lora_dir)
            # Its own module is another one in 1.0, 1.2 and main; this one has it in all of them.
            arguments["lora_config"] = llm_args.LoraConfig(**adapters.config_arguments())
            request = _import("tensorrt_llm.executor.request").LoRARequest
            extensions = replace(extensions, lora=lambda task: request(**adapters.request_arguments(task)))
            self._takes |= {LORA}
        self._engine: LlmEngine = LlmEngine(
            package.LLM(**arguments),
            package.SamplingParams,
            options,
            applies_penalties=sampler.applies_penalties,
            to_tensor=lambda array: torch.from_numpy(array.copy()),  # Triton's is read-only
            on_response=self._send,
            on_failure=self._fail,
            extensions=extensions,
        )


def _extensions(package: Any, options: Options, sampler: SamplerChoice) -> Extensions:
    """The features of this version and its sampler, but for LoRA."""
    retention = _import("tensorrt_llm.llmapi").KvCacheRetentionConfig
    backend = options.guided_decoding_backend
    return Extensions(
        guided=_import("tensorrt_llm.sampling_params").GuidedDecodingParams if backend else None,
        guided_backend=backend or "",
        metrics=True,
        to_array=lambda tensor: tensor.float().cpu().numpy(),
        min_p=sampler.is_wide,
        top_p_decay=sampler.is_wide,
        beams=options.max_beam_width,
        beam_log_probs=sampler.beam_log_probs,
        retention=lambda asked: retention_config(retention, asked),
        cache_salt="cache_salt" in inspect.signature(package.LLM.generate_async).parameters,  # 1.0 has none
        long_bad_words=hasattr(package.SamplingParams, "_get_bad_words"),
    )


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise RuntimeError(
            f"TRITON_ENGINE is 'llmapi', which needs the package tensorrt_llm, and importing {name} failed ({error}); "
            "use an image that carries it (tritonserver:<version>-trtllm-python-py3), or TRITON_ENGINE=reference"
        ) from error
