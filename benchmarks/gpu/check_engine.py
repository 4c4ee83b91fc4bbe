"""The transformers engine without Triton, against plain transformers: tokens, log-probs, seeds, stops, cancel.

    python benchmarks/gpu/check_engine.py MODEL_FOLDER [ATTENTION]

Needs a CUDA device, torch and transformers. Prints what it saw and fails where something is not as it must be.
"""

from __future__ import annotations

import json
import queue
import sys
import time
from pathlib import Path
from typing import Any

import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "triton_repo" / "tensorrt_llm" / "1"))

from engines.llmapi.options import read_options
from engines.transformers.continuous_batching import SamplingParams, TransformersEngine, TransformersLlm
from wire.request import Request, Sampling
from wire.response import Response

_DEADLINE_S = 120
_TOLERANCE = 0.1  # bf16: two ways of batching differ in the last bits of the logits


class Bench:
    """An engine and its answers."""

    def __init__(self, folder: Path, attention: str) -> None:
        environment = {"LLM_KV_CACHE_FREE_GPU_MEM_FRACTION": "0.2", "ENGINE_MAX_BATCH_SIZE": "64"}
        options = read_options(environment, {}, folder)
        began = time.perf_counter()
        llm = TransformersLlm(folder, options, attention=attention)
        print(f"loaded in {time.perf_counter() - began:.1f} s, {torch.cuda.memory_reserved() >> 20} MiB reserved")
        self.answers: dict[Request, list[Response]] = {}
        self._ended: queue.Queue[Request] = queue.Queue()
        self.engine = TransformersEngine(
            llm, SamplingParams, options, applies_penalties=False, to_tensor=lambda array: array,
            on_response=self._take, on_failure=self._fail,
        )  # fmt: skip

    def ask(self, prompt: list[int], limit: int, sampling: dict[str, Any] | None = None, **fields: Any) -> Request:
        """Submit a streaming request, greedy unless told otherwise."""
        chosen = Sampling(**(sampling or {"top_k": 1}))
        request = Request(prompt=prompt, max_tokens=limit, sampling=chosen, streaming=True, **{"id": "", **fields})
        self.engine.submit(request)
        return request

    def wait(self, *requests: Request) -> list[list[int]]:
        """Wait for the end of all requests; return the ids of each."""
        left = set(requests)
        while left:
            left.discard(self._ended.get(timeout=_DEADLINE_S))
        return [self.ids(request) for request in requests]

    def ids(self, request: Request) -> list[int]:
        """The ids so far."""
        return [index for response in self.answers.get(request, []) for index in response.ids]

    def finish(self, request: Request) -> str | None:
        """The reason of the end."""
        return self.answers[request][-1].finish

    def _take(self, response: Response) -> None:
        self.answers.setdefault(response.request, []).append(response)
        if response.final:
            self._ended.put(response.request)

    def _fail(self, request: Request, message: str) -> None:
        print("FAILED", message)
        self._ended.put(request)


def prompts() -> list[list[int]]:
    """Prompts of 5, 40, 300 and 700 ids."""
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(3, 40000, (length,), generator=generator).tolist() for length in (5, 40, 300, 700)]


def check_tokens(bench: Bench, folder: Path) -> None:
    """Check that greedy tokens are the most probable ones by plain transformers, with its log-probs."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto", attn_implementation="sdpa").to(
        "cuda"
    )
    for prompt in prompts():
        request = bench.ask(prompt, 24, log_probs=True)
        ids = bench.wait(request)[0]
        with torch.no_grad():
            logits = model(torch.tensor([prompt + ids], device="cuda")).logits[0, len(prompt) - 1 : -1].float()
        expected = logits.log_softmax(-1)
        given = bench.answers[request][-1].log_probs
        worst = max(
            abs(expected[place, token].item() - value)
            for place, (token, value) in enumerate(zip(ids, given, strict=True))
        )
        behind = max((expected[place].max() - expected[place, token]).item() for place, token in enumerate(ids))
        print(f"prompt of {len(prompt)}: log-probs of {len(ids)} tokens differ by at most {worst:.4f},")
        print(f"  and no token is more than {behind:.4f} behind the best")
        assert worst < _TOLERANCE
        assert behind < _TOLERANCE


def check_seeds(bench: Bench, *, exact: bool) -> None:
    """Check that a seed draws the same tokens in any batch, and that other seeds draw by the distribution.

    Args:
        bench: the engine and its answers.
        exact: whether the weights are float32. Those of fewer bits give other last bits of the logits in other company,
            and where many tokens are about as probable, as with random weights, another draw.
    """
    prompt, sampling = prompts()[0], {"temperature": 0.8, "top_k": 40, "top_p": 0.95}
    same, again, other = (bench.ask(prompt, 20, {**sampling, "seed": seed}) for seed in (7, 7, 8))
    first, second, third = bench.wait(same, again, other)
    alone = bench.wait(bench.ask(prompt, 20, {**sampling, "seed": 7}))[0]
    print(f"seeds: same {first == second == alone}, another one differs {first != third}")
    assert first == second == alone or not exact
    assert first != third
    draws: list[Request] = []
    tokens: list[list[int]] = []
    for start in range(0, 4096, 256):
        some = [
            bench.ask(prompt, 1, {"temperature": 1.0, "top_p": 1.0, "seed": seed}, log_probs=True)
            for seed in range(start, start + 256)
        ]
        draws += some
        tokens += bench.wait(*some)
    counts: dict[int, int] = {}
    probability: dict[int, float] = {}
    for request, ids in zip(draws, tokens, strict=True):
        counts[ids[0]] = counts.get(ids[0], 0) + 1
        probability[ids[0]] = 2.718281828 ** bench.answers[request][-1].log_probs[0]
    for token in sorted(counts, key=lambda each: -probability[each])[:5]:
        share = counts[token] / len(draws)
        error = (probability[token] * (1 - probability[token]) / len(draws)) ** 0.5
        print(f"  token {token}: probability {probability[token]:.4f}, drawn {share:.4f} of the time")
        assert abs(share - probability[token]) < 5 * error + 1e-3


def check_ends(bench: Bench) -> None:
    """Check that a stop word ends an answer and stays in it, and that a cancel frees the slot."""
    prompt = prompts()[1]
    ids = bench.wait(bench.ask(prompt, 5))[0]
    stopped = bench.ask(prompt, 50, stop_words=((ids[2],),))
    assert bench.wait(stopped)[0] == ids[: ids.index(ids[2]) + 1]
    assert bench.finish(stopped) == "stop"
    long = bench.ask(prompt, 4000, id="long")
    while not bench.ids(long):
        time.sleep(0.001)
    bench.engine.cancel("long")
    count = len(bench.wait(long)[0])
    print(f"cancelled after {count} tokens: {bench.finish(long)}, {bench.engine.active} left")
    assert bench.finish(long) == "cancelled"
    assert bench.engine.active == 0


def main() -> None:
    """Run all checks."""
    folder, attention = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "sdpa"
    bench = Bench(folder, attention)
    check_tokens(bench, folder)
    config = json.loads((folder / "config.json").read_text())
    check_seeds(bench, exact="float32" in (config.get("dtype"), config.get("torch_dtype")))
    check_ends(bench)
    for count in (1, 8, 64):
        began = time.perf_counter()
        tokens = sum(map(len, bench.wait(*(bench.ask(prompts()[1], 128) for _ in range(count)))))
        print(f"{count} requests at once: {tokens / (time.perf_counter() - began):.0f} tokens/s")
    bench.engine.close()
    print("all as it must be")


if __name__ == "__main__":
    main()
