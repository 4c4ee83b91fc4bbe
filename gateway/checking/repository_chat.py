"""What makes a repository bad for chat, though Triton loads it (contract sections 1.4, 1.5, 2.1, 2.5 and 3.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gateway.checking.findings import Finding, Severity
from gateway.checking.repository_engine import at, engines, filled, is_native
from gateway.repository.reading import ModelFolder

Models = Mapping[str, ModelFolder]

_FALSE = ("false", "0", "no", "f", "n", "off")


def check_chat(models: Models) -> Iterator[Finding]:
    """Find what spoils streaming, prompts, text and log-probs."""
    for model in engines(models).values():
        yield from _check_engine(model)
    for model in models.values():
        inputs = {tensor.name for tensor in model.config.input}
        if "QUERY" in inputs:
            yield from _check_preprocessing(model)
        if "TOKENS_BATCH" in inputs:
            yield from _check_postprocessing(model)
        if any(name.startswith("sampling_param_") for name in inputs):
            yield from _check_llmapi(model)
        if {"text_input", "max_tokens"} <= inputs and not model.config.ensemble_scheduling.step:
            yield from _check_bls(model)
    yield from _check_tokenizers(models)
    yield from _check_cancel(models)


def _check_engine(model: ModelFolder) -> Iterator[Finding]:
    beams = filled(model, "max_beam_width")
    many_beams = beams.isdigit() and int(beams) > 1
    if not model.config.model_transaction_policy.decoupled and "model_transaction_policy" not in model.unfilled:
        what = "It is not decoupled, so no answer can be streamed, and the gateway does not serve it."
        fix = "Set model_transaction_policy { decoupled: true }."
        yield Finding(Severity.ERROR, at(model, "decoupled"), what, fix)
    if many_beams and "engine" in model.config.parameters:
        what = f"max_beam_width is {beams}, and this project's Python engines search no beams."
        yield Finding(Severity.WARNING, at(model, "max_beam_width"), what, "Set 1.")
    elif many_beams and filled(model, "decoding_mode") == "beam_search":
        what = "It is for beam search: requests with use_beam_search, which are not streamed."
        yield Finding(Severity.INFO, at(model, "decoding_mode"), what, "Chat from a model of its own.")
    elif many_beams:
        what = f"max_beam_width is {beams}: without a decoding_mode every request is decoded by beams, not sampled."
        fix = "Set 1, and beams in a model of their own, with decoding_mode beam_search."
        yield Finding(Severity.WARNING, at(model, "max_beam_width"), what, fix)
    if filled(model, "normalize_log_probs").lower() not in _FALSE:
        what = "Log-probs are normalised over the sampled candidates: a greedy token always has 0."
        fix = "Set normalize_log_probs to false."
        yield Finding(Severity.WARNING, at(model, "normalize_log_probs"), what, fix)
    echo = filled(model, "exclude_input_in_output").lower()
    if echo != "true":
        # Said on purpose it is no mistake: the gateway streams, and an answer that is streamed has no echo.
        severity = Severity.INFO if echo else Severity.WARNING
        what = "Answers that are not streamed begin with the prompt."
        yield Finding(severity, at(model, "exclude_input_in_output"), what, "Set exclude_input_in_output to true.")
    mode = filled(model, "decoding_mode")
    if mode in ("top_k", "top_p"):
        what = f"decoding_mode is {mode}: requests that carry the other parameter come back empty."
        yield Finding(Severity.ERROR, at(model, "decoding_mode"), what, "Remove it.")
    if is_native(model) and filled(model, "enable_kv_cache_reuse").lower() in _FALSE:
        what = "KV-cache reuse is off: every turn of a chat computes its whole history again."
        fix = "Set enable_kv_cache_reuse to true, with an engine built with use_paged_context_fmha."
        yield Finding(Severity.INFO, at(model, "enable_kv_cache_reuse"), what, fix)


def _check_preprocessing(model: ModelFolder) -> Iterator[Finding]:
    if filled(model, "add_special_tokens").lower() not in _FALSE:
        what = "It adds BOS to every prompt, and chat templates begin with it already: a double BOS changes the answer."
        yield Finding(Severity.ERROR, at(model, "add_special_tokens"), what, "Set add_special_tokens to false.")
    if "tokenizer_dir" not in model.config.parameters:
        what = "There is no tokenizer_dir."
        yield Finding(Severity.ERROR, at(model, "parameters"), what, "Set it to the model's folder.")


def _check_postprocessing(model: ModelFolder) -> Iterator[Finding]:
    count = sum(group.count or 1 for group in model.config.instance_group)
    if count > 1:
        what = f"{count} instances let streamed pieces overtake each other."
        yield Finding(Severity.ERROR, at(model, "instance_group"), what, "Set count: 1.")
    if filled(model, "skip_special_tokens").lower() in _FALSE:
        what = "Control tokens such as <|eot_id|> come out as text."
        yield Finding(Severity.WARNING, at(model, "skip_special_tokens"), what, "Set skip_special_tokens to true.")
    if "tokenizer_dir" not in model.config.parameters:
        what = "There is no tokenizer_dir."
        yield Finding(Severity.ERROR, at(model, "parameters"), what, "Set it to the model's folder.")


def _check_llmapi(model: ModelFolder) -> Iterator[Finding]:
    """Upstream's LLM API model takes text, and its yaml says nothing to Triton (contract sections 1.7 and 9.1)."""
    if not model.config.model_transaction_policy.decoupled and "model_transaction_policy" not in model.unfilled:
        what = "It is not decoupled here: with --disable-auto-complete-config a streamed request is never answered."
        fix = "Set model_transaction_policy { decoupled: true }, whatever model.yaml says."
        yield Finding(Severity.ERROR, at(model, "decoupled"), what, fix)


def _check_bls(model: ModelFolder) -> Iterator[Finding]:
    if not model.config.model_transaction_policy.decoupled and "model_transaction_policy" not in model.unfilled:
        what = "It is not decoupled, so no answer can be streamed."
        fix = "Set model_transaction_policy { decoupled: true }."
        yield Finding(Severity.WARNING, at(model, "decoupled"), what, fix)
    count = sum(group.count or 1 for group in model.config.instance_group)
    # This project's model serves many requests in one instance, and says how many; upstream's serves one.
    unknown = model.unfilled & {"instance_group", "max_batch_size"}
    if "max_concurrent_requests" not in model.config.parameters and count < model.config.max_batch_size and not unknown:
        what = f"{count} instances serve {count} requests at a time: upstream's model takes one each."
        fix = f"Set count: {model.config.max_batch_size}, or render this project's tensorrt_llm_bls."
        yield Finding(Severity.WARNING, at(model, "instance_group"), what, fix)


def _check_tokenizers(models: Models) -> Iterator[Finding]:
    """The steps of one ensemble must speak of the same tokens."""
    for ensemble in models.values():
        named: dict[str, str] = {}
        for step in ensemble.config.ensemble_scheduling.step:
            model = models.get(step.model_name)
            folder = filled(model, "tokenizer_dir") if model is not None else ""
            if folder and model is not None:
                named.setdefault(folder.rstrip("/"), step.model_name)
                if len(named) > 1:
                    (first, owner), *_ = named.items()
                    what = f"tokenizer_dir is {folder}, but {first} in {owner}."
                    yield Finding(Severity.ERROR, at(model, "tokenizer_dir"), what, "Name the same folder in both.")
                    break


def _check_cancel(models: Models) -> Iterator[Finding]:
    """A cancel of a call stays with the ensemble; only a `stop` request reaches its engine (contract section 3.6)."""
    steps = {step.model_name for model in models.values() for step in model.config.ensemble_scheduling.step}
    for name, model in engines(models).items():
        if name in steps and not any(tensor.name == "stop" for tensor in model.config.input):
            what = "It has no input stop: what a client of the ensemble breaks off is generated to its end."
            fix = 'Declare input { name: "stop" data_type: TYPE_BOOL dims: 1 reshape { } optional: true }.'
            yield Finding(Severity.WARNING, at(model, "input"), what, fix)
