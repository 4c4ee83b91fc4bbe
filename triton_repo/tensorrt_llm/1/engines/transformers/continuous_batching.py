"""An LLM for `LlmEngine`, over transformers' continuous batching (transformers 5.17)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import transformers

from engines.llmapi.llm_engine import LlmEngine
from engines.transformers.seeded_sampling import generation_config, install
from wire.request import reject_asked

if TYPE_CHECKING:
    from pathlib import Path

    from engines.llmapi.options import Options
    from wire.request import Request

_LONGEST_STEP = 512  # prompt tokens in one step, so that a long prompt does not stall the others


@dataclass(frozen=True)
class SamplingParams:
    """The part of TensorRT-LLM's class of this name that the engine honours; `TransformersEngine` rejects the rest.

    Attributes:
        max_tokens: tokens at most.
        end_id: ends the answer; negative disables it.
        temperature: 0 to any.
        top_k: None is all.
        top_p: 1 is all.
        seed: of the draws.
        stop_token_ids: further ids that end the answer.
        logprobs: 1 where the log-probs of the chosen tokens are wanted.
    """

    max_tokens: int
    end_id: int = -1
    pad_id: int = 0
    detokenize: bool = False
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int = 0
    stop_token_ids: list[int] = field(default_factory=list)
    include_stop_str_in_output: bool = False
    logprobs: int = 0


class TransformersEngine(LlmEngine):
    """An `LlmEngine` that rejects what transformers' continuous batching cannot do."""

    def submit(self, request: Request) -> None:
        """Start a request; see `LlmEngine.submit`."""
        asked = {
            "min_tokens": request.sampling.min_tokens > 0 and request.end_id >= 0,
            "embedding_bias": request.sampling.bias is not None,
            "cache_salt": bool(request.cache_salt),
            "num_top_log_probs": request.top_log_probs > 0,
            "return_context_logits": request.context_logits,
            "return_generation_logits": request.generation_logits,
        }
        reject_asked(asked, "the engine")
        super().submit(request)


@dataclass(frozen=True)
class _Completion:
    token_ids: list[int]
    logprobs: list[float]
    finish_reason: str | None


class _Result:
    """One request in flight: an asynchronous iterator over its growing output."""

    def __init__(self, manager: Any, request_id: str, ends: frozenset[int]) -> None:
        self.finished = False
        self.outputs: list[_Completion] = []
        self._manager, self._id, self._ends = manager, request_id, ends
        self._news: asyncio.Queue[Any] = asyncio.Queue()
        manager.register_result_handler(request_id, self._news.put_nowait)

    def __aiter__(self) -> _Result:
        return self

    async def __anext__(self) -> _Result:
        if self.finished:
            raise StopAsyncIteration
        output = await self._news.get()
        while not self._news.empty():  # each has all that those before it had
            output = self._news.get_nowait()
        if output.error is not None:
            self.finished = True
            raise RuntimeError(output.error)
        self.finished = output.is_finished()
        reason = None
        if self.finished:
            reason = "stop" if output.generated_tokens[-1:] and output.generated_tokens[-1] in self._ends else "length"
        self.outputs = [_Completion(output.generated_tokens, output.logprobs, reason)]
        return self

    def abort(self) -> None:
        """End it; nothing more will come."""
        if not self.finished:
            self.finished = True
            self._manager.cancel_request(self._id)
        router = self._manager.output_router
        with router._lock:  # noqa: SLF001 - a handler leaves by itself only when its request is finished
            router.result_handlers.pop(self._id, None)


class TransformersLlm:
    """A causal language model on CUDA, whose requests are batched step by step."""

    def __init__(self, folder: Path, options: Options, *, attention: str) -> None:
        """Load the model and capture its CUDA graphs.

        Args:
            folder: the model, in Hugging Face style.
            options: limits; ``kv_cache_fraction`` is of the GPU memory that the weights leave free.
            attention: ``sdpa``, ``eager`` or a flash attention implementation that is installed.

        Raises:
            RuntimeError: there is no CUDA device.
        """
        if not torch.cuda.is_available():
            raise RuntimeError("TRITON_ENGINE is 'transformers', which needs a CUDA device, and torch sees none")
        self._model = transformers.AutoModelForCausalLM.from_pretrained(
            str(folder), dtype=options.dtype, attn_implementation=f"paged|{attention}", local_files_only=True
        ).to("cuda")
        self._vocab_size = int(self._model.config.get_text_config().vocab_size)
        self._count = 0
        self._manager = self._model.init_continuous_batching(
            generation_config=generation_config(),
            continuous_batching_config=transformers.ContinuousBatchingConfig(
                use_cuda_graph=True,
                per_request_processors=True,
                return_logprobs=True,
                allow_block_sharing=options.kv_cache_reuse,
                max_memory_percent=options.kv_cache_fraction,
                max_requests_per_batch=options.max_batch_size,
                max_batch_tokens=max(_LONGEST_STEP, options.max_batch_size),
            ),
        )
        install(self._manager)
        self._manager.warmup()
        self._manager.start()

    def generate_async(self, inputs: list[int], sampling_params: SamplingParams, *, streaming: bool) -> _Result:
        """Start a request; call it in the event loop that reads the result.

        Raises:
            RuntimeError: the engine has stopped after an error of its own.
        """
        self._count += 1
        request_id, asked = f"r{self._count}", sampling_params
        ends = [token for token in (asked.end_id, *asked.stop_token_ids) if token >= 0]
        result = _Result(self._manager, request_id, frozenset(ends))
        taken = self._manager.add_request(
            inputs,
            request_id=request_id,
            max_new_tokens=asked.max_tokens,
            streaming=streaming,
            eos_token_id=ends or -1,
            temperature=float(asked.temperature),
            top_k=min(asked.top_k or self._vocab_size, self._vocab_size),
            top_p=float(asked.top_p),
            seed=asked.seed,
        )
        if taken is None:
            result.abort()
            raise RuntimeError("the engine has stopped")
        return result

    def shutdown(self) -> None:
        """Stop; what is in flight fails."""
        self._manager.stop(block=True, timeout=10, hard_stop=True)
