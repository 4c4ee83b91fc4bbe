"""The table of the log's events: what each line of the gateway is called, what it means and what to do about it.

Each call of a logger names its event as ``extra={"event": ...}``. Nothing reads this table while the gateway runs:
docs/observability.md is made from it, and a test holds it and the calls together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

Level = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Event:
    """What is the same of all lines of an event.

    Attributes:
        level: of its lines; several where the case decides.
        means: what has happened.
        do: what to do about it, in sentences; empty where nothing needs doing.
        of_request: whether a request is the cause, whose ``request_id`` the line has.
    """

    level: tuple[Level, ...]
    means: str
    do: str = ""
    of_request: bool = False


_REQUESTS: Final[Mapping[str, Event]] = {
    "request": Event(
        ("info", "debug"),
        "the access line: a request is answered. Debug is for health checks and `/metrics`",
        "Where it has `error`: see [its code](api.md#errors).",
        of_request=True,
    ),
    "background_response": Event(
        ("info",), "the access line of a background response, which ended after its request", of_request=True
    ),
    "background_failed": Event(
        ("error",),
        "a background response ended by a defect of the gateway, with its traceback",
        "Report it.",
        of_request=True,
    ),
    "background_not_kept": Event(
        ("error",),
        "the end of a background response could not be written to the store",
        "Look for `store_unavailable` before it.",
        of_request=True,
    ),
    "engine_failure": Event(
        ("warning", "error"),
        "Triton or the engine failed a request; `detail` has its own words, which no client sees. Error is status 500",
        "Read `detail`, and Triton's log under the same id.",
        of_request=True,
    ),
    "answer_unreadable": Event(
        ("error",),
        "the engine's answer is not as the gateway expects it, with the traceback",
        "Hold the model's outputs against `gateway check`, and report it.",
        of_request=True,
    ),
    "request_retried": Event(
        ("info",), "a request without a first token is sent to the endpoint in `elsewhere`", of_request=True
    ),
    "request_refused": Event(
        ("warning",),
        "a request is refused for something whose cause, in `detail`, the client is not told, such as an error of the "
        "chat template",
        "Where many have the same `detail`: mend the template, or the client.",
        of_request=True,
    ),
    "request_refused_unread": Event(
        ("info", "debug"),
        "what came is no valid HTTP, was too large or too slow, or found no room; it has no access line",
        of_request=True,
    ),
    "schemas_not_strict": Event(
        ("info",),
        "JSON schemas at `paths` of a request are ones that OpenAI's strict mode would refuse",
        of_request=True,
    ),
    "client_cut_off": Event(
        ("warning",),
        "a client did not read its answer for `timeouts.client_read_s`, and its connection is closed; without the id "
        "where it had sent further requests",
        "Look at the client, or at the proxy before it.",
        of_request=True,
    ),
    "token_refused": Event(("debug",), "why a JWT is not valid; the client gets 401"),
}

_ENGINES: Final[Mapping[str, Event]] = {
    "engine_ready": Event(("info",), "a Triton's model can be used, by the path and transport that the line has"),
    "engine_not_ready": Event(
        ("warning",),
        "a Triton's model cannot be used, and why; said again where the reason changes",
        "See [runbook.md](runbook.md#modelnotready) unless `engine_ready` follows soon.",
    ),
    "engine_suspected": Event(
        ("warning",),
        "an engine gives no token for `stall_s`: the one-token test is sent, and requests are still accepted",
        "Look at Triton's log.",
    ),
    "engine_stalled": Event(
        ("warning",),
        "an engine did not respond to the one-token test: new requests are rejected",
        "See [runbook.md](runbook.md#enginestalled).",
    ),
    "engine_failing": Event(
        ("warning",),
        "an engine failed several requests in a row, and the one-token test: new requests are rejected",
        "See [runbook.md](runbook.md#enginestalled).",
    ),
    "engine_fails_in_part": Event(
        ("warning",),
        "an engine begins to fail a part of its requests (`share`), or fails no more than usual",
        "See [runbook.md](runbook.md#enginefailsinpart).",
    ),
    "endpoint_out": Event(
        ("warning",),
        "a Triton of several has failed so many requests in a row that it is left out for a while",
        "See [runbook.md](runbook.md#endpointout).",
    ),
    "engine_recovered": Event(("info",), "an engine that was suspected gives tokens again"),
    "engine_warning": Event(
        ("warning",), "what the model's configuration costs, or does wrong", "Change what it says, with the next build."
    ),
    "health_check_failed": Event(
        ("warning",), "a health check had no answer, but fewer in a row than make the engine unready"
    ),
    "endpoint_added": Event(("info",), "the model has one Triton more"),
    "endpoint_removed": Event(("info",), "a Triton is no longer listed; what runs there ends first"),
    "endpoints_doubtful": Event(
        ("warning",),
        "the list of a model's endpoints cannot be read, or is too long",
        "Mend the name or the file in `triton.endpoints`.",
    ),
    "transport_chosen": Event(
        ("warning",),
        "requests to a Triton travel by `h2` or `grpcio`, which is not what they would begin with, and why",
        "For `grpcio`: see [transports.md](transports.md).",
    ),
    "triton_certificates_used": Event(("info",), "a Triton is connected by the new certificates"),
    "triton_certificates_unused": Event(
        ("warning",),
        "a Triton does not take the new certificates; the old connection stays, and it is tried again",
        "Hold them against Triton's: [tls.md](tls.md).",
    ),
    "triton_metrics_unread": Event(("debug",), "a Triton's metrics could not be read for `/metrics`"),
}

_MODELS: Final[Mapping[str, Event]] = {
    "model_served": Event(("info",), "a model is served, with its path, tokenizer, context and family"),
    "model_lossy": Event(
        ("warning",),
        "answers of a model lack something, such as the reason of their end",
        "What the line has in parentheses; where it has none, the engine cannot do better.",
    ),
    "model_not_ready": Event(
        ("warning",), "a model of reloaded settings has no engine yet", "Look for its `engine_not_ready`."
    ),
    "model_closed": Event(("info",), "nothing uses the former model of a reload any more"),
    "family_doubtful": Event(
        ("warning",), "the model may be of another family than it is taken for", "Set `family`, as the line says."
    ),
    "template_fails": Event(
        ("warning",), "the chat template cannot render even a message of a user, and why", "Mend the template."
    ),
    "prompts_tokenized_whole": Event(
        ("warning",), "later turns of a conversation cost the tokenization of all of it, and why"
    ),
    "max_seq_len_lowered": Event(
        ("warning",), "the settings give more context than the engine has", "Set `max_seq_len` to what the line says."
    ),
}

_PROCESS: Final[Mapping[str, Event]] = {
    "listening": Event(("info",), "clients can connect"),
    "shutting_down": Event(("info",), "a signal came; running answers end first"),
    "no_api_keys": Event(
        ("warning",), "everyone who reaches the gateway may use it", "Set keys, unless the network keeps others out."
    ),
    "connections_limited": Event(
        ("warning",), "the process may open too few files for `limits.max_connections`", "Raise `ulimit -n`."
    ),
    "connections_full": Event(
        ("warning",),
        "as many clients are connected as may be; said once a minute",
        "Raise `limits.max_connections`, or start another gateway.",
    ),
    "files_full": Event(
        ("warning",),
        "the process may open no more files for connections; said once a minute",
        "Raise `ulimit -n`, or lower `limits.max_connections`.",
    ),
    "connection_not_taken": Event(
        ("error",), "a TLS connection could not be accepted, mostly for want of open files", "Raise `ulimit -n`."
    ),
    "tls_handshake_failed": Event(
        ("info",), "a client did not get to speak TLS; `unsaid` is how many more since the last line"
    ),
    "certificates_reloaded": Event(("info",), "files of certificates have changed, and are used"),
    "certificates_refused": Event(
        ("error",),
        "changed files of certificates cannot be used; the former ones stay",
        "Mend the files: [tls.md](tls.md).",
    ),
    "memory_state": Event(
        ("info", "warning"),
        "memory is short (`soft`, `hard`), or no longer (`normal`)",
        "See [runbook.md](runbook.md#gatewayshortofmemory).",
    ),
    "worker_replaced": Event(
        ("error",),
        "a worker's process ended, and another one takes its place",
        "Look for its last line, and the kernel's.",
    ),
    "workers_killed": Event(("error",), "workers had not ended a while after `server.shutdown_s`"),
    "mirror_report": Event(("info",), "what mirrored requests differ in so far"),
    "mirror_restarted": Event(
        ("error",), "the process of mirrored requests ended, and is started again", "Look for its last line."
    ),
    "mirror_not_started": Event(("error",), "settings keep requests from being mirrored", "Mend what the line says."),
}

_SETTINGS: Final[Mapping[str, Event]] = {
    "settings_reloaded": Event(("info",), "new settings are in force; the line names the models that differ"),
    "setting_renamed": Event(
        ("warning",),
        "a setting has a former value, which is read as the new one",
        "Write the new value into the settings file or the environment.",
    ),
    "settings_refused": Event(
        ("error",),
        "new settings cannot be used; the former ones stay. A line for each mistake",
        "See [runbook.md](runbook.md#settingsrefused).",
    ),
    "task_restarted": Event(
        ("error",),
        "a task that looks after something met a defect, and begins again; with the traceback",
        "Report it.",
    ),
    "restart_needed": Event(
        ("warning",), "a changed setting is one that a running gateway does not take", "Restart it at your leisure."
    ),
    "keys_reloaded": Event(("info",), "the file of keys has changed, and is used"),
    "keys_refused": Event(
        ("error",), "the changed file of keys cannot be used; the former keys stay. A line for each mistake", "Mend it."
    ),
    "identity_keys_unread": Event(
        ("error",),
        "the identity provider's keys cannot be read; known ones stay",
        "See whether the gateway reaches `auth.jwt.jwks_url`.",
    ),
    "identity_keys_read": Event(("warning",), "they can be read again"),
    "identity_key_left_out": Event(
        ("warning",), "one of them is not understood: its tokens get 401", "See which algorithm the provider uses."
    ),
}

_STORES: Final[Mapping[str, Event]] = {
    "store_unavailable": Event(
        ("error",),
        "responses and conversations cannot be kept or read",
        "See [runbook.md](runbook.md#storeunavailable).",
    ),
    "store_available": Event(("warning",), "they can again"),
    "store_replaced": Event(
        ("error",), "the store's file was removed or replaced while it was used", "Find who did; what it held is gone."
    ),
    "store_not_opened": Event(
        ("warning",), "no state is kept: the default file cannot be used", "Set `state.path`, or `state.store: none`."
    ),
    "limits_not_shared": Event(
        ("error",),
        "Redis is away: this gateway counts limits by itself, and takes the part that the line says",
        "Start Redis, or mend the way to it.",
    ),
    "limits_shared": Event(("warning",), "Redis can be used again"),
}

GROUPS: Final[Mapping[str, Mapping[str, Event]]] = MappingProxyType(
    {
        "Requests": _REQUESTS,
        "Engines and endpoints": _ENGINES,
        "Models": _MODELS,
        "The process and its connections": _PROCESS,
        "Settings and keys": _SETTINGS,
        "State and shared limits": _STORES,
    }
)
"""The events by name, in groups."""
