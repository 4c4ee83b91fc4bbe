"""Sampling of each request by its own parameters and seed, in operations that a CUDA graph can hold."""

from __future__ import annotations

from typing import Any

import torch
from transformers.generation.configuration_utils import GenerationConfig
from transformers.generation.continuous_batching import cb_logits_processors as processors

_WORD = 0xFFFFFFFF
_GOLDEN = 0x9E3779B97F4A7C15
_NOISE_BITS = 23  # as many as keep the noise finite in float32


def generation_config() -> GenerationConfig:
    """A configuration that makes transformers set up temperature, top-k and top-p; requests bring their own values."""
    return GenerationConfig(do_sample=True, temperature=0.5, top_k=50, top_p=0.5, eos_token_id=-1, max_new_tokens=1)


class Raw:
    """Keeps the logits as the model gave them: log-probs are of these."""

    supports_continuous_batching = True

    def __init__(self) -> None:
        """Start without."""
        self.logits: torch.Tensor | None = None

    def __call__(self, _: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Pass them on; FP32 [tokens, vocab]."""
        self.logits = scores
        return scores


class SeededNoise(processors.ContinuousBatchingLogitsProcessor):
    """Adds Gumbel noise, which makes the highest score a draw from the softmax.

    The noise is a hash of seed, position and token id, so that a request draws the same whatever it is batched with.
    """

    supported_kwargs: dict[str, type] = {"seed": int}  # noqa: RUF012 - as transformers declares it
    ignored_kwargs: tuple[str, ...] = ()

    def fill_defaults(self, int32_tensor: torch.Tensor) -> None:
        """Seeds of no request."""
        int32_tensor.zero_()

    def prepare_tensor_args(self, requests_with_new_token: list[Any]) -> torch.Tensor:
        """One key for each request: of its seed and of the position that it draws."""
        states = [request.state for request in requests_with_new_token]
        keys = [_key(state.logit_processor_kwargs.get("seed", 0), state.position_offset) for state in states]
        return torch.tensor(keys, dtype=torch.int32, device="cpu")

    def __call__(self, scores: torch.Tensor, tensor_arg: torch.Tensor) -> torch.Tensor:
        """Scores FP32 [tokens, vocab] with noise."""
        keys = (tensor_arg[: scores.size(0)].to(torch.int64) & _WORD).unsqueeze(-1)
        hashed = torch.arange(scores.size(1), device=scores.device, dtype=torch.int64) * 0x9E3779B1 + keys
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            hashed = hashed & _WORD
            hashed = (hashed ^ (hashed >> shift)) * factor
        hashed = hashed & _WORD
        hashed = (hashed ^ (hashed >> 16)) >> (32 - _NOISE_BITS)
        uniform = (hashed.to(torch.float32) + 0.5) / 2**_NOISE_BITS
        return scores - torch.log(-torch.log(uniform))


def _key(seed: int, position: int) -> int:
    """32 bits, signed, of both."""
    value = ((seed + 1) * _GOLDEN + position * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    value = ((value ^ (value >> 31)) * 0x94D049BB133111EB) & (2**64 - 1)
    key = (value ^ (value >> 29)) & _WORD
    return key - 2**32 if key >= 2**31 else key


def install(manager: Any) -> None:
    """Make a continuous batching manager that has not started yet sample this way."""
    raw, found = Raw(), manager.logit_processor
    found.logits_processor.insert(0, raw)
    found.logits_processor.append(SeededNoise())
    found.tensors_required += 1
    found.supported_keys["seed"] = int
    manager.batch_processor = manager._create_batch_processor()  # noqa: SLF001 - what its own warmup() does

    def sample(scores: torch.Tensor, output_ids: torch.Tensor) -> None:
        tokens = scores[0].argmax(dim=-1)
        output_ids[0, : tokens.size(0)].copy_(tokens)
        assert raw.logits is not None  # noqa: S101 - it was called in the same pass
        log_probs = raw.logits.log_softmax(dim=-1).gather(1, tokens.unsqueeze(-1)).squeeze(-1)
        output_ids[1, : tokens.size(0)].copy_(log_probs.view(dtype=torch.int32))

    manager.batch_processor.model_runner._sample = sample  # noqa: SLF001 - it has no other place for the draw
