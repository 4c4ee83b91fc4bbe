"""Versions of the stock LLM API model: tensors that each declares, and what the engine behind it heeds.

The facts are those of wire contract 8.2 to 8.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

PREFIX = "sampling_param_"

_PERF_OUTPUTS = {
    **dict.fromkeys(("kv_cache_reused_block", "kv_cache_missed_block", "kv_cache_alloc_new_blocks",
                     "kv_cache_alloc_total_blocks"), "INT32"),
    "kv_cache_hit_rate": "FP32",
    **dict.fromkeys(("arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns"),
                    "INT64"),
    "acceptance_rate": "FP32",
    **dict.fromkeys(("total_accepted_draft_tokens", "total_draft_tokens"), "INT32"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Version:
    """What sets a version apart from the others.

    Attributes:
        name: as in ``1.3``.
        search_input: the input for the number of beams or candidates; it changes nothing in one answer.
        bos: whether the prompt's text is encoded with the tokenizer's special tokens added.
        streams: whether ``streaming`` reaches the engine. Where it does not, it arrives in the place of the adapter.
        cancels: whether a cancelled call, or the input ``stop``, reaches the engine; performance metrics came with it.
        checks_ranges: whether a temperature of 0 means greedy, and parameters beside ``top_k: 1`` change nothing.
        checks_lengths: whether lengths are checked, and the limit is cut to what is left of the context.
        seeds: whether the sampler heeds ``seed``.
        penalties: whether the sampler heeds the frequency and the presence penalty.
        adapters: whether there are inputs for an adapter, and one for images.
    """

    name: str
    search_input: str = "best_of"
    bos: bool = True
    streams: bool = False
    cancels: bool = True
    checks_ranges: bool = True
    checks_lengths: bool = True
    seeds: bool = False
    penalties: bool = False
    adapters: bool = False

    def inputs(self) -> Iterator[tuple[str, str, int]]:
        """Name, type and dimension of each input; all but the first are optional."""
        yield "text_input", "STRING", -1
        yield "streaming", "BOOL", 1
        for kind, names in {
            "INT32": (self.search_input, "top_k", "max_tokens"),
            "FP32": ("temperature", "top_p", "frequency_penalty", "presence_penalty"),
            "UINT64": ("seed",),
            "BOOL": ("exclude_input_from_output", *(("return_perf_metrics",) if self.cancels else ())),
        }.items():
            yield from ((PREFIX + name, kind, 1) for name in names)
        yield PREFIX + "stop", "STRING", -1
        for name in ("finish_reason", "stop_reason", "cumulative_logprob"):
            yield f"return_{name}", "BOOL", 1
        if self.cancels:
            yield "stop", "BOOL", 1
        if self.adapters:
            yield "lora_id", "UINT64", 1
            yield from ((name, "STRING", 1) for name in ("lora_name", "lora_path", "lora_ckpt_source"))
            yield "image_url", "STRING", -1

    def outputs(self) -> Iterator[tuple[str, str]]:
        """Name and declared type of each output; all are sent as strings."""
        yield from ((name, "STRING") for name in ("text_output", "finish_reason", "stop_reason"))
        yield "cumulative_logprob", "FP32"
        if self.cancels:
            yield from _PERF_OUTPUTS.items()


VERSIONS = {
    version.name: version
    for version in (
        Version("0.19", search_input="beam_width", bos=False, cancels=False, checks_ranges=False, checks_lengths=False),
        Version("1.0", checks_ranges=False),
        Version("1.2"),
        Version("1.3", streams=True, seeds=True, penalties=True, adapters=True),
    )
}
