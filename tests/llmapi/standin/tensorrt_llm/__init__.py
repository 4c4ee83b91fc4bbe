"""A stand-in for the package tensorrt_llm: its recorded signatures, answered by the reference engine.

Environment:
    STANDIN_JOURNAL: file that gets a line of JSON for each construction, request, abort and shutdown.
    STANDIN_SIGNATURES: the version of the table whose signatures it has.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import recorded
import torch

from cpu_double.guides import load_guided_decoder
from cpu_double.llama import Llama
from cpu_double.reference_engine import Limits, ReferenceEngine
from tensorrt_llm.beam_search import Found, search
from wire.request import Guide, Request, Sampling
from wire.response import Perf, Response

STEP_S = 0.004  # about a GPU's step: long answers last long enough to be cancelled
__version__ = recorded.RELEASES[recorded.VERSION]

recorded.NAMES["torch"] = torch


def journal(event: str, **details: Any) -> None:
    """Write a line."""
    with Path(os.environ.get("STANDIN_JOURNAL", os.devnull)).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"event": event, **details}, default=repr) + "\n")


_Fields = make_dataclass(
    "_Fields",
    [(n, Any, field(default=recorded.default(entry))) for n, entry in recorded.parameters("SamplingParams").items()],
    kw_only=True,
)


class SamplingParams(_Fields):  # type: ignore[misc, valid-type]
    """Sampling parameters, by their recorded names and types."""

    def __init__(self, **arguments: Any) -> None:
        recorded.check_call("SamplingParams", arguments)
        super().__init__(**arguments)
        self.given = arguments
        self._bad_word_ids: list[list[int]] | None = None

    def _get_bad_words(self) -> list[list[int]]:
        """What the worker asks for."""
        words = [[token] for token in self.bad_token_ids or ()]
        if self.bad is None:
            return words
        if self._bad_word_ids is None:
            raise RuntimeError(f"SamplingParams.bad ({self.bad}) is not processed by tokenizer")
        return words + self._bad_word_ids


@dataclass
class Logprob:
    """Log-prob of a token and its place."""

    logprob: float
    rank: int | None = None


@dataclass
class CompletionOutput:
    """Everything generated so far."""

    index: int = 0
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    finish_reason: str | None = None
    generation_logits: Any = None
    request_perf_metrics: Any = None


class RequestOutput:
    """An asynchronous iterator over the steps of a request."""

    def __init__(self, llm: LLM, number: int, params: SamplingParams) -> None:
        self._llm, self._number, self._params = llm, number, params
        self._loop, self._queue = asyncio.get_running_loop(), asyncio.Queue[Response]()
        self.outputs = [CompletionOutput()]
        self.finished = False
        self.context_logits: Any = None
        self.beams = False

    def __aiter__(self) -> RequestOutput:
        return self

    async def __anext__(self) -> RequestOutput:
        if self.finished:
            raise StopAsyncIteration
        response, output = await self._queue.get(), self.outputs[0]
        if self.beams:
            self.finished = True
            return self
        output.token_ids.extend(response.ids)
        output.logprobs = self._llm.log_probs(response, output)
        self.finished, output.finish_reason = response.final, response.finish
        if response.error:
            raise RuntimeError(response.error)
        if response.prompt is not None:
            self.context_logits = torch.from_numpy(response.prompt.logits)
        if response.logits is not None:
            output.generation_logits = torch.from_numpy(response.logits[: len(response.ids)])
        if response.perf is not None:
            output.request_perf_metrics = _perf_metrics(response.perf)
        if response.finish == "stop" and not self._params.include_stop_str_in_output:
            stops = [[stop] for stop in self._params.stop_token_ids or ()]
            output.token_ids = output.token_ids[: -1 if output.token_ids[-1:] in stops else None]
        return self

    def end(self, beams: list[Found]) -> RequestOutput:
        """The answer of a beam search: one step, which is the last."""
        given = bool(self._params.given.get("logprobs") is not None)
        self.outputs = [
            CompletionOutput(
                index,
                list(beam.ids),
                [{token: Logprob(value)} for token, value in zip(beam.ids, beam.log_probs, strict=False)]
                if given
                else [],
                "stop" if beam.ended else "length",
            )
            for index, beam in enumerate(beams)
        ]
        self._queue.put_nowait(Response(Request("", [], 1)))
        self.beams = True
        return self

    def put(self, response: Response) -> None:
        """Called in the engine's thread."""
        self._loop.call_soon_threadsafe(self._queue.put_nowait, response)

    def abort(self) -> None:
        """End the request."""
        journal("abort", request=self._number, tokens=len(self.outputs[0].token_ids))
        self._llm.engine.cancel(str(self._number))


class LLM:
    """The reference engine behind the LLM API."""

    def __init__(self, **arguments: Any) -> None:
        known = recorded.parameters("LLM.__init__") | recorded.parameters("TorchLlmArgs")
        for name, value in arguments.items():
            if name not in known:
                raise ValueError(f"LLM got invalid argument: {name}")
            if not recorded.fits(value, known[name]["type"]):
                raise ValueError(f"{name} is {value!r}, not {known[name]['type']}")
        cache = arguments["kv_cache_config"].arguments
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        journal("LLM", **{**arguments, "kv_cache_config": cache}, visible=visible)
        self._width = arguments.get("max_beam_width", 1)
        trtllm = arguments.get("sampler_type") == "TRTLLMSampler" or arguments.get("enable_trtllm_sampler")
        self._top = not trtllm
        limits = Limits(arguments["max_seq_len"], arguments["max_batch_size"], kv_reuse_blocks=64)
        folder, guided = Path(arguments["model"]), None
        model = self._model = Llama(folder)
        if arguments.get("guided_decoding_backend"):
            if arguments["skip_tokenizer_init"]:
                raise ValueError("guided decoding needs the tokenizer")
            guided = load_guided_decoder(folder, model.config.vocab)
        self.engine = ReferenceEngine(model, limits, normalize_log_probs=False, guided=guided)
        self._count = 0
        self._wake, self._stopping = threading.Condition(), False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def generate_async(self, *, cache_salt: str | None = None, **arguments: Any) -> RequestOutput:
        """Start a request."""
        arguments |= {} if cache_salt is None else {"cache_salt": cache_salt}
        recorded.check_call("LLM.generate_async", arguments)
        params: SamplingParams = arguments["sampling_params"]
        named = {"lora_request": "lora", "kv_cache_retention_config": "retention", "cache_salt": "salt"}
        more = {named[name]: repr(value) for name, value in arguments.items() if name in named}
        journal("generate_async", streaming=arguments["streaming"], sampling=params.given, **more)
        self._count += 1
        result = RequestOutput(self, self._count, params)
        width = params.best_of if params.use_beam_search else 1
        if width != self._width:
            raise ValueError(f"Request beam width {width} is not equal to max_beam_width {self._width}.")
        if width > 1:
            return result.end(self._search(arguments["inputs"], params))
        self.engine.submit(_to_request(str(self._count), arguments["inputs"], params, arguments["streaming"], result))
        with self._wake:
            self._wake.notify()
        return result

    def _search(self, prompt: list[int], params: SamplingParams) -> list[Found]:
        return search(
            self._model,
            prompt,
            width=params.best_of,
            tokens=params.max_tokens,
            end_id=params.end_id,
            length_penalty=params.length_penalty or 0.0,
        )

    def log_probs(self, response: Response, output: CompletionOutput) -> list[Any]:
        """The growing list: alternatives from TorchSampler, else the chosen token alone."""
        if not response.request.log_probs:
            return []
        if not self._top:
            pairs = zip(output.token_ids, response.log_probs, strict=True)
            return [{token: Logprob(value, 1)} for token, value in pairs]
        new = [
            {token: Logprob(value, rank + 1) for rank, (token, value) in enumerate(alternatives)}
            for alternatives in response.top_log_probs
        ]
        return output.logprobs + new

    def shutdown(self) -> None:
        """Stop."""
        journal("shutdown")
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._stopping or self.engine.busy)
                if self._stopping:
                    return
            time.sleep(STEP_S)
            for response in self.engine.step():
                put: Callable[[Response], None] = response.request.handle.put  # type: ignore[attr-defined]
                put(response)


def _to_request(number: str, prompt: list[int], params: Any, streaming: bool, result: RequestOutput) -> Request:
    greedy = (params.temperature is None and params.top_p is None and params.top_k is None) or params.top_k == 1
    if greedy or params.top_p == 0 or params.temperature == 0:
        strategy: dict[str, Any] = {"top_k": 1}
    else:
        top_p = 1.0 if params.top_p is None else params.top_p
        strategy = {"temperature": params.temperature, "top_k": params.top_k, "top_p": top_p, "seed": params.seed or 0}
    optional = {
        "repetition_penalty": params.repetition_penalty, "presence_penalty": params.presence_penalty,
        "frequency_penalty": params.frequency_penalty, "min_tokens": params.min_tokens, "min_p": params.min_p,
        "top_p_decay": params.top_p_decay, "top_p_min": params.top_p_min, "top_p_reset_id": params.top_p_reset_ids,
    }  # fmt: skip
    stops = params.stop_token_ids or ()
    if params.ignore_eos and recorded.VERSION == "main":
        stops = ()  # as there
    return Request(
        id=number,
        prompt=prompt,
        max_tokens=params.max_tokens,
        end_id=-1 if params.ignore_eos else params.end_id,
        stop_words=tuple((token,) for token in stops),
        sampling=Sampling(
            **strategy,
            **{name: value for name, value in optional.items() if value is not None},
            bias=None if params.embedding_bias is None else params.embedding_bias.array,
            bad_words=tuple(tuple(word) for word in params._get_bad_words()),
        ),
        streaming=streaming,
        guide=_guide(params.guided_decoding),
        context_logits=params.return_context_logits,
        generation_logits=params.return_generation_logits,
        perf_metrics=params.return_perf_metrics,
        log_probs=bool(params.logprobs),
        top_log_probs=params.logprobs or 0,
        handle=result,
    )


def _guide(params: Any) -> Guide | None:
    if params is None:
        return None
    ((name, value),) = params.arguments.items()
    kinds = {"json_object": "json", "json": "json_schema", "grammar": "ebnf_grammar"}
    return Guide(kinds.get(name, name), "" if name == "json_object" else value)


def _perf_metrics(perf: Perf) -> Any:
    """As the bindings of C++ give it, by the recorded names."""
    total, reused = perf.blocks or (0, 0)
    values: dict[str, dict[str, Any]] = {
        "TimingMetrics": {"arrival_time": _time(perf.arrival_ns),
                          "first_scheduled_time": _time(perf.first_scheduled_ns),
                          "first_token_time": _time(perf.first_token_ns), "last_token_time": _time(perf.last_token_ns)},
        "KvCacheMetrics": {"num_total_allocated_blocks": total, "num_new_allocated_blocks": total - reused,
                           "num_reused_blocks": reused, "num_missed_blocks": total - reused,
                           "kv_cache_hit_rate": reused / max(total, 1)},
        "SpeculativeDecodingMetrics": {"acceptance_rate": 0.0, "total_accepted_draft_tokens": 0,
                                       "total_draft_tokens": 0},
    }  # fmt: skip
    parts = {
        name: SimpleNamespace(**{n: given[n] for n in recorded.parameters(name, recorded.BINDINGS)})
        for name, given in values.items()
    }
    return SimpleNamespace(
        **dict(zip(recorded.parameters("RequestPerfMetrics", recorded.BINDINGS), parts.values(), strict=True))
    )


def _time(nanoseconds: int) -> timedelta:
    return timedelta(microseconds=nanoseconds / 1000)
