"""From a request of the wire contract to the keyword arguments of `tensorrt_llm.SamplingParams`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engines.llmapi.beams import beam_arguments, check_beams
from engines.llmapi.extensions import Extensions
from wire.request import RejectedError, reject_asked

if TYPE_CHECKING:
    from collections.abc import Callable

    from wire.request import Request, Sampling

_NEUTRAL = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
_NO_EXTENSIONS = Extensions()


def sampling_arguments(
    request: Request,
    *,
    max_tokens: int,
    applies_penalties: bool,
    to_tensor: Callable[[Any], Any],
    extensions: Extensions = _NO_EXTENSIONS,
) -> dict[str, Any]:
    """Keyword arguments of `SamplingParams`; what a request leaves at its default is left out.

    Args:
        request: checked already.
        max_tokens: clamped to what max_seq_len leaves.
        applies_penalties: whether the sampler applies penalties and bad words.
        to_tensor: makes a `torch.Tensor` of a NumPy array.
        extensions: what the engine has beyond the rest.

    Raises:
        RejectedError: something that the LLM API cannot do, by name.
    """
    sampling, beams = request.sampling, request.beams
    check_beams(request, extensions.beams, log_probs=extensions.beam_log_probs)
    _reject(sampling, applies_penalties=applies_penalties, long_bad_words=extensions.long_bad_words)
    arguments: dict[str, Any] = {
        "max_tokens": max_tokens,
        # Explicit, because the LLM API would ask a tokenizer otherwise, which is not loaded. -1 ends nothing, as does
        # ``ignore_eos``, which takes the stop words along in 1.3.
        "end_id": max(request.end_id, -1),
        "pad_id": max(request.end_id, 0),
        "detokenize": False,
        **(beam_arguments(beams, sampling.temperature) if beams.width > 1 else sampling_strategy(sampling)),
        **extensions.sampling_arguments(request),
    }
    arguments |= _penalties(sampling)
    if sampling.min_tokens and request.end_id >= 0:  # without an end id there is nothing to suppress
        arguments["min_tokens"] = sampling.min_tokens
    # The tokens of a stop word stay in the answer (wire contract 2.3). Longer words: `Generation` finds them.
    single = [word[0] for word in request.stop_words if len(word) == 1]
    if single:
        arguments |= {"stop_token_ids": single, "include_stop_str_in_output": True}
    if sampling.bad_words and not has_long_words(sampling):
        arguments["bad_token_ids"] = [word[0] for word in sampling.bad_words]
    if sampling.bias is not None:
        arguments["embedding_bias"] = to_tensor(sampling.bias)
    if request.log_probs or request.top_log_probs:
        # Of beams the sampler gives the chosen tokens' alone, which 0 stands for since 1.3.
        arguments["logprobs"] = 0 if beams.width > 1 else max(request.top_log_probs, 1)
    return arguments


def _penalties(sampling: Sampling) -> dict[str, float]:
    penalties = {
        "repetition_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
    }
    return {name: value for name, value in penalties.items() if value != _NEUTRAL[name]}


def has_long_words(sampling: Sampling) -> bool:
    """Whether there are bad words of more than one token."""
    return any(len(word) > 1 for word in sampling.bad_words)


def set_bad_words(params: Any, sampling: Sampling) -> None:
    """Give a `SamplingParams` bad words of several tokens.

    It takes texts (``bad``), which a tokenizer makes ids of only where it is asked for the end id as well; here are
    ids, which may not be those of any text. So they are put where it would, and asked back as the worker asks.

    Raises:
        RejectedError: they do not come back, and would be dropped in silence.
    """
    words = [list(word) for word in sampling.bad_words]
    params.bad, params._bad_word_ids = [], words  # noqa: SLF001 - see above
    if params._get_bad_words() != words:  # noqa: SLF001
        raise RejectedError("bad_words_list: this TensorRT-LLM does not support bad words of more than one token id")


def sampling_strategy(sampling: Sampling) -> dict[str, Any]:
    """Temperature, top-k, top-p and seed, with the meanings of wire contract 2.1, in the LLM API's terms.

    Neither top-k nor top-p is greedy, whatever the temperature; the LLM API would sample. Temperature 0 is greedy here:
    the C++ backend's full-vocabulary sampling at temperature 1 is a fault, not a feature.
    """
    top_k, top_p = sampling.top_k or 0, max(sampling.top_p or 0.0, 0.0)
    if sampling.temperature == 0 or top_k == 1 or not (top_k or top_p):
        return {"top_k": 1}
    strategy: dict[str, Any] = {"temperature": 1.0 if sampling.temperature is None else sampling.temperature}
    strategy["top_p"] = top_p or 1.0
    if top_k:
        strategy["top_k"] = top_k
    return {**strategy, "seed": sampling.seed}


def _reject(sampling: Sampling, *, applies_penalties: bool, long_bad_words: bool) -> None:
    if has_long_words(sampling) and not long_bad_words:
        raise RejectedError("bad_words_list: the LLM API does not support bad words of more than one token id")
    if applies_penalties:
        return
    asked = {**dict.fromkeys(_penalties(sampling), True), "bad_words_list": bool(sampling.bad_words)}
    reject_asked(asked, "the engine's sampler")
