"""Settings of one served model."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from gateway.comparison.verdict import Aspect
from gateway.config.section import Seconds, Section, split_commas
from gateway.config.tls_settings import Metadata, TritonTlsSettings

Policy = Literal["strict", "warn", "ignore"]
TextStreaming = Literal["reject", "whole", "lossy"]

MOST_DRAFT_TOKENS = 256
"""Tokens that a draft model may guess at a time: more are rarely right, and the answer waits for them."""

_SHIPPED = Path(__file__).parents[1] / "chat_templates"  # in a checkout a link to the folder of that name


class MirrorSettings(Section):
    """A second model that gets copies of live requests; its answers are only compared.

    Attributes:
        to: name of the second model, another entry of ``models``.
        share: of the requests, up to 1: all of them.
        at_once: copies that the second model answers at a time.
        waiting: copies that wait for their turn; further ones are dropped, and counted.
        timeout_s: seconds that the second model has for an answer.
        drawn: whether requests are copied that ask neither for temperature 0 nor for a seed, of whose answers only what
            does not depend on chance is compared.
        ignore: what is not compared.
        tolerance: by which the log-probs of a token may differ.
        show_text: whether rows of the report have texts; needs ``server.internal_port``, where the report is read.
    """

    to: str = Field(min_length=1)
    share: float = Field(default=0.1, gt=0, le=1)
    at_once: int = Field(default=4, ge=1, le=256)
    waiting: int = Field(default=64, ge=0, le=10_000)
    timeout_s: Seconds = Field(default=120.0, gt=0, allow_inf_nan=False)
    drawn: bool = True
    ignore: tuple[Aspect, ...] = ()
    tolerance: float = Field(default=0.05, ge=0)
    show_text: bool = False


class BalanceSettings(Section):
    """How requests are shared among the endpoints of a model, where it has several.

    Attributes:
        policy: chooses the endpoint of a request: ``least_in_flight``, ``power_of_two`` (the better of two drawn by
            lot), or ``prefix``, the one that knows most of the prompt.
        lookup_s: seconds after which names and files of endpoints are looked up again.
        retries: other endpoints that a request without a response is tried on, at most.
        retry_share: retries under way at most, as a part of the requests in flight; others wait.
        wait_s: seconds that requests wait for an endpoint where none is ready, if one was so shortly before.
        slow_start_s: seconds over which an endpoint that has come takes up its share; 0: immediately.
        breaker_failures: requests in a row that must fail before an endpoint gets none.
        breaker_open_s: seconds for which it then gets none; twice as long each further time, up to a minute.
    """

    policy: Literal["least_in_flight", "power_of_two", "prefix"] = "least_in_flight"
    lookup_s: Seconds = Field(default=5.0, ge=0.1, allow_inf_nan=False)
    retries: int = Field(default=1, ge=0, le=10)
    retry_share: float = Field(default=0.2, gt=0, le=1)
    wait_s: Seconds = Field(default=5.0, ge=0, allow_inf_nan=False)
    slow_start_s: Seconds = Field(default=10.0, ge=0, allow_inf_nan=False)
    breaker_failures: int = Field(default=5, ge=1, le=1000)
    breaker_open_s: Seconds = Field(default=5.0, gt=0, allow_inf_nan=False)


def _is_address(value: str) -> bool:
    host, _, port = value.rpartition(":")
    return "://" not in value and bool(host) and port.isdigit() and int(port) <= 65535


class TritonSettings(Section):
    """The Triton model behind a served model.

    Attributes:
        url: host:port of Triton's gRPC endpoint.
        endpoints: several of them in its place, each host:port, ``dns:///host:port`` for all addresses of a name, or
            ``file:///path`` of a file that has an address a line.
        balance: how requests are shared among them.
        model: its name, normally the ensemble.
        metrics_url: of Triton's metrics, such as ``http://triton:8002/metrics``, which the gateway's own relay.
        transport: the carrier of requests: ``h2``, which costs less CPU, ``grpcio``, or ``auto``: h2 wherever it
            reaches the server as well as grpcio does.
        health_failures: health checks in a row that must fail before requests are rejected; a lost or failed connection
            and a model that is gone do it immediately. As many requests in a row without any response make the engine
            suspect.
        stall_s: seconds without a response on any running answer after which the engine is suspect at the earliest, and
            is asked for one token; 0: never, nor is it asked after ``probe_s``.
        probe_s: seconds without any token, whether or not there are requests, after which the engine is asked for one;
            0: never.
        tls: given, even as ``{}``, all connections to its gRPC port are by TLS.
        metadata: headers of every call, such as ``triton-grpc-protocol-NAME`` of a restricted protocol.
    """

    url: str | None = Field(default=None, min_length=1)
    endpoints: Annotated[tuple[str, ...], BeforeValidator(split_commas)] = ()
    balance: BalanceSettings = BalanceSettings()
    model: str = Field(default="ensemble", min_length=1)
    metrics_url: str | None = Field(default=None, pattern=r"^https?://[^\s/]+(/\S*)?$")
    transport: Literal["auto", "grpcio", "h2"] = "auto"
    health_failures: int = Field(default=3, ge=1, le=100)
    stall_s: Seconds = Field(default=10.0, ge=0, allow_inf_nan=False)
    probe_s: Seconds = Field(default=30.0, ge=0, allow_inf_nan=False)
    tls: TritonTlsSettings | None = None
    metadata: Metadata = Field(default_factory=dict)

    @field_validator("url")
    @classmethod
    def _host_and_port(cls, value: str | None) -> str | None:
        if value is not None and not _is_address(value):
            raise ValueError("must be host:port of Triton's gRPC endpoint, for example triton:8001")
        return value

    @field_validator("endpoints")
    @classmethod
    def _addresses(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        for value in values:
            file = value.startswith("file:///") and len(value) > len("file:///")
            if not file and not _is_address(value.removeprefix("dns:///")):
                raise ValueError(f"{value!r} must be host:port, dns:///host:port or file:///path")
        return values

    @model_validator(mode="after")
    def _one_or_several(self) -> TritonSettings:
        if self.url is None and not self.endpoints:
            raise PydanticCustomError("url_missing", "url: is required unless endpoints is set")
        if self.url is not None and self.endpoints:
            raise ValueError("url and endpoints cannot be used together")
        return self


class AdmissionSettings(Section):
    """How many generations of a model run, and how others wait for their turn, which callers have fairly.

    Attributes:
        max_running: generations that its engines are given at a time, of all worker processes; further ones wait. None:
            as many as the engines run, by their own metrics (``triton.metrics_url``), or all where these do not tell;
            0: all.
        max_waiting: requests that may wait; of further ones those of the caller that has most are answered 429.
        max_waiting_tokens: tokens of their prompts and answers together.
        max_wait_s: seconds after which a request that still waits is answered 429; None: at its deadline.
    """

    max_running: int | None = Field(default=None, ge=0)
    max_waiting: int = Field(default=1000, ge=1)
    max_waiting_tokens: int | None = Field(default=None, ge=1)
    max_wait_s: Seconds | None = Field(default=60.0, gt=0)


class PolicySettings(Section):
    """The treatment of parameters that have no effect: ``strict`` rejects the request (400), ``warn`` serves it, names
    them in the header ``x-ignored-parameters`` and counts them, ``ignore`` only counts them.

    Attributes:
        impossible: parameters of the API that this engine cannot serve.
        hints: those of them that hardly change an answer, such as ``verbosity``, which agents send unasked.
        unknown: fields that are not parameters of the API.
    """  # noqa: D205 - one sentence needs two lines

    impossible: Policy = "strict"
    hints: Policy = "warn"
    unknown: Policy = "warn"


class SamplingDefaults(Section):
    """Values for what a request leaves out; None leaves it to the API's own default.

    Attributes:
        temperature: 0 is greedy.
        top_p: nucleus sampling.
        top_k: 0 considers all tokens.
        min_p: smallest probability relative to the best token, where the engine has it.
        repetition_penalty: 1 has no effect.
        presence_penalty: 0 has no effect.
        frequency_penalty: 0 has no effect.
        max_tokens: tokens of an answer at most; None leaves what the context has room for.
        generation_config: whether ``generation_config.json`` of the tokenizer's folder gives temperature, top_p, top_k
            and repetition_penalty where this section is silent.
    """

    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=0)
    min_p: float | None = Field(default=None, ge=0, le=1)
    repetition_penalty: float | None = Field(default=None, gt=0, le=10)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    max_tokens: int | None = Field(default=None, ge=1)
    generation_config: bool = False

    @functools.cached_property
    def given(self) -> Mapping[str, float | int]:
        """The values that there are, by the names of request parameters."""
        return self.model_dump(exclude_none=True, exclude={"generation_config"})


class AdapterSettings(Section):
    """The adapter that every request of a served model carries.

    Attributes:
        task_id: the engine keeps the adapter by it; two adapters for one engine need two.
        folder: the adapter, in Hugging Face PEFT's format or as the two .npy files of TensorRT-LLM's tools, relative to
            the settings file; None where the engine has it by itself (``lora_prefetch_dir``).
        name: of the adapter, for the stock model of the LLM API, which needs name and path, and for the vLLM backend,
            whose ``multi_lora.json`` has it.
        path: folder of the adapter as Triton's machine names it, from which the LLM API loads it.
        source: the format of that folder: of Hugging Face PEFT or of NeMo.
    """

    task_id: int = Field(ge=0, lt=2**64)
    folder: Path | None = None
    name: str | None = Field(default=None, min_length=1)
    path: str | None = Field(default=None, min_length=1)
    source: Literal["hf", "nemo"] = "hf"

    @model_validator(mode="after")
    def _together(self) -> AdapterSettings:
        if self.path is not None and self.name is None:
            raise ValueError("path requires a name: the LLM API needs both, the vLLM backend only the name")
        return self


class DraftSettings(Section):
    """Speculative decoding: tokens are guessed and checked together, which saves steps of the engine.

    Attributes:
        num_draft_tokens: tokens that the draft model of a BLS model guesses at a time, for requests that do not say and
            that go with it; None: only requests that ask for it.
        use_draft_logits: whether guesses are accepted by the probabilities that both models give them; the draft model
            must gather its logits.
        max_draft_tokens: tokens of the longest draft that the engine was built for. Engines of TensorRT-LLM get a
            ``prediction`` only where it is set, and keep that many tokens of the context free in every request.
    """

    num_draft_tokens: int | None = Field(default=None, ge=1, le=MOST_DRAFT_TOKENS)
    use_draft_logits: bool = False
    max_draft_tokens: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _fit(self) -> DraftSettings:
        if self.max_draft_tokens is not None and (self.num_draft_tokens or 0) > self.max_draft_tokens:
            raise ValueError("num_draft_tokens must be at most max_draft_tokens")
        return self


class LlmApiSettings(Section):
    """What the stock model of the LLM API does not say of itself.

    Attributes:
        text: the text of a response in a stream: ``cumulative``, all of the answer so far, or ``delta``, what is new.
            ``auto`` goes by the declared inputs: with ``lora_id`` it is cumulative, without it the model does not
            stream. Any other value says that it streams.
    """

    text: Literal["auto", "cumulative", "delta"] = "auto"


def template_path(given: Path, folder: Path) -> Path:
    """Find a template: in a folder, else among those that come with the gateway, if the path names one of these.

    Args:
        given: the path as the settings have it.
        folder: the base of a relative path.
    """
    found = folder / given
    shipped = _SHIPPED / given.name
    is_name = given.suffix == ".jinja" and given == Path(_SHIPPED.name, given.name)
    return shipped if is_name and not found.exists() and shipped.is_file() else found


class ModelSettings(Section):
    """One served model.

    Attributes:
        name: the id that clients send as ``model``, and that answers carry.
        aliases: further ids under which clients reach it.
        triton: the Triton model behind it.
        path: ``tokens`` speaks token ids with the engine step, ``ensemble`` text with the ensemble or a BLS model,
            ``llmapi`` text with the stock model of the LLM API, ``vllm`` text with a model of Triton's vLLM backend,
            ``text`` text with any other model that takes and answers it, ``auto`` decides.
        engine_version: the version of TensorRT-LLM behind the stock model of the LLM API, such as 1.2.1, which Triton
            does not tell. What that version ignores silently is rejected; without a value, what any version ignores.
        llmapi: what that model does not say of itself.
        tokenizer: folder with tokenizer.json; None takes the folder that Triton's own configuration names.
        max_seq_len: prompt plus generated tokens at most; None takes what Triton's own configuration says.
        vocab_size: width of the engine's logits, without padding; None takes what Triton's own configuration says.
        tokens_per_block: tokens in a block of the engine's KV cache; None takes what Triton's own configuration says.
        template: file with a Jinja chat template, relative to the settings file; ``chat_templates/NAME.jinja`` is
            one that comes with the gateway, unless the file exists. None takes the tokenizer folder's.
        escape_special_tokens: whether text such as ``<|im_end|>`` in a message stays plain text instead of becoming
            a control token.
        allow_request_template: whether a request may bring a chat template of its own.
        check_tokenizer: whether a tokenizer that is seen not to be the engine's keeps the model from being served.
        max_stops: stop strings a request may have.
        max_parallel_generations: generations of one request (``n``, ``best_of``, several prompts) that run together;
            the others wait for their turn, so that one request does not fill the engine's queue.
        max_top_logprobs: alternatives per token a request may ask for, where the engine has as many.
        max_tokens_policy: ``clamp`` a ``max_tokens`` beyond the context, or ``reject`` the request.
        logits_for_logprobs: whether log-probs may be computed from the engine's logits where it has no log-probs.
            Logits are as wide as the vocabulary: megabytes for each request.
        max_logits_tokens: longest prompt whose log-probs may be computed from logits.
        family: the form in which the model writes tool calls and reasoning; None finds it by files and template.
        reasoning_output: the fields in which answers have the reasoning: ``reasoning_content``, ``reasoning``, or both.
        tool_call_streaming: whether a stream has a call that no guide guarantees once it is complete (``whole``) or
            while it forms (``eager``), when it may turn out to be broken.
        text_streaming: the treatment of streams where Triton decodes each response by itself, so that characters and
            spaces are lost: ``reject`` them, send the ``whole`` answer as one event, or accept the loss (``lossy``).
        structured_output_without_guidance: ``reject`` a request for a structure where the engine has no guided
            decoding, or ``validate`` the finished answer, which fails when it does not fit.
        lora: the adapter that every request carries; None is the model as it is.
        prompt_tables: .npy files with the embeddings of virtual tokens [tokens, hidden], relative to the settings file,
            by the name under which requests put them before their prompts (``prompt_table``).
        speculative: the use of drafts, where the engine takes them.
        admission: bounds on the generations that run and wait.
        mirror: a second model that gets copies of its requests; None: there is none.
        policies: the treatment of parameters without effect.
        defaults: values for what requests leave out.
    """

    name: str = Field(min_length=1, max_length=256)
    aliases: tuple[str, ...] = ()
    triton: TritonSettings
    path: Literal["auto", "tokens", "ensemble", "llmapi", "vllm", "text"] = "auto"
    engine_version: str | None = Field(default=None, pattern=r"^\d{1,4}(\.\d{1,4}){1,3}$")
    llmapi: LlmApiSettings = LlmApiSettings()
    tokenizer: Path | None = None
    max_seq_len: int | None = Field(default=None, ge=2)
    vocab_size: int | None = Field(default=None, ge=2)
    tokens_per_block: int | None = Field(default=None, ge=1)
    template: Path | None = None
    escape_special_tokens: bool = True
    allow_request_template: bool = False
    check_tokenizer: bool = True
    max_stops: int = Field(default=4, ge=1, le=64)
    max_parallel_generations: int = Field(default=16, ge=1, le=4096)
    max_top_logprobs: int = Field(default=20, ge=0, le=20)
    max_tokens_policy: Literal["clamp", "reject"] = "clamp"
    logits_for_logprobs: bool = False
    max_logits_tokens: int = Field(default=512, ge=1)
    family: str | None = Field(default=None, min_length=1)
    reasoning_output: Literal["reasoning_content", "reasoning", "both"] = "reasoning_content"
    tool_call_streaming: Literal["whole", "eager"] = "whole"
    text_streaming: TextStreaming = "reject"
    structured_output_without_guidance: Literal["reject", "validate"] = "reject"
    lora: AdapterSettings | None = None
    prompt_tables: dict[str, Path] = Field(default_factory=dict)
    speculative: DraftSettings = DraftSettings()
    admission: AdmissionSettings = AdmissionSettings()
    mirror: MirrorSettings | None = None
    policies: PolicySettings = PolicySettings()
    defaults: SamplingDefaults = SamplingDefaults()

    _split = field_validator("aliases", mode="before")(split_commas)

    @field_validator("template")
    @classmethod
    def _here_or_shipped(cls, value: Path | None) -> Path | None:
        return None if value is None else template_path(value, Path())

    @field_validator("aliases")
    @classmethod
    def _are_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(0 < len(alias) <= 256 for alias in value):
            raise ValueError("an alias must have 1 to 256 characters")
        return value
