"""Beam searches: one answer with all beams, at the end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from engines.llmapi.extensions import performance
from engines.llmapi.generation import EngineError, chosen_log_prob, ended_ids, finish_reason
from wire.request import RejectedError, reject_asked
from wire.response import Beam, Perf, Response

if TYPE_CHECKING:
    from wire.request import Beams, Request


def check_beams(request: Request, width: int, *, log_probs: bool) -> None:
    """Check a request against the beam search of the engine.

    Args:
        request: any request.
        width: beams of the engine. TensorRT-LLM's PyTorch backend computes requests of one width together, and ends
            with an error where a request has another (pull requests 8433 and 16620).
        log_probs: whether the sampler gives those of beams.

    Raises:
        RejectedError: another width, or something that does not go with beams.
    """
    wanted = request.beams.width
    if wanted > width:
        raise RejectedError(f"Requested beam width {wanted} is larger than the maximum beam width {width}")
    if wanted < width:
        raise RejectedError(
            f"Requested beam width {wanted} is not {width}: the engine searches that many beams for every request"
        )
    if width == 1:
        return
    asked = {
        "streaming": request.streaming,
        "return_log_probs": request.log_probs and not log_probs,
        "num_top_log_probs": request.top_log_probs > 0,
        "num_prompt_log_probs": request.prompt_log_probs is not None,
        "return_context_logits": request.context_logits,
        "return_generation_logits": request.generation_logits,
        "guided_decoding_guide": request.guide is not None,
        "runtime_top_p_decay": request.sampling.top_p_decay < 1,
        "stop_words_list: a word of more than one token": any(len(word) > 1 for word in request.stop_words),
    }
    reject_asked(asked, "the engine's beam search")


def beam_arguments(beams: Beams, temperature: float | None) -> dict[str, Any]:
    """Keyword arguments of `SamplingParams`; beams are compared, not drawn, so top-k, top-p and seed mean nothing."""
    optional = {
        "temperature": temperature or None,
        "length_penalty": beams.length_penalty,
        "beam_search_diversity_rate": beams.diversity_rate,
        "early_stopping": beams.early_stopping,
    }
    given = {name: value for name, value in optional.items() if value is not None}
    return {"use_beam_search": True, "best_of": beams.width, "n": beams.width, **given}


class BeamSearch:
    """The one answer to a beam search; the counterpart of `Generation`.

    Attributes:
        request: the request.
        matched: False: stop words are the engine's own here.
    """

    matched = False

    def __init__(self, request: Request) -> None:
        self.request = request

    def step(self, step: Any) -> Response | None:
        """Take the engine's result after a step; only the last one makes an answer.

        Raises:
            EngineError: beams or log-probs are missing, or the end has no known reason.
        """
        if not step.finished:
            return None
        request, outputs = self.request, step.outputs
        if len(outputs) != request.beams.width:
            raise EngineError(f"beam_width is {request.beams.width}, the engine gave {len(outputs)} beams")
        return Response(
            request,
            beams=tuple(self._beam(output) for output in outputs),
            final=True,
            finish=finish_reason(outputs[0].finish_reason),
            perf=self._perf(outputs[0]) if request.perf_metrics else None,
        )

    def cancel(self) -> Response:
        """The last response of a cancelled request."""
        return Response(self.request, final=True, finish="cancelled")

    def _beam(self, output: Any) -> Beam:
        request = self.request
        ids = ended_ids(request, output, finish_reason(output.finish_reason))
        shown = (list(request.prompt) if request.echo else []) + ids
        if not request.log_probs:
            return Beam(shown, [])
        given = output.logprobs or []
        if len(given) < len(ids):
            raise EngineError(f"output_log_probs: the engine gave {len(given)} values for more tokens")
        return Beam(shown, [chosen_log_prob(entry, token) for entry, token in zip(given, ids, strict=False)])

    def _perf(self, output: Any) -> Perf:
        own = Perf(self.request.arrival_ns, last_token_ns=time.monotonic_ns())
        return performance(own, getattr(output, "request_perf_metrics", None))
