"""Versions of Triton's vLLM backend, and sampling parameters and log-probs of the vLLM in them (wire contract 10)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_RETURNS = ("finish_reason", "cumulative_logprob", "logprobs", "num_input_tokens", "num_output_tokens")
_NUMBERS: dict[str, tuple[type, float, float, float]] = {
    "temperature": (float, 1.0, 0, 2),
    "top_p": (float, 1.0, 1e-9, 1),
    "min_p": (float, 0.0, 0, 1),
    "presence_penalty": (float, 0.0, -2, 2),
    "frequency_penalty": (float, 0.0, -2, 2),
    "repetition_penalty": (float, 1.0, 1e-9, float("inf")),
    "top_k": (int, 0, -1, float("inf")),
    "max_tokens": (int, 16, 1, float("inf")),
    "min_tokens": (int, 0, 0, float("inf")),
}
"""Type, default, least and most."""
_OTHERS = ("seed", "logprobs", "ignore_eos", "stop_token_ids", "bad_words", "lora_name", "logit_bias")
_GUIDE_KEYS = {"json", "regex", "choice", "grammar", "json_object"}
_LOWEST = float("-inf")


@dataclass(frozen=True)
class Version:
    """What sets a version of the backend apart.

    Attributes:
        name: Triton's.
        returns: whether it returns more than the text, when asked.
        guide_field: the sampling parameter that takes guides.
        embeds: whether it has an input for embeddings.
    """

    name: str
    returns: bool = True
    guide_field: str | None = None
    embeds: bool = False

    def inputs(self) -> Iterator[tuple[str, str, int]]:
        """Name, type and dimension of each input; all but the first are optional."""
        yield "text_input", "STRING", 1
        if self.returns:
            yield "image", "STRING", -1
        yield "stream", "BOOL", 1
        yield "sampling_parameters", "STRING", 1
        yield "exclude_input_in_output", "BOOL", 1
        if self.returns:
            yield from ((f"return_{name}", "BOOL", 1) for name in _RETURNS)
        if self.embeds:
            yield "embedding_request", "STRING", 1

    def outputs(self) -> Iterator[tuple[str, str, int]]:
        """Name, type and dimension of each output."""
        yield "text_output", "STRING", -1
        if self.returns:
            yield "finish_reason", "STRING", -1
            yield "cumulative_logprob", "FP32", -1
            yield "logprobs", "STRING", -1
            yield "num_input_tokens", "UINT32", 1
            yield "num_output_tokens", "UINT32", -1


VERSIONS = {
    version.name: version
    for version in (
        Version("24.11", returns=False),
        Version("24.12"),
        Version("25.10", guide_field="guided_decoding"),
        Version("25.11", guide_field="structured_outputs"),
        Version("26.01", guide_field="structured_outputs", embeds=True),
    )
}


@dataclass(frozen=True)
class Sampling:
    """The sampling parameters of one request.

    Attributes:
        max_tokens: as it came.
        stop_token_ids: that end an answer.
        ignore_eos: whether the end token ends nothing.
        logprobs: alternatives of each token; None for no log-probs.
        repeats: what makes a sampled answer the same again; None where nothing does.
        effective: all of them, as vLLM follows them.
    """

    max_tokens: int
    stop_token_ids: list[int]
    ignore_eos: bool
    logprobs: int | None
    repeats: str | None
    effective: dict[str, Any] = field(default_factory=dict)


def read_sampling(version: Version, text: str) -> Sampling:
    """Take the parameters as the backend does.

    Raises:
        AttributeError: they are not vLLM's, or out of their range: the backend logs why, and goes on without any.
        TypeError: a bias of tokens came: its ids are texts by then.
    """
    given = json.loads(text)
    effective: dict[str, Any] = {name: default for name, (_, default, _, _) in _NUMBERS.items()}
    for name, value in given.items():
        if name in _NUMBERS:
            kind, _, least, most = _NUMBERS[name]
            effective[name] = kind(value)
            if not least <= effective[name] <= most:
                raise AttributeError("'NoneType' object has no attribute 'lora_name'")
        elif name == version.guide_field and isinstance(value, str) and _is_guide(json.loads(value)):
            effective["guide"] = json.loads(value)
        elif name in _OTHERS:
            effective[name] = value
        else:
            raise AttributeError("'NoneType' object has no attribute 'lora_name'")
    if "logit_bias" in effective:
        raise TypeError("'<' not supported between instances of 'str' and 'int'")
    if effective["temperature"] < 1e-5:
        effective |= {"top_p": 1.0, "top_k": 0, "min_p": 0.0}
    seed = effective.get("seed")
    repeats = json.dumps(seed) if seed is not None else "greedy" if effective["temperature"] < 1e-5 else None
    return Sampling(
        max_tokens=int(effective["max_tokens"]),
        stop_token_ids=effective.get("stop_token_ids", []),
        ignore_eos=effective.get("ignore_eos", False),
        logprobs=effective.get("logprobs"),
        repeats=repeats,
        effective=effective,
    )


def _is_guide(guide: Any) -> bool:
    return isinstance(guide, dict) and len(guide) == 1 and guide.keys() <= _GUIDE_KEYS


def logprobs_of(ids: list[int], most: int | None, vocabulary: int) -> list[dict[int, dict[str, Any]]] | None:
    """The log-probs of tokens, made up by a rule: the drawn one first, then the best ``most``, of which it may be one.

    An odd token is the likeliest one, an even one comes after the next; of several alternatives the last is impossible.
    """
    if most is None:
        return None
    return [_entry(token, most, vocabulary) for token in ids]


def _entry(token: int, most: int, vocabulary: int) -> dict[int, dict[str, Any]]:
    others = [(token + step) % vocabulary for step in range(1, most + 1)]
    ranked = [token, *others] if token % 2 else [*others[:1], token, *others[1:]]
    values = {index: drawn_logprob(token) - step for step, index in enumerate(ranked, -(1 - token % 2))}
    values[token] = drawn_logprob(token)
    if most > 1:
        values[ranked[most - 1]] = _LOWEST if ranked[most - 1] != token else values[token]
    entry = {token: _of(values[token], ranked.index(token) + 1)}
    for rank, index in enumerate(ranked[:most], 1):
        entry[index] = _of(values[index], rank)
    return entry


def drawn_logprob(token: int) -> float:
    """That of a token that was drawn."""
    return -0.5 - token % 7 / 8


def _of(value: float, rank: int) -> dict[str, Any]:
    return {"logprob": value, "rank": rank, "decoded_token": ""}
