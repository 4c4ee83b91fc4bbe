"""The table of the log's events: what each line of the gateway is called, what it means and what to do about it.

Each call of a logger in ``gateway`` names its event as ``extra={"event": ...}``. docs/reference/metrics-and-events.md
is made from this table, and a test holds the table and the calls together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

Level = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Event:
    """The facts that all log lines of an event share.

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
        "the access log line of a request. The level is debug for health checks and `/metrics`",
        "If the line has `error`: see the [table by error code](../how-to/troubleshooting.md#by-error-code).",
        of_request=True,
    ),
    "background_response": Event(
        ("info",), "the access log line of a background response, written at its end", of_request=True
    ),
    "background_failed": Event(
        ("error",),
        "a background response failed because of a bug in the gateway; the line has the traceback",
        "Report it.",
        of_request=True,
    ),
    "background_not_kept": Event(
        ("error",),
        "the result of a background response could not be stored",
        "Look for an earlier `store_unavailable` line.",
        of_request=True,
    ),
    "engine_failure": Event(
        ("warning", "error"),
        "Triton or the engine failed a request; `detail` has the original error text, which clients do not see. The "
        "level is error for status 500",
        "Read `detail` and Triton's log for the same id.",
        of_request=True,
    ),
    "answer_unreadable": Event(
        ("error",),
        "the engine's response could not be parsed; the line has the traceback",
        "Run `gateway check` for the model, and report the bug.",
        of_request=True,
    ),
    "request_retried": Event(
        ("info",),
        "a request failed before its first token and is retried on the endpoint in `elsewhere`",
        of_request=True,
    ),
    "request_refused": Event(
        ("warning",),
        "a request is rejected; `detail` has the cause, such as an error of the chat template, which the client does "
        "not see",
        "If many lines have the same `detail`: fix the chat template or the client.",
        of_request=True,
    ),
    "request_refused_unread": Event(
        ("info", "debug"),
        "a request was not valid HTTP, too large or too slow, or arrived over the limit of connections; it has no "
        "access log line",
        of_request=True,
    ),
    "schemas_not_strict": Event(
        ("info",),
        "the JSON schemas at `paths` of a request would be rejected by OpenAI's strict mode",
        of_request=True,
    ),
    "client_cut_off": Event(
        ("warning",),
        "a client did not read its response for `timeouts.client_read_s`, and its connection is closed; the line has "
        "no id if the client had sent further requests on the connection",
        "Check the client and the proxy in front of it.",
        of_request=True,
    ),
    "token_refused": Event(("debug",), "a JWT is not valid, with the reason; the client gets 401"),
}

_ENGINES: Final[Mapping[str, Event]] = {
    "engine_ready": Event(("info",), "the model of a Triton server is ready; the line has its path and transport"),
    "engine_not_ready": Event(
        ("warning",),
        "the model of a Triton server is not ready, with the reason; logged again when the reason changes",
        "See [troubleshooting.md](../how-to/troubleshooting.md#modelnotready) unless `engine_ready` follows soon.",
    ),
    "engine_suspected": Event(
        ("warning",),
        "an engine returned no token for `stall_s` seconds: the one-token test is sent, and requests are still "
        "accepted",
        "Look at Triton's log.",
    ),
    "engine_stalled": Event(
        ("warning",),
        "an engine did not respond to the one-token test: new requests are rejected",
        "See [troubleshooting.md](../how-to/troubleshooting.md#enginestalled).",
    ),
    "engine_failing": Event(
        ("warning",),
        "an engine failed several requests in a row and the one-token test: new requests are rejected",
        "See [troubleshooting.md](../how-to/troubleshooting.md#enginestalled).",
    ),
    "engine_fails_in_part": Event(
        ("warning",),
        "an engine fails a larger share of its requests (`share`) than usual, or has recovered",
        "See [troubleshooting.md](../how-to/troubleshooting.md#enginefailsinpart).",
    ),
    "endpoint_out": Event(
        ("warning",),
        "one of several Triton servers failed too many requests in a row and gets no requests for a while",
        "See [troubleshooting.md](../how-to/troubleshooting.md#endpointout).",
    ),
    "engine_recovered": Event(("info",), "an engine returns tokens again"),
    "engine_warning": Event(
        ("warning",),
        "a limitation or a mistake in the configuration of the Triton model",
        "Change the configuration as the line says, at the latest with the next build of the engine.",
    ),
    "health_check_failed": Event(
        ("warning",), "a health check failed; the engine stays ready until several health checks in a row have failed"
    ),
    "endpoint_added": Event(("info",), "a Triton server was added to the endpoints of the model"),
    "endpoint_removed": Event(
        ("info",), "a Triton server was removed from the endpoints of the model; its running requests finish first"
    ),
    "endpoints_doubtful": Event(
        ("warning",),
        "the list of a model's endpoints cannot be read or is too long",
        "Fix the name or the file in `triton.endpoints`.",
    ),
    "transport_chosen": Event(
        ("warning",),
        "requests to a Triton server use the transport `h2` or `grpcio` instead of the default, with the reason",
        "For `grpcio`: see [transports](../explanation/reliability.md#transports).",
    ),
    "triton_certificates_used": Event(("info",), "the connection to a Triton server uses the new certificates"),
    "triton_certificates_unused": Event(
        ("warning",),
        "a Triton server does not accept the new certificates; the previous connection stays in use, and the gateway "
        "tries again",
        "Compare them with Triton's certificates: [TLS](../how-to/keys.md#tls-and-mtls).",
    ),
    "triton_metrics_unread": Event(("debug",), "the metrics of a Triton server could not be read for `/metrics`"),
}

_MODELS: Final[Mapping[str, Event]] = {
    "model_served": Event(("info",), "a model is served; the line has its path, tokenizer, context and family"),
    "model_lossy": Event(
        ("warning",),
        "answers of a model are incomplete, for example without a finish reason",
        "Do what the line says in parentheses; without parentheses there is no fix for this engine.",
    ),
    "model_not_ready": Event(
        ("warning",),
        "a model is not ready after a reload of the settings",
        "Look for the `engine_not_ready` line of the model.",
    ),
    "model_closed": Event(("info",), "the previous version of a reloaded model is closed"),
    "family_doubtful": Event(
        ("warning",),
        "the model may belong to another family than the gateway assumes",
        "Set `family`, as the line says.",
    ),
    "template_fails": Event(
        ("warning",), "the chat template cannot render a user message, with the reason", "Fix the chat template."
    ),
    "prompts_tokenized_whole": Event(
        ("warning",), "each turn of a conversation tokenizes the whole conversation again, with the reason"
    ),
    "max_seq_len_lowered": Event(
        ("warning",),
        "the setting `max_seq_len` is larger than the context of the engine",
        "Set `max_seq_len` to the value of the line.",
    ),
}

_PROCESS: Final[Mapping[str, Event]] = {
    "listening": Event(("info",), "the gateway listens for connections"),
    "shutting_down": Event(("info",), "a signal was received; running requests finish first"),
    "no_api_keys": Event(
        ("warning",),
        "no API keys are set: every client that can reach the gateway may use it",
        "Set API keys unless the network restricts access.",
    ),
    "connections_limited": Event(
        ("warning",), "the limit of open files is too low for `limits.max_connections`", "Raise `ulimit -n`."
    ),
    "connections_full": Event(
        ("warning",),
        "the limit of connections is reached; logged at most once a minute",
        "Raise `limits.max_connections`, or start another gateway.",
    ),
    "files_full": Event(
        ("warning",),
        "the limit of open files is reached; logged at most once a minute",
        "Raise `ulimit -n`, or lower `limits.max_connections`.",
    ),
    "connection_not_taken": Event(
        ("error",),
        "a TLS connection could not be accepted, usually because the limit of open files is reached",
        "Raise `ulimit -n`.",
    ),
    "tls_handshake_failed": Event(
        ("info",),
        "a TLS handshake with a client failed; `unsaid` is the number of further failures since the last line",
    ),
    "certificates_reloaded": Event(("info",), "certificate files have changed and are used"),
    "certificates_refused": Event(
        ("error",),
        "changed certificate files cannot be used; the previous certificates stay in use",
        "Fix the files: [TLS](../how-to/keys.md#tls-and-mtls).",
    ),
    "memory_state": Event(
        ("info", "warning"),
        "the memory use is above a limit (`soft`, `hard`) or normal again (`normal`)",
        "See [troubleshooting.md](../how-to/troubleshooting.md#gatewayshortofmemory).",
    ),
    "worker_replaced": Event(
        ("error",),
        "a worker process ended and is replaced",
        "Read the last log line of the worker and the kernel log.",
    ),
    "workers_killed": Event(("error",), "workers did not stop after `server.shutdown_s` seconds and are killed"),
    "mirror_report": Event(("info",), "a summary of the differences of mirrored requests so far"),
    "mirror_restarted": Event(
        ("error",), "the process for mirrored requests ended and is restarted", "Read the last log line of the process."
    ),
    "mirror_not_started": Event(
        ("error",), "requests are not mirrored because of the settings", "Fix the setting that the line names."
    ),
}

_SETTINGS: Final[Mapping[str, Event]] = {
    "settings_reloaded": Event(("info",), "new settings are in use; the line names the changed models"),
    "setting_renamed": Event(
        ("warning",),
        "a setting has a deprecated value, which is read as the new value",
        "Write the new value into the settings file or the environment.",
    ),
    "settings_refused": Event(
        ("error",),
        "new settings are rejected; the previous settings stay in use. One line for each mistake",
        "See [troubleshooting.md](../how-to/troubleshooting.md#settingsrefused).",
    ),
    "task_restarted": Event(
        ("error",),
        "a background task failed because of a bug in the gateway and restarts; the line has the traceback",
        "Report it.",
    ),
    "restart_needed": Event(
        ("warning",), "a changed setting needs a restart of the gateway", "Restart the gateway to use the new value."
    ),
    "keys_reloaded": Event(("info",), "the key file has changed and is used"),
    "keys_refused": Event(
        ("error",),
        "the changed key file is rejected; the previous keys stay in use. One line for each mistake",
        "Fix the key file.",
    ),
    "identity_keys_unread": Event(
        ("error",),
        "the identity provider's keys cannot be read; the previous keys stay in use",
        "Check that the gateway can reach `auth.jwt.jwks_url`.",
    ),
    "identity_keys_read": Event(("warning",), "the identity provider's keys can be read again"),
    "identity_key_left_out": Event(
        ("warning",),
        "a key of the identity provider is not supported: requests with its tokens get 401",
        "Check which algorithm the provider uses.",
    ),
}

_STORES: Final[Mapping[str, Event]] = {
    "store_unavailable": Event(
        ("error",),
        "responses and conversations cannot be stored or read",
        "See [troubleshooting.md](../how-to/troubleshooting.md#storeunavailable).",
    ),
    "store_available": Event(("warning",), "responses and conversations can be stored and read again"),
    "store_replaced": Event(
        ("error",),
        "the file of the store was removed or replaced while in use",
        "Find the cause; the content of the store is lost.",
    ),
    "store_not_opened": Event(
        ("warning",),
        "responses are not stored because the default file cannot be used",
        "Set `state.path`, or `state.store: none`.",
    ),
    "limits_not_shared": Event(
        ("error",),
        "Redis is unreachable: this gateway counts limits alone and applies the share that the line says",
        "Start Redis, or fix the connection to it.",
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
