"""The common part of the two dialects of TensorRT-LLM's backend: the parameters that they serve (wire contract 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import ClassVar

from gateway.generation.engine import Capability, EngineFeatures, StreamForm, TokenGenerator
from gateway.text.contract import BLS, TENSORRT_LLM
from gateway.triton import hints
from gateway.triton.abilities import MAX_TOP_LOGPROBS, Abilities, EngineOptions, read_abilities
from gateway.triton.dialects.dialect import GeneratorDialect, decoupled
from gateway.triton.engine_probe import has_guided_decoder, takes_drafts
from gateway.triton.model_view import ModelView
from gateway.triton.parameters import CUT_AFTER_STOP, FILLS_NO_GAP, GROUPS, GUIDED, INPUTS
from gateway.triton.pipeline import Models
from gateway.triton.tensors.request_encoder import RequestEncoder
from gateway.triton.text_path import text_path

_DISTRIBUTION = "from the distribution after temperature and penalties, before top_k and top_p"
_NO_DRAFTS = "The engine does not accept draft tokens."
_DAMAGE = "Triton decodes each response by itself, which breaks characters of several tokens and drops spaces"
_STREAMS: dict[StreamForm, Capability] = {
    "pieces": Capability("native", "By decoupled responses."),
    "whole": Capability("emulated", "As one event with the whole text, at the end."),
    "damaged": Capability("native", f"By decoupled responses, with losses: {_DAMAGE} (`text_streaming: lossy`)."),
    "rejected": Capability(
        "impossible",
        f"{_DAMAGE}; send `stream: false`, or ask the operator to set `path: tokens`, `accumulate_tokens: true` in "
        "the BLS model, or `text_streaming: whole`.",
    ),
}


def _setting(**parameters: str) -> Callable[[ModelView], ModelView]:
    return lambda model: replace(model, parameters={**model.parameters, **parameters})


ALWAYS = frozenset({"end_id", "pad_id", "exclude_input_in_output", "seed"})
"""Tensors that every request holds."""


class TensorRtLlmDialect(GeneratorDialect):
    """A dialect of TensorRT-LLM's backend."""

    cures: ClassVar = {
        "Set model_transaction_policy { decoupled: true }.": decoupled,
        "Set accumulate_tokens to true.": _setting(accumulate_tokens="true"),
        "Set normalize_log_probs to false, or logits_for_logprobs in the gateway.": _setting(
            normalize_log_probs="false"
        ),
    }

    async def learn(self, engine: TokenGenerator, make: Callable[[Models], TokenGenerator], models: Models) -> Models:
        """Probe whether the engine has the guides and takes the drafts that it declares; see ``Dialect``."""
        del make
        if engine.features.guide_types and not await has_guided_decoder(engine):
            models = replace(models, guided=False)
        drafts = models.draft is not None or engine.features.max_draft_tokens != 0
        if drafts and not await takes_drafts(engine, model=models.draft is not None):
            models = replace(models, drafted=False)
        return models

    def features(
        self, called: ModelView, models: Models, abilities: Abilities, options: EngineOptions, reason: str
    ) -> EngineFeatures:
        """Make the features that follow from the abilities, for any called model."""
        tokens = self.path == "tokens"
        return EngineFeatures(
            path=self.path,
            reason=reason,
            model=called.name,
            token_ids=abilities.token_ids,
            prompt_ids=tokens,
            logprobs=abilities.logprobs is not None,
            max_top_logprobs=MAX_TOP_LOGPROBS if abilities.top_logprobs else 0,
            max_seq_len=hints.max_seq_len(models.engine),
            tokenizer_dir=hints.tokenizer_dir(models.engine, models.preprocessing),
            vocab_size=abilities.vocab_size,
            tokenized=models.tokenized,
            warnings=hints.warnings(models.engine),
            capabilities=capabilities(called, models.engine, abilities, prompt_ids=tokens),
            guide_types=abilities.guide_types,
            guide_backend=abilities.guide_backend,
            draft_room=_draft_room(models, options),
            losses=self.losses(models, options),
        )


def _draft_room(models: Models, options: EngineOptions) -> int:
    """Positions that an engine built for drafts reserves; it silently cuts answers that would need them."""
    own = models.engine is not None and "engine" in models.engine.parameters
    return 0 if own or not models.drafted else options.max_draft_tokens or 0


def relative(called: ModelView, models: Models, options: EngineOptions) -> Iterator[str]:
    """Warn of log-probs that are relative to the candidates that sampling leaves."""
    if read_abilities(called, models.engine, options).normalizes:
        yield (
            "log-probs are rejected with temperature 0, top_k, top_p or min_p: normalize_log_probs of "
            f"{(models.engine or called).name!r} is not false, so that they would be relative to the remaining "
            "candidates"
        )


def one_response(models: Models) -> str:
    """Say which models make a stream come in one event."""
    entry = models.entry if models.bls else models.engine
    deciding = {model.name for model in (entry, models.engine) if model is not None and not model.decoupled}
    who = " and ".join(map(repr, sorted(deciding))) + (" is" if len(deciding) == 1 else " are")
    return f"a streamed answer is one event at the end: {who} not decoupled"


def capabilities(
    called: ModelView, engine: ModelView | None, abilities: Abilities, *, prompt_ids: bool
) -> dict[str, Capability]:
    """Decide how each request parameter that depends on the engine is served.

    Args:
        called: the model that requests name.
        engine: the engine model behind it, which has the parameters; the same as ``called`` on the tokens path.
        abilities: the abilities of both.
        prompt_ids: whether prompts travel as token ids, which is the tokens path.

    Returns:
        A capability by the name of OpenAI's parameter or of the extension.
    """
    table = _Table(called, engine, abilities, prompt_ids=prompt_ids)
    return {
        **table.inputs(),
        **table.lengths_and_ends(),
        **table.beams(),
        **table.logprobs(),
        **table.answers(),
        **table.guides(),
        **table.additions(),
        "prediction": table.prediction(),
        **table.draft_model(),
        "suffix": FILLS_NO_GAP,
    }


def relative_log_probs(engine: ModelView | None) -> str:
    """Say why an engine's log-probs cannot be served where sampling truncates, and the cure."""
    name = "the engine model" if engine is None else repr(engine.name)
    return (
        f"normalize_log_probs of {name} is not false, so that log-probs would be relative to the remaining "
        "candidates, 0 for each greedy token; send a temperature above 0 without top_k, top_p and min_p, or ask the "
        "operator to set normalize_log_probs to false or logits_for_logprobs to true."
    )


class _Table:
    def __init__(self, called: ModelView, engine: ModelView | None, abilities: Abilities, *, prompt_ids: bool) -> None:
        self._model = called.name
        self._engine = engine
        self._encoder = RequestEncoder(called, TENSORRT_LLM if prompt_ids else BLS)
        self._abilities = abilities
        self._prompt_ids = prompt_ids
        self._streams: StreamForm = "pieces" if called.decoupled else "whole"
        self._whole = not called.decoupled
        if not prompt_ids:
            path = text_path(called, engine, abilities.text_streaming)
            self._streams, self._whole = path.streams, path.whole

    def _by(self, tensor: str, note: str = "", limit: int | None = None) -> Capability:
        note = f"By the engine's input {tensor}{'; ' + note if note else ''}."
        return self._encoder.capability(tensor, note, limit)

    def inputs(self) -> dict[str, Capability]:
        """Everything as the table of inputs has it; for some parameters that is not all, and others replace it."""
        found = {}
        for name, each in INPUTS.items():
            found[name] = self._by(self._encoder.tensor(name), each.note, each.limit)
            if each.missing and found[name].how == "impossible":
                found[name] = _impossible(each.missing)
        return found

    def lengths_and_ends(self) -> dict[str, Capability]:
        tokens = self._abilities.token_ids
        length = self._by("request_output_len" if self._prompt_ids else "max_tokens")
        if not tokens:
            stop_ids = _impossible(f"{self._model!r} returns text without token ids; use `stop` with a text.")
        elif self._prompt_ids:
            stop_ids = self._by("stop_words_list", "the id counts as a token of the answer")
        else:
            stop_ids = _emulated("The gateway ends the request at this id, which counts as a token of the answer.")
        ends = "which then ends the request in the engine"
        if self._whole:
            ends = "which cuts the answer there; an answer that is not streamed is still generated to its end"
        found = {
            "max_tokens": length,
            "max_completion_tokens": length,
            "n": _emulated("As parallel engine requests with the seeds seed, seed + 1 and so on."),
            "ignore_eos": self._by("end_id", "with -1 no end id ends the answer"),
            "stop": _emulated(f"Matched on the text in the gateway, {ends}."),
            "stop_token_ids": stop_ids,
            "include_stop_str_in_output": CUT_AFTER_STOP,
        }
        if not tokens:
            note = "it only suppresses the first end id; stop strings still end the answer"
            found["min_tokens"] = self._by("min_tokens", note)
        return found

    def _logit_bias(self) -> Capability:
        if not self._prompt_ids:
            return _impossible(
                "An ensemble only supports biases of words, which it applies to all tokens of the word; set `path: "
                "tokens` for this model."
            )
        size = self._abilities.vocab_size
        source = f"of {size} values" if size else "as wide as the vocabulary in the tokenizer's folder"
        return self._by("embedding_bias", f"a vector {source}")

    def beams(self) -> dict[str, Capability]:
        most = self._abilities.beams
        if most <= 1:
            rejected = _impossible("The engine's max_beam_width is 1; use `n` instead.")
            return dict.fromkeys(GROUPS["beams"], rejected)
        note = "only the best beam is returned, which cannot be streamed"
        return {
            "use_beam_search": self._by("beam_width", note, most),
            "early_stopping": _impossible("TensorRT-LLM's backend reads this input with a wrong type."),
        }

    def logprobs(self) -> dict[str, Capability]:
        abilities = self._abilities
        truncated = relative_log_probs(self._engine) if abilities.normalizes else ""
        chosen = {
            "tensor": self._by("return_log_probs", _DISTRIBUTION),
            "logits": _emulated(
                "Computed from generation_logits: from the model's distribution before temperature and penalties."
            ),
            None: self._no_logprobs("output_log_probs"),
        }[abilities.logprobs]
        top = {
            "tensor": self._by("num_top_log_probs", _DISTRIBUTION, MAX_TOP_LOGPROBS),
            "logits": _emulated(
                "Computed from generation_logits, with the log-prob of the chosen token: from the model's "
                "distribution before temperature and penalties.",
                MAX_TOP_LOGPROBS,
            ),
            None: self._no_logprobs("top_log_probs (nor are generation_logits allowed by configuration)"),
        }[abilities.top_logprobs]
        prompt = {
            "tensor": self._by("num_prompt_log_probs", "from the model's distribution", MAX_TOP_LOGPROBS),
            "logits": _emulated(
                f"Computed from context_logits, of prompts up to {abilities.prompt_logprobs_tokens} tokens.",
                MAX_TOP_LOGPROBS,
            ),
            None: self._no_logprobs("prompt_log_probs (nor are context_logits allowed by configuration)"),
        }[abilities.prompt_logprobs]
        echo = "The gateway puts the prompt before the answer" + (
            "; with log-probs too." if prompt.how != "impossible" else "; without log-probs only."
        )
        if truncated:
            more = f" Not where sampling truncates: {truncated}"
            chosen, top = (replace(each, note=each.note + more, truncated=truncated) for each in (chosen, top))
        return {"logprobs": chosen, "top_logprobs": top, "prompt_logprobs": prompt, "echo": _emulated(echo)}

    def _no_logprobs(self, output: str) -> Capability:
        if not self._abilities.token_ids:
            return _impossible(f"{self._model!r} returns text without token ids.")
        return _impossible(f"The Triton model {self._model!r} has no output {output}.")

    def answers(self) -> dict[str, Capability]:
        abilities = self._abilities
        if abilities.token_ids:
            ids = _emulated("The engine's own token ids.")
            special = _emulated("The gateway detokenizes.")
        else:
            ids = _impossible(f"{self._model!r} returns text without token ids.")
            special = _impossible("Triton's postprocessing model detokenizes, and its own setting decides.")
        cached = {
            "tokens": self._by("return_perf_metrics", "exact"),
            "blocks": self._by(
                "return_perf_metrics",
                f"in whole blocks of {abilities.tokens_per_block} tokens, so that the count may be up to a block too "
                "low",
            ),
            None: _impossible("The engine does not report the size of its blocks; set tokens_per_block."),
        }[abilities.cached_tokens]
        return {
            "stream": _STREAMS[self._streams],
            "return_token_ids": ids,
            "detokenize": ids,
            "skip_special_tokens": special,
            "cached_tokens": cached,
            "prompt_token_ids": Capability("native", "By the engine's input input_ids.")
            if self._prompt_ids
            else _impossible("Prompts are sent to the ensemble as text; set `path: tokens` for this model."),
        }

    def guides(self) -> dict[str, Capability]:
        types = self._abilities.guide_types
        if not self._encoder.declares("guided_decoding_guide"):
            nothing = f"The Triton model {self._model!r} has no inputs for guided decoding."
        elif not types:
            nothing = "The engine has no guided decoding; describe the format in the messages and check the answer."
        else:
            nothing = f"The engine only supports guides of the kinds {', '.join(sorted(types))}."
        found = {}
        for name, needed in GUIDED.items():
            taken = [kind for kind in needed if kind in types]
            native = Capability("native", f"By the engine's guided decoding: {', '.join(taken)}.")
            found[name] = native if taken else _impossible(nothing)
        return found

    def additions(self) -> dict[str, Capability]:
        if self._prompt_ids:
            table = self._by("prompt_embedding_table", "its rows are added before the prompt as virtual tokens")
        else:
            table = _impossible("Virtual tokens cannot be sent as text; set `path: tokens` for this model.")
        return {"logit_bias": self._logit_bias(), "lora": self._by("lora_task_id"), "prompt_table": table}

    def prediction(self) -> Capability:
        most = self._abilities.max_draft_tokens
        if most != 0:
            length = "" if most is None else f", for its first {most} tokens"
            note = (
                "predicted tokens that match the answer need fewer engine steps, up to the first token that "
                f"differs{length}"
            )
            return self._by(
                "draft_input_ids", f"{note}; greedy answers do not change, sampled answers keep their probabilities"
            )
        if not self._prompt_ids:
            return _impossible("Draft tokens cannot be sent with text; set `path: tokens` for this model.")
        if not self._encoder.declares("draft_input_ids"):
            return self._by("draft_input_ids")
        if self._engine is not None and "engine" in self._engine.parameters:
            return _impossible(_NO_DRAFTS)
        return _impossible("It is unknown whether the engine accepts draft tokens; set `speculative.max_draft_tokens`.")

    def draft_model(self) -> dict[str, Capability]:
        draft = self._abilities.draft_model
        if draft is None or not draft.taken:
            why = _NO_DRAFTS if draft else f"The Triton model {self._model!r} has no draft model; see `speculative`."
            return dict.fromkeys(("num_draft_tokens", "use_draft_logits"), _impossible(why))
        same = "greedy answers do not change; sampled answers change but keep their probabilities"
        guesses = self._by("num_draft_tokens", f"{draft.name!r} generates them; {same}", draft.most)
        by_logits = self._by("use_draft_logits", same)
        if not draft.logits:
            by_logits = _impossible(f"The draft model {draft.name!r} does not return its logits.")
        return {"num_draft_tokens": guesses, "use_draft_logits": by_logits}


def _emulated(note: str, limit: int | None = None) -> Capability:
    return Capability("emulated", note, limit)


def _impossible(note: str) -> Capability:
    return Capability("impossible", note)
