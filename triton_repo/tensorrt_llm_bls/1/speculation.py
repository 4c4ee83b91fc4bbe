"""Speculative decoding with a draft model: it guesses some tokens, the target checks them in one step.

The target takes a guess where it draws the same token, so that an answer is its own. With ``use_draft_logits`` it
compares what both models think of the guess: a greedy answer is still its own, a sampled one keeps its probability.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tensors = dict[str, NDArray[Any]]

# Inputs that drafts cannot serve truly.
_REJECTED = {
    "num_return_sequences": "speculative decoding supports one sequence per request",
    "beam_width": "beams are not supported with speculative decoding",
    "return_context_logits": "context logits are not supported with speculative decoding",
    "return_generation_logits": "generation logits are not supported with speculative decoding",
    "guided_decoding_guide_type": "a guide would start again at each draft",
    "prompt_embedding_table": "the draft model has no prompt table",
    "num_prompt_log_probs": "prompt log-probs are not supported with speculative decoding",
}
_ONES = ("num_return_sequences", "beam_width")  # 1 is their neutral value
_OWN = ("num_draft_tokens", "use_draft_logits")
_TARGET_ONLY = (
    *("lora_task_id", "lora_weights", "lora_config", "return_perf_metrics", "return_log_probs", "num_top_log_probs"),
    *("return_num_input_tokens", "return_num_output_tokens", "return_finish_reason"),
)
# How outputs of the rounds become those of one answer: joined along an axis, summed, or those of the first round.
_JOINED = {"output_log_probs": 2, "top_log_probs": 1, "top_log_probs_ids": 1}
_SUMMED = ("cum_log_probs", "total_draft_tokens", "total_accepted_draft_tokens")
_FIRST = (
    *("arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns", "num_input_tokens", "num_cached_tokens"),
    *("kv_cache_reused_blocks", "kv_cache_alloc_new_blocks", "kv_cache_alloc_total_blocks"),
)

Call = Callable[[Tensors], Tensors]
DraftCall = Callable[[Tensors], "Tensors | None"]


def draft_length(inputs: Tensors) -> int:
    """The number of tokens to guess at a time; 0 is no speculation."""
    return int(inputs["num_draft_tokens"].reshape(-1)[0]) if "num_draft_tokens" in inputs else 0


def refusal(inputs: Tensors) -> str | None:
    """The reason why a request with drafts cannot be served, with the name of the input; None when it can."""
    for name, reason in _REJECTED.items():
        value = inputs.get(name)
        if value is None or not value.size or value.reshape(-1)[0] in (0, False):
            continue
        if name in _ONES and int(value.reshape(-1)[0]) == 1:
            continue
        return f"{name} is not supported: {reason}"
    if inputs["input_ids"].shape[0] != 1:
        return "num_draft_tokens is not supported: speculative decoding takes one prompt per request"
    return None


@dataclass
class Speculation:
    """One request.

    Attributes:
        inputs: of the engine, with everything that was asked for.
        draft: calls the draft model's engine, for one response; None: it cannot go on, and the target does alone.
        target: calls the target's.
        drafts: tokens guessed at a time.
    """

    inputs: Tensors
    draft: DraftCall
    target: Call
    drafts: int
    _drafting: bool = True

    def answers(self) -> Iterator[Tensors]:
        """The target's answers, round by round; when not streaming, all in the last one.

        Each has the outputs of the engine: new ids, or all of them after the prompt where that is echoed.
        """
        prompt = self.inputs["input_ids"][0].reshape(-1)[: int(self.inputs["input_lengths"].reshape(-1)[0])]
        limit = int(self.inputs["request_output_len"].reshape(-1)[0])
        streaming = _flag(self.inputs, "streaming")
        ids: list[int] = []
        so_far: Tensors = {}
        finish = b""
        while not finish:
            new, answer, finish = self._round([*prompt.tolist(), *ids], limit - len(ids), len(ids))
            ids += new
            so_far = _merge(so_far, answer)
            if streaming and not finish:
                yield _respond(
                    {name: value for name, value in so_far.items() if name != "finish_reason"}, new, len(new)
                )
        echo = [] if streaming or _flag(self.inputs, "exclude_input_in_output") else prompt.tolist()
        if "finish_reason" in so_far:
            so_far["finish_reason"] = np.array([[finish]], np.object_)
        yield _respond(so_far, new if streaming else [*echo, *ids], len(new) if streaming else len(ids))

    def _round(self, tokens: list[int], room: int, done: int) -> tuple[list[int], Tensors, bytes]:
        """One guess and its check: the new tokens, the target's answer, and why the generation has ended, if it has."""
        common = self._continue(tokens, done)
        guessed, logits = self._guess(common, min(self.drafts, room - 1))
        count = len(guessed) + 1 if self._drafting else min(self.drafts + 1, room)
        asked = {**common, "request_output_len": _scalar(count)}
        if guessed:
            asked["draft_input_ids"] = np.array([guessed], np.int32)
        if logits is not None:
            asked["draft_logits"] = logits
        if done:  # the target has them from the first round
            asked = {name: value for name, value in asked.items() if name not in ("lora_weights", "lora_config")}
        answer = self.target(asked)
        new = answer["output_ids"].reshape(-1)[: int(answer["sequence_length"].reshape(-1)[0])].tolist()
        finish = bytes(answer["finish_reason"].reshape(-1)[0]) if "finish_reason" in answer else b""
        if finish and finish != b"length":
            return new, answer, finish
        if len(new) >= room:
            return new, answer, b"length"
        if finish:  # the target has filled its context where it gave less than it was asked for
            return new, answer, b"length" if len(new) <= len(guessed) else b""
        ended = len(new) < count and not _is_cut_short(new, guessed)
        return new, answer, b"stop" if ended or _ends_with_a_word(common, new) else b""

    def _guess(self, common: Tensors, count: int) -> tuple[list[int], NDArray[Any] | None]:
        """The draft's tokens, and [1, tokens, vocabulary] logits of them where the target shall have these."""
        if count < 1 or not self._drafting:
            return [], None
        asked = {name: value for name, value in common.items() if name not in _TARGET_ONLY}
        asked["request_output_len"] = _scalar(count)
        with_logits = _flag(self.inputs, "use_draft_logits")
        if with_logits:
            asked["return_generation_logits"] = np.array([[True]])
        answer = self.draft(asked)
        if answer is None:
            self._drafting = False
            return [], None
        ids: list[int] = answer["output_ids"].reshape(-1)[: int(answer["sequence_length"].reshape(-1)[0])].tolist()
        if not with_logits or not ids:
            return ids, None
        logits = answer["generation_logits"]
        return ids, logits.reshape(1, -1, logits.shape[-1])[:, : len(ids)]

    def _continue(self, tokens: list[int], done: int) -> Tensors:
        """The inputs of a call that goes on after the tokens."""
        inputs = {name: value for name, value in self.inputs.items() if name not in (*_OWN, *_REJECTED)}
        inputs["input_ids"] = np.array([tokens], np.int32)
        inputs["input_lengths"] = _scalar(len(tokens))
        inputs["streaming"] = np.array([[False]])
        inputs["exclude_input_in_output"] = np.array([[True]])
        if "min_tokens" in inputs:
            inputs["min_tokens"] = _scalar(max(0, int(inputs["min_tokens"].reshape(-1)[0]) - done))
        if done:  # else every round would draw with the same random numbers; the engine's own seed is 0
            seed = int(inputs["seed"].reshape(-1)[0]) if "seed" in inputs else 0
            inputs["seed"] = np.array([[(seed + done) % 2**64]], np.uint64)
        return inputs


def _is_cut_short(new: list[int], guessed: list[int]) -> bool:
    """Whether a target that gave fewer tokens than asked, and no finish reason, stopped at a guess that it rejected.

    Then it gave one token of its own after the guesses that it accepted. With less it has drawn its end id there, which
    it leaves out; with more it goes on after a rejected guess, and only an end makes it give too few.
    """
    pairs = zip(new, guessed, strict=False)
    accepted = next((place for place, (token, guess) in enumerate(pairs) if token != guess), len(new))
    return accepted < len(guessed) and len(new) == accepted + 1


def _ends_with_a_word(inputs: Tensors, new: list[int]) -> bool:
    """Whether the tokens, which follow those of the inputs, end with a stop word. Rows: ids, ends of words, -1."""
    if "stop_words_list" not in inputs or not new:
        return False
    ids, ends = inputs["stop_words_list"].reshape(2, -1).tolist()
    tokens, start = [*inputs["input_ids"][0].tolist(), *new], 0
    for end in ends:
        if start < end <= len(tokens) + start and tokens[start - end :] == ids[start:end]:
            return True
        start = max(start, end)
    return False


def _merge(before: Tensors, answer: Tensors) -> Tensors:
    """The outputs of all rounds so far."""
    merged = {**before, **answer}
    for name in before.keys() & answer.keys():
        if name in _JOINED:
            merged[name] = np.concatenate([before[name], answer[name]], axis=_JOINED[name])
        elif name in _SUMMED:
            merged[name] = before[name] + answer[name]
        elif name in _FIRST:
            merged[name] = before[name]
    for name in _SUMMED:
        if name in before:
            merged.setdefault(name, before[name])
    return merged


def _respond(so_far: Tensors, ids: list[int], new: int) -> Tensors:
    """The outputs with ``ids``, of which the last ``new`` are sent for the first time."""
    answer = {**so_far, "output_ids": np.array(ids, np.int32).reshape(1, 1, -1), "sequence_length": _scalar(len(ids))}
    if "num_output_tokens" in answer:
        answer["num_output_tokens"] = _scalar(len(ids))
    for name in ("top_log_probs", "top_log_probs_ids"):
        if name in answer:
            answer[name] = answer[name][:, answer[name].shape[1] - new :]
    total = answer.get("total_draft_tokens")
    if total is not None and total.any():
        rate = answer["total_accepted_draft_tokens"].astype(np.float32) / total
        answer["acceptance_rate"] = rate.astype(np.float32)
    return answer


def _scalar(value: int) -> NDArray[Any]:
    return np.array([[value]], np.int32)


def _flag(inputs: Tensors, name: str) -> bool:
    return bool(inputs[name].reshape(-1)[0]) if name in inputs else False
