"""The table of parameters: a row for each annotated field of a request, and rows of unserved parameters."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from gateway.api.openai.chat.protocol import ChatCompletionRequest
from gateway.api.openai.completions.protocol import CompletionRequest
from gateway.api.openai.parameters.row import BOTH, EndpointName, Parameter, Source
from gateway.generation.engine import Capability


def _row(
    name: str,
    form: str,
    does: str,
    why: str,
    *neutral: Any,
    endpoints: tuple[EndpointName, ...] = ("chat",),
    source: Source = "OpenAI",
    hint: bool = False,
) -> Parameter:
    empty: dict[str, Any] = {"array": [], "object": {}}
    return Parameter(
        does,
        how=Capability("impossible", why),
        neutral=(*neutral, *(value for kind, value in empty.items() if form.startswith(kind))),
        kind="impossible",
        hint=hint,
        source=source,
        name=name,
        endpoints=endpoints,
        type=form,
    )


_TEXT = "the model reads and writes text only."

_OPENAI = (
    _row("audio", "mapping of voice and format", "asks for speech", _TEXT),
    _row("modalities", "array of strings", "chooses text or speech", _TEXT, ["text"]),
    _row("moderation", "mapping", "asks for moderation", "this gateway has no moderation model."),
    _row(
        "verbosity",
        "string: low, medium or high",
        "sets the length of the answer",
        "ask for a length in a message.",
        "medium",
        hint=True,
    ),
    _row("web_search_options", "mapping", "lets the model search the web", "this gateway has no web search."),
    _row(
        "suffix",
        "string",
        "is the text after the answer",
        "models have no common format for fill-in-the-middle; write the format of the model into the prompt.",
        "",
        endpoints=("completions",),
    ),
)

_Entry = tuple[str, str, str, str, tuple[Any, ...]]
_FORM = "use structured_outputs."
_TYPE = "a response_format of this type does not use it."
_OF_OTHER_TYPES = ("schema", "json_schema", "regex", "ebnf", "pattern", "grammar")
_NVEXT = ("guided_json", "guided_regex", "guided_choice", "guided_grammar")
_BY_SETTINGS = "adapters and tables are separate models, see configuration.md."
_PARTS = "prefill and decoding run in one engine."
_INSIDE = "the engine does not return it."
_MEDIA = _TEXT

# Parameters that constrain or extend an answer: to ignore one would change the answer.
_CHANGES: tuple[_Entry, ...] = (
    ("allowed_token_ids", "array of token ids", "are the only allowed tokens", "use logit_bias.", ()),
    ("logits_processors", "array", "change logits by code", "this gateway runs no code of clients.", ()),
    ("custom_logit_processor", "string", "changes logits by code", "this gateway runs no code of clients.", ()),
    (
        "custom_params",
        "object",
        "has the parameters of custom_logit_processor",
        "this gateway runs no code of clients.",
        (),
    ),
    ("vllm_xargs", "object", "configures plug-ins of the engine", "the engine has no plug-ins.", ()),
    (
        "spaces_between_special_tokens",
        "boolean",
        "adds spaces between special tokens",
        "the text is always the decoded token ids.",
        (True,),
    ),
    ("num_return_sequences", "integer", "is another name for `n`", "send n.", (1,)),
    ("structural_tag", "mapping or string", "constrains the answer to a structure", _FORM, ()),
    ("guided_decoding_backend", "string", "chooses the guided decoding backend", "the engine has one backend.", ()),
    ("guided_whitespace_pattern", "string", "sets the white space of guided JSON", "the engine decides.", ()),
    (
        "structured_outputs.whitespace_pattern",
        "string",
        "sets the white space of guided JSON",
        "the engine decides.",
        (),
    ),
    ("structured_outputs.disable_any_whitespace", "boolean", "forbids white space", "the engine decides.", (False,)),
    (
        "structured_outputs.disable_additional_properties",
        "boolean",
        "forbids additional properties",
        "set it in the schema.",
        (False,),
    ),
    (
        "structured_outputs.disable_fallback",
        "boolean",
        "forbids another backend",
        "there is no other backend.",
        (False, True),
    ),
    (
        "response_format.value",
        "any",
        "is a schema or expression",
        "name it schema or regex, according to its type.",
        (),
    ),
    *((f"response_format.{name}", "any", "is a schema or expression", _TYPE, ()) for name in _OF_OTHER_TYPES),
    *((f"nvext.{name}", "as of the field", f"is `{name}`", f"send {name}.", ()) for name in _NVEXT),
    ("guided_decoding_guide", "string", "constrains the format of the answer", _FORM, ()),
    ("guided_decoding_guide_type", "string", "is the kind of guided_decoding_guide", _FORM, ()),
    ("guided_decoding", "object", "constrains the format of the answer", _FORM, ()),
    ("guided_json_object", "boolean", "constrains the answer to a JSON object", "use response_format.", (False,)),
    ("format", "string, or a schema", "constrains the answer to JSON", "use response_format.", ("",)),
    (
        "grammar_lazy",
        "boolean",
        "applies the grammar after a trigger",
        "a grammar applies from the first token on.",
        (False,),
    ),
    ("grammar_triggers", "array", "start a lazy grammar", "a grammar applies from the first token on.", ()),
    ("stop_regex", "string, or array", "ends the answer before a match", "use stop.", ([],)),
    ("repetition_detection", "mapping", "ends an answer that repeats itself", "use max_tokens.", ()),
    ("watermarking", "boolean", "adds a watermark to the answer", "the engine has no watermark.", (False,)),
    (
        "early_stopping",
        "boolean, or never",
        "ends a beam search",
        "the engine's input with this name does not work.",
        (),
    ),
    ("top_p_min", "number", "is the minimum of a decaying top_p", "top_p does not decay.", (0,)),
    ("prompt_ignore_length", "integer", "exempts tokens from penalties", "the engine counts all of them.", (0,)),
    ("lora_request", "mapping", "applies an adapter", _BY_SETTINGS, ()),
    ("lora_path", "string", "applies an adapter", _BY_SETTINGS, ()),
    ("prompt_embeds", "string", "is a prompt as embeddings", "send text or token ids.", ()),
    ("input_ids", "array of token ids", "is the whole prompt", "send it to /v1/completions.", ()),
    ("media_io_kwargs", "object", "configures how media are read", _MEDIA, ()),
    ("mm_processor_kwargs", "object", "configures how media are read", _MEDIA, ()),
    ("images_config", "object", "configures how images are read", _MEDIA, ()),
    ("use_audio_in_video", "boolean", "reads the sound of videos", _MEDIA, (False,)),
    ("task", "string", "chooses a task of one model", "write it into a message.", ()),
    ("session_params", "object", "continues a session of the engine", "send the whole prompt.", ()),
    ("kv_transfer_params", "object", "moves a KV cache", _PARTS, ()),
    ("ec_transfer_params", "object", "moves the cache of an encoder", _PARTS, ()),
    ("disaggregated_params", "object", "moves a KV cache", _PARTS, ()),
    ("bootstrap_host", "string", "names the source of a KV cache", _PARTS, ()),
    ("bootstrap_port", "integer", "is where a KV cache comes from", _PARTS, ()),
    ("bootstrap_room", "integer", "is where a KV cache comes from", _PARTS, ()),
    ("disagg_prefill_dp_rank", "integer", "is where a KV cache comes from", _PARTS, ()),
    ("return_context_logits", "boolean", "returns the prompt's logits", "use prompt_logprobs.", (False,)),
    ("return_hidden_states", "boolean, or last", "returns hidden states", _INSIDE, (False,)),
    ("return_routed_experts", "boolean", "returns the experts of each token", _INSIDE, (False,)),
    ("routed_experts_start_len", "integer", "is the first token whose experts are returned", _INSIDE, (0,)),
    ("routed_experts_prompt_start", "integer", "is the first token whose experts are returned", _INSIDE, (0,)),
    ("return_cached_tokens_details", "boolean", "returns where tokens were cached", _INSIDE, (False,)),
    ("return_meta_info", "boolean", "returns metrics of the engine", "they are available at /metrics.", (False,)),
    ("return_prompt_text", "boolean", "returns the prompt", "use /v1/chat/completions/render.", (False,)),
    ("return_prompt_token_ids", "boolean", "returns the prompt's ids", "use return_token_ids.", (False,)),
    ("return_token_offsets", "boolean", "returns the positions of tokens in the prompt", "use /tokenize.", (False,)),
    ("logprob_token_ids", "array of token ids", "have their log-probs returned", "use top_logprobs.", ()),
)

# Parameters of scheduling and routing, which do not change an answer.
_NO_ROUTE = "there is nothing to choose between."
_HINTS: tuple[_Entry, ...] = (
    ("reasoning", "object", "configures the reasoning", "use reasoning_effort or chat_template_kwargs.", ()),
    ("thinking", "object", "configures the reasoning", "use reasoning_effort or chat_template_kwargs.", ()),
    ("include_reasoning", "boolean", "shows the reasoning", "it is always in a separate field.", (True,)),
    ("separate_reasoning", "boolean", "separates the reasoning from the answer", "it is always on.", (True,)),
    ("stream_reasoning", "boolean", "streams the reasoning", "it is always on.", (True,)),
    (
        "stream_interval",
        "integer",
        "is the number of tokens per chunk",
        "a chunk has the tokens that the engine sends together.",
        (1,),
    ),
    ("request_id", "string", "names the request", "send the header x-request-id.", ()),
    ("rid", "string", "names the request", "send the header x-request-id.", ()),
    ("session_id", "string", "names the conversation", _NO_ROUTE, ()),
    ("conversation_params", "object", "names the conversation", _NO_ROUTE, ()),
    ("agent_hierarchy", "any", "names the agent that sends the request", _NO_ROUTE, ()),
    ("nvext", "object", "has hints for NVIDIA's servers", "this gateway does not use them.", ()),
    ("extra_key", "string", "classifies the request", "use metadata, which is logged.", ()),
    ("custom_labels", "object", "labels metrics", "use metadata, which is logged.", ()),
    ("ngram_corpus_id", "string", "chooses the source of draft tokens", "use prediction.", ()),
    ("routed_dp_rank", "integer", "chooses a replica", _NO_ROUTE, ()),
    ("data_parallel_rank", "integer", "chooses a replica", _NO_ROUTE, ()),
    ("max_dynamic_patch", "integer", "limits parts of an image", _MEDIA, ()),
    ("min_dynamic_patch", "integer", "is the minimum number of parts of an image", _MEDIA, ()),
    ("return_mm_kwargs", "boolean", "returns the processed media", _MEDIA, (True, False)),
)

# Parameters that servers of trtllm-serve send to each other; clients do not use them.
_CHAT_ONLY: tuple[_Entry, ...] = (
    ("prompt_token_ids", "array of token ids", "is the whole prompt", "send it to /v1/completions.", ()),
    ("prompt_token_ids_b64", "string", "is the whole prompt", "send it to /v1/completions.", ()),
    (
        "injected_chat_template_kwargs",
        "array",
        "are names that a proxy server has added",
        "this gateway expects no proxy server.",
        (),
    ),
    ("detokenize", "boolean", "false leaves out the text", "use return_token_ids, or /v1/completions.", (True,)),
    ("add_special_tokens", "boolean", "adds BOS before the prompt", "the chat template adds it.", (False,)),
)

_COMPLETIONS_ONLY: tuple[_Entry, ...] = (
    ("thinking_token_budget", "integer", "limits the reasoning", "reasoning is only recognized in chat.", (-1,)),
)

_OTHERS = (
    *(_row(*entry[:4], *entry[4], endpoints=BOTH, source="extension") for entry in _CHANGES),
    *(_row(*entry[:4], *entry[4], source="extension") for entry in _CHAT_ONLY),
    *(_row(*entry[:4], *entry[4], source="extension", endpoints=("completions",)) for entry in _COMPLETIONS_ONLY),
    *(_row(*entry[:4], *entry[4], endpoints=BOTH, source="extension", hint=True) for entry in _HINTS),
)

UNSERVED: tuple[Parameter, ...] = (*_OPENAI, *_OTHERS)
"""Parameters that are rejected, unless their value is neutral or the operator's policy lets them pass."""


REQUESTS: Mapping[EndpointName, type[BaseModel]] = {"chat": ChatCompletionRequest, "completions": CompletionRequest}


def _served() -> Iterator[Parameter]:
    """The rows of fields: one for all endpoints of which it says the same."""
    tables = {endpoint: {row.name: row for row in _rows(model)} for endpoint, model in REQUESTS.items()}
    seen: list[Parameter] = []
    for rows in tables.values():
        for row in rows.values():
            if row not in seen:
                seen.append(row)
                alike = tuple(endpoint for endpoint, others in tables.items() if others.get(row.name) == row)
                yield replace(row, endpoints=alike)


def _rows(model: type[BaseModel], path: str = "") -> Iterator[Parameter]:
    """The rows of an object's fields, each before those of the objects in it."""
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True)
        default = None if default is PydanticUndefined else default
        neutral = () if default is None else (default,)
        for row in field.metadata:
            if isinstance(row, Parameter):
                own = neutral if row.neutral is None else row.neutral
                yield replace(row, name=f"{path}{name}", default=default, neutral=own)
        for kind in get_args(field.annotation):
            if inspect.isclass(kind) and issubclass(kind, BaseModel):
                yield from _rows(kind, f"{path}{name}.")


PARAMETERS: tuple[Parameter, ...] = (*_served(), *UNSERVED)
"""Every parameter that is known, each at most once for an endpoint."""

ROWS: Mapping[EndpointName, Mapping[str, Parameter]] = {
    endpoint: {row.name: row for row in PARAMETERS if endpoint in row.endpoints} for endpoint in REQUESTS
}
"""Rows by endpoint and name."""

SHARED = frozenset(row.name for row in PARAMETERS if row.shared)
"""Fields of chat completions that Responses and Messages take, which do not define them."""


def find(endpoint: EndpointName, name: str) -> Parameter | None:
    """Return the row of a parameter, or None for an unknown name."""
    return ROWS[endpoint].get(name)


def served(row: Parameter, capabilities: Mapping[str, Capability]) -> Capability:
    """Tell how a model with these capabilities serves a parameter."""
    return capabilities.get(row.name, row.how) if row.kind == "engine" else row.how
