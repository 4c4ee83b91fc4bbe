"""OpenAI's shape of errors, and the table from failures to HTTP responses."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.api.openai.unserved_paths import served_instead
from gateway.generation import EngineError, ErrorKind
from gateway.generation.engine import AdapterRejectedError, MalformedOutputError
from gateway.http.access.limits import LimitedError
from gateway.http.access_log import record_of
from gateway.http.client_connection import ClientDisconnectedError
from gateway.http.routing import allowed, client_path, meant
from gateway.serving.store import StoreError, StoreFullError
from gateway.telemetry.logs import cause
from gateway.text.bad_request import BadRequestError

_log = logging.getLogger(__name__)
_RETRY = {"Retry-After": "1"}
NO_RETRY = {"x-should-retry": "false"}

EXPOSED_HEADERS = (
    "Retry-After",
    "WWW-Authenticate",
    "request-id",
    "retry-after-ms",
    "x-ignored-parameters",
    *(f"x-ratelimit-{what}-{kind}" for what in ("limit", "remaining", "reset") for kind in ("requests", "tokens")),
    "x-request-id",
    "x-should-retry",
    "x-strict-schema-deviations",
)
"""Response headers that a web page of another origin may read, in addition to the CORS-safelisted ones."""

INVALID = "invalid_request_error"
CLIENT_GONE = 499  # nginx's status for a client that left; only the access log and the metrics show it
SERVER = "server_error"


class OpenAIError(Exception):
    """A request that ends with an error; see ``BadRequestError`` for status 400.

    Attributes:
        status: HTTP status.
        message: one sentence for the client.
        type: OpenAI's error type.
        param: the request parameter at fault, such as ``messages[0].content``.
        code: OpenAI's error code, None where it has none.
        headers: further response headers.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = INVALID,  # noqa: A002 - OpenAI's name
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type
        self.param = param
        self.code = code
        self.headers = headers

    def body(self) -> bytes:
        """Make the JSON of the error in OpenAI's shape."""
        return orjson.dumps(
            {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}
        )

    def response(self) -> Response:
        """Make the HTTP response, in the shape for the request's path."""
        return _ErrorResponse(self)


Shape = Callable[[OpenAIError, str], Response]
"""Makes the response of an error and a request's id, for paths whose errors are not OpenAI's."""


def shape_errors(scope: Scope, shape: Shape) -> None:
    """Give all errors of a request another shape than OpenAI's, in every layer."""
    scope.setdefault("state", {})["error_shape"] = shape


class _ErrorResponse(Response):
    """Sends an error in the shape that its request has.

    The shape is read when the error is sent, because layers reject requests before any route.
    """

    def __init__(self, error: OpenAIError) -> None:
        super().__init__(error.body(), error.status, error.headers, "application/json")
        self._error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the connection."""
        shape: Shape | None = scope.get("state", {}).get("error_shape")
        if shape is None:
            await super().__call__(scope, receive, send)
        else:
            await shape(self._error, record_of(scope).request_id)(scope, receive, send)


# Kind -> status, type, code, headers. 429 and 503 are worth another try, and the SDKs do try again.
_BY_KIND: Mapping[ErrorKind, tuple[int, str, str | None, Mapping[str, str] | None]] = {
    ErrorKind.CONTEXT_LENGTH: (400, INVALID, "context_length_exceeded", None),
    ErrorKind.INVALID_REQUEST: (400, INVALID, None, None),
    ErrorKind.UNSERVABLE: (400, INVALID, "model_not_supported", NO_RETRY),
    ErrorKind.QUEUE_FULL: (429, "rate_limit_error", "rate_limit_exceeded", _RETRY),
    ErrorKind.UNAVAILABLE: (503, SERVER, "service_unavailable", _RETRY),
    ErrorKind.CANCELLED: (503, SERVER, "request_cancelled", _RETRY),
    ErrorKind.TIMEOUT: (504, SERVER, "timeout", None),
    ErrorKind.INTERNAL: (500, SERVER, None, None),
}


Names = Callable[[], Mapping[str, str]]
"""Tells a request's names of parameters that errors of the engine call otherwise; most requests have no error."""


def from_engine(error: EngineError, names: Mapping[str, str]) -> OpenAIError:
    """Make the response to an engine's failure; the backend's words are only logged.

    Args:
        error: of the engine.
        names: the request's names of parameters, by the engine's names.
    """
    status, kind, code, headers = _BY_KIND[error.kind]
    blamed = "prompt" if error.kind is ErrorKind.CONTEXT_LENGTH else error.param
    param = names.get(blamed or "", None if blamed == "guide" else blamed)
    if error.detail:
        level = logging.ERROR if status == 500 else logging.WARNING
        about = {"event": "engine_failure", **cause(), "detail": error.detail[:2000]}
        _log.log(level, "engine failure: %s", error.message, extra=about)
    if isinstance(error, MalformedOutputError):
        code = "invalid_engine_output"
    elif isinstance(error, AdapterRejectedError):
        code, headers = "adapter_unusable", NO_RETRY
    if error.retry_after_s is not None:
        headers = {"Retry-After": str(error.retry_after_s)}
    return OpenAIError(status, error.message, type=kind, param=param, code=code or error.code, headers=headers)


def from_refusal(error: BadRequestError) -> OpenAIError:
    """Make the error of a rejected request, whose ``detail`` goes to the log only."""
    if error.detail:
        about = {"event": "request_refused", **cause(), "detail": error.detail[:500]}
        _log.warning("rejected: %s", error.message, extra=about)
    return OpenAIError(400, error.message, param=error.param, code=error.code)


def from_limit(error: LimitedError) -> OpenAIError:
    """Make the response to a request that exceeds a limit of its caller."""
    return OpenAIError(429, error.message, type=error.kind, code="rate_limit_exceeded", headers=error.headers())


def from_store(error: StoreError) -> OpenAIError:
    """Make the response to a failure of the store, which the store has logged."""
    if isinstance(error, StoreFullError):
        message = "The data of this request is larger than the store of the gateway allows."
        return OpenAIError(503, message, type=SERVER, code="store_full", headers=NO_RETRY)
    message = "The store of responses and conversations is unavailable; try again in a moment."
    return OpenAIError(503, message, type=SERVER, code="store_unavailable", headers=_RETRY)


async def handle_openai(request: Request, error: Exception) -> Response:
    """Respond to a failure of ``HANDLED``, in OpenAI's shape."""
    if isinstance(error, ClientDisconnectedError):
        record_of(request.scope).disconnected = True
        return Response(status_code=CLIENT_GONE)
    if isinstance(error, EngineError):
        error = from_engine(error, {})
    elif isinstance(error, BadRequestError):
        error = from_refusal(error)
    elif isinstance(error, StoreError):
        error = from_store(error)
    elif isinstance(error, LimitedError):
        error = from_limit(error)
    if not isinstance(error, OpenAIError):
        raise error
    record_of(request.scope).error = error.code or error.type
    return error.response()


HANDLED: tuple[type[Exception], ...] = (
    OpenAIError,
    EngineError,
    BadRequestError,
    ClientDisconnectedError,
    StoreError,
    LimitedError,
)


def _hint(request: Request) -> str:
    """Say what serves the same need as the path, or which path was meant; empty if neither is known."""
    given = request.scope["path"][:256]
    if instead := served_instead(given):
        return instead
    path = meant(given, request.app.router.routes)
    if path is None:
        return ""
    base = " The base URL of an OpenAI client must end with a single '/v1'." if path.startswith("/v1/") else ""
    if path.startswith("/v1/messages"):
        base = " The base URL of an Anthropic client must not contain '/v1'."
    return f" Did you mean {path}?{base}"


async def handle_http(request: Request, error: Exception) -> Response:
    """Respond to an error of the framework, such as an unknown path or a wrong method."""
    status = getattr(error, "status_code", 500)
    where = f"{request.method} {client_path(request.scope)[:256]}"
    if status == 404:
        failure = OpenAIError(404, f"Unknown request URL: {where}.{_hint(request)}", code="unknown_url")
    elif status == 405:
        reads = request.method in ("GET", "HEAD")
        instead = served_instead(request.scope["path"]) if reads else ""
        headers = {"Allow": allowed(request.scope, request.app.router.routes)}
        message = f"Method not allowed: {where}.{instead}"
        failure = OpenAIError(405, message, code="method_not_supported", headers=headers)
    else:
        failure = OpenAIError(status, f"{HTTPStatus(status).phrase}.", type=INVALID if status < 500 else SERVER)
    return await handle_openai(request, failure)


async def handle_defect(request: Request, error: Exception) -> Response:
    """Respond to a defect of the gateway; the traceback is only logged."""
    del error
    record = record_of(request.scope)
    record.error = SERVER
    failure = OpenAIError(
        500,
        f"The gateway failed to process the request; its log has the cause under the request id {record.request_id}.",
        type=SERVER,
    )
    return failure.response()
