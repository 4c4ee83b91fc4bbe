"""Settings of one served model."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from gateway.settings.encoder_settings import EncoderSettings
from gateway.settings.section import Seconds, Section, split_commas
from gateway.settings.tls_settings import Metadata, TritonTlsSettings

Policy = Literal["strict", "warn", "ignore"]
TextStreaming = Literal["reject", "whole", "lossy"]
EngineForm = Literal["tokens", "ensemble", "llmapi", "vllm", "text", "encoder"]
"""Forms in which requests reach an engine: token ids, text through an ensemble or BLS model, text to the LLM API,
text to the vLLM backend, text to any other model that generates, what an encoder takes."""
EnginePath = Literal["auto", EngineForm]
Task = Literal["generate", "embed", "rerank", "classify"]
"""The task of a model; each endpoint with an engine serves one or several tasks."""

MOST_DRAFT_TOKENS = 256
"""Tokens that a draft model may guess at a time: more are rarely right, and the answer waits for them."""

Aspect = Literal["text", "reasoning", "calls", "finish_reason", "usage", "logprobs", "choices"]
"""The parts of answers that a mirror compares."""
_SHIPPED = Path(__file__).parents[1] / "chat_templates"  # in a checkout a link to the folder of that name


class MirrorSettings(Section):
    """A second model that gets copies of live requests; its responses are only compared.

    Attributes:
        to: name of the second model, another entry of ``models``.
        share: share of the requests that are copied; 1: all requests.
        at_once: most copies that the second model serves at a time.
        waiting: most queued copies; further copies are dropped and counted.
        timeout_s: most seconds for a response of the second model.
        drawn: whether to copy requests without temperature 0 and without a seed; only the parts of their responses that
            do not depend on sampling are compared.
        ignore: aspects that are not compared.
        tolerance: largest difference of log-probs that counts as equal.
        show_text: whether the report has texts; requires ``server.internal_port``, on which the report is served.
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
    """Load balancing over the endpoints of a model.

    Attributes:
        policy: choice of the endpoint: ``least_in_flight``, ``power_of_two`` (the better of two random endpoints), or
            ``prefix``, the endpoint that has most of the prompt in its cache.
        lookup_s: seconds between lookups of the names and files of endpoints.
        retries: most retries of a request without a response on other endpoints.
        retry_share: most concurrent retries, as a share of the requests in flight; further retries wait.
        wait_s: seconds that requests wait for a ready endpoint, if an endpoint was ready shortly before.
        slow_start_s: seconds in which a new endpoint reaches its full share of requests; 0: immediately.
        breaker_failures: failed requests in a row after which an endpoint gets no requests.
        breaker_open_s: seconds for which the endpoint then gets no requests, doubled after each further failure, up to
            60 s.
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
        endpoints: several endpoints instead of ``url``, each host:port, ``dns:///host:port`` for all addresses of a
            name, or ``file:///path`` for a file with one address per line.
        balance: load balancing over the endpoints.
        model: name of the Triton model, normally the ensemble.
        metrics_url: URL of Triton's metrics, such as ``http://triton:8002/metrics``, which the gateway adds to its own
            metrics.
        transport: transport of requests: ``h2``, which needs less CPU, ``grpcio``, or ``auto``: h2 if it can reach the
            server.
        health_failures: failed health checks in a row after which requests are rejected; a lost connection or an
            unloaded model rejects them immediately. The same number of requests in a row without a response makes the
            engine suspect.
        stall_s: seconds without a response for any running request after which the engine is suspect and gets the
            one-token test; 0: never, also not after ``probe_s``.
        probe_s: seconds without a token, with or without requests, after which the engine gets the one-token test; 0:
            never.
        tls: TLS for all connections to its gRPC port, also as ``{}``; None: no TLS.
        metadata: gRPC metadata of every call, such as ``triton-grpc-protocol-NAME`` of a restricted protocol.
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
    """Limit of running generations of a model, with a fair queue per caller.

    Attributes:
        max_running: most generations that its engines run at a time, over all worker processes; further generations
            wait. None: as many as the engines report in their metrics (``triton.metrics_url``), or no limit without
            such metrics; 0: no limit.
        max_waiting: most waiting requests; above it requests of the caller with most waiting requests are rejected with
            429.
        max_waiting_tokens: most tokens of the prompts and answers of waiting requests.
        max_wait_s: seconds after which a waiting request is rejected with 429; None: at its deadline.
    """

    max_running: int | None = Field(default=None, ge=0)
    max_waiting: int = Field(default=1000, ge=1)
    max_waiting_tokens: int | None = Field(default=None, ge=1)
    max_wait_s: Seconds | None = Field(default=60.0, gt=0)


class PolicySettings(Section):
    """The treatment of parameters that have no effect: ``strict`` rejects the request (400), ``warn`` serves it, names
    them in the header ``x-ignored-parameters`` and counts them, ``ignore`` only counts them.

    Attributes:
        impossible: parameters that this engine cannot serve.
        hints: unsupported parameters that hardly change an answer, such as ``verbosity``, which many agents send.
        unknown: unknown fields.
    """  # noqa: D205 - one sentence needs two lines

    impossible: Policy = "strict"
    hints: Policy = "warn"
    unknown: Policy = "warn"


class SamplingDefaults(Section):
    """Default values of request parameters; None: the default of the API.

    Attributes:
        temperature: 0 is greedy.
        top_p: nucleus sampling.
        top_k: 0 considers all tokens.
        min_p: smallest probability relative to the best token, if the engine supports it.
        repetition_penalty: 1 has no effect.
        presence_penalty: 0 has no effect.
        frequency_penalty: 0 has no effect.
        max_tokens: most tokens of an answer; None: the rest of the context.
        generation_config: whether ``generation_config.json`` in the tokenizer's folder sets temperature, top_p, top_k
            and repetition_penalty if this section does not.
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
        """The given values, by the names of request parameters."""
        return self.model_dump(exclude_none=True, exclude={"generation_config"})


class AdapterSettings(Section):
    """The LoRA adapter of a served model.

    Attributes:
        task_id: id of the adapter in the engine; each adapter of an engine needs a different id.
        folder: folder of the adapter, in Hugging Face PEFT's format or as the two .npy files of TensorRT-LLM's tools,
            relative to the settings file; None if the engine loads the adapter itself (``lora_prefetch_dir``).
        name: name of the adapter, for the stock model of the LLM API, which needs name and path, and for the vLLM
            backend, as in its ``multi_lora.json``.
        path: folder of the adapter on Triton's machine, from which the LLM API loads it.
        source: format of the folder in ``path``: Hugging Face PEFT or NeMo.
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
    """Speculative decoding with draft tokens.

    Attributes:
        num_draft_tokens: default number of draft tokens per step with the draft model of a BLS model; None: only for
            requests that set ``num_draft_tokens``.
        use_draft_logits: whether draft tokens are accepted by the probabilities of both models; the draft model must
            return its logits.
        max_draft_tokens: most draft tokens that the engine was built for. TensorRT-LLM engines only get a
            ``prediction`` if it is set, and reserve this number of context tokens in every request.
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
    """Properties of the stock model of the LLM API that it does not report.

    Attributes:
        text: the text of a response in a stream: ``cumulative``, the whole answer so far, or ``delta``, the new text.
            ``auto`` depends on the declared inputs: with ``lora_id`` it is cumulative, without it the model does not
            stream. The other values mean that the model streams.
    """

    text: Literal["auto", "cumulative", "delta"] = "auto"


def template_path(path: Path, folder: Path) -> Path:
    """Find a template in a folder, else among those shipped with the gateway.

    Args:
        path: the path in the settings.
        folder: the base of a relative path.
    """
    found = folder / path
    shipped = _SHIPPED / path.name
    is_name = path.suffix == ".jinja" and path == Path(_SHIPPED.name, path.name)
    return shipped if is_name and not found.exists() and shipped.is_file() else found


_OF_ENCODERS = frozenset(
    (
        "name", "aliases", "triton", "task", "path", "tokenizer", "max_seq_len", "max_parallel_generations", "encoder",
        "admission", "policies",
    )
)  # fmt: skip
"""Settings that a model has whose task is not to generate."""


class ModelSettings(Section):
    """One served model.

    Attributes:
        name: the id that clients send as ``model`` and that responses contain.
        aliases: further ids of the model for clients.
        triton: the Triton model behind it.
        task: what the model does: ``generate`` text, ``embed`` texts, ``rerank`` documents for a query, or ``classify``
            texts.
        path: ``tokens`` speaks token ids with the engine step, ``ensemble`` text with the ensemble or a BLS model,
            ``llmapi`` text with the stock model of the LLM API, ``vllm`` text with a model of Triton's vLLM backend,
            ``text`` text with any other model that reads and returns text, ``auto`` decides.
        engine_version: the version of TensorRT-LLM behind the stock model of the LLM API, such as 1.2.1, which Triton
            does not report. Parameters that this version silently ignores are rejected; without a value, parameters
            that any version ignores.
        llmapi: properties of the LLM API's model that it does not report.
        tokenizer: folder with tokenizer.json; None: the folder in Triton's model configuration.
        max_seq_len: most prompt plus generated tokens; None: from Triton's model configuration.
        vocab_size: width of the engine's logits, without padding; None: from Triton's model configuration.
        tokens_per_block: tokens in a block of the engine's KV cache; None: from Triton's model configuration.
        template: file with a Jinja chat template, relative to the settings file; ``chat_templates/NAME.jinja`` is a
            template shipped with the gateway, unless the file exists. None: the template of the tokenizer folder.
        escape_special_tokens: whether text such as ``<|im_end|>`` in a message stays plain text instead of becoming a
            control token.
        allow_request_template: whether requests may contain a chat template.
        check_tokenizer: whether the model is not served if its tokenizer differs from the engine's tokenizer.
        max_stops: most stop strings of a request.
        max_parallel_generations: most generations of one request (``n``, ``best_of``, several prompts) that run
            together; further generations wait. For encoders: batches; two, where it is not set.
        max_top_logprobs: most alternatives per token that a request may ask for, if the engine supports them.
        max_tokens_policy: ``clamp`` a ``max_tokens`` that exceeds the context, or ``reject`` the request.
        logits_for_logprobs: whether log-probs may be computed from the engine's logits if the engine returns no
            log-probs. Logits are as wide as the vocabulary, megabytes per request.
        max_logits_tokens: longest prompt whose log-probs may be computed from logits.
        family: the format of the model's tool calls and reasoning; None: detected from its files and its chat template.
        reasoning_output: the fields with the reasoning in responses: ``reasoning_content``, ``reasoning``, or both.
        tool_call_streaming: whether a stream sends a tool call without guided decoding when it is complete (``whole``)
            or while it is generated (``eager``), when the call may still prove invalid.
        text_streaming: streams if Triton decodes each response separately, so that characters and spaces are lost:
            ``reject`` them, send the ``whole`` answer as one event, or accept the loss (``lossy``).
        structured_output_without_guidance: ``reject`` requests for a structure if the engine has no guided decoding, or
            ``validate`` the complete answer, where the request fails if it does not match.
        lora: the LoRA adapter of every request; None: no adapter.
        prompt_tables: .npy files with the embeddings of virtual tokens [tokens, hidden], relative to the settings file,
            by the name that requests send as ``prompt_table``.
        speculative: speculative decoding, if the engine supports it.
        encoder: properties of a model whose ``task`` is not ``generate``.
        admission: limits of running and waiting generations.
        mirror: a second model that gets copies of its requests; None: no mirror.
        policies: treatment of parameters without effect.
        defaults: default values of request parameters.
    """

    name: str = Field(min_length=1, max_length=256)
    aliases: tuple[str, ...] = ()
    triton: TritonSettings
    task: Task = "generate"
    path: EnginePath = "auto"
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
    encoder: EncoderSettings = EncoderSettings()
    admission: AdmissionSettings = AdmissionSettings()
    mirror: MirrorSettings | None = None
    policies: PolicySettings = PolicySettings()
    defaults: SamplingDefaults = SamplingDefaults()

    _split = field_validator("aliases", mode="before")(split_commas)

    @field_validator("*")
    @classmethod
    def _fits_the_task(cls, value: Any, info: ValidationInfo) -> Any:
        task, name = info.data.get("task", "generate"), str(info.field_name)
        if (
            task != "generate"
            and name not in _OF_ENCODERS
            and value != cls.model_fields[name].get_default(call_default_factory=True)
        ):
            raise ValueError(f"it is not a setting of a model whose task is {task}")
        return value

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
