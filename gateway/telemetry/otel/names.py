"""Names of OpenTelemetry's semantic conventions, all in one module because those of GenAI change often.

HTTP: https://opentelemetry.io/docs/specs/semconv/http/http-spans/. GenAI: the repository
open-telemetry/semantic-conventions-genai, at 024a4f9; all of it has the status "development". Token usage has the name
of the released conventions, which collectors and dashboards know.
"""

from __future__ import annotations

from typing import Final

PROVIDER_VALUE: Final = "nvidia.triton"  # the conventions have none for it, and allow others

OPERATIONS: Final = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
    "/pooling": "embeddings",
    "/v1/rerank": "rerank",
    "/v2/rerank": "rerank",
    "/rerank": "rerank",
    "/v1/score": "score",
    "/score": "score",
    "/v1/classify": "classify",
    "/classify": "classify",
}
"""``gen_ai.operation.name`` by route; the conventions know the first three of these values, and allow others."""

# Any span
ERROR_TYPE: Final = "error.type"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"

# The span of an HTTP request
HTTP_METHOD: Final = "http.request.method"
METHODS: Final = frozenset({"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"})
OTHER_METHOD: Final = "_OTHER"
HTTP_ROUTE: Final = "http.route"
HTTP_STATUS: Final = "http.response.status_code"
URL_PATH: Final = "url.path"
URL_SCHEME: Final = "url.scheme"
REQUEST_ID: Final = "gateway.request.id"
KEY_NAME: Final = "gateway.key.name"

# The span of a request to an engine
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
DIMENSIONS: Final = "gen_ai.embeddings.dimension.count"
MAX_TOKENS: Final = "gen_ai.request.max_tokens"
CHOICES: Final = "gen_ai.request.choice.count"
STREAM: Final = "gen_ai.request.stream"
SAMPLING: Final = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "seed": "gen_ai.request.seed",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
}
"""By the names of ``SamplingParams``."""
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"

# Spans and events of our own
STEPS: Final = {"prompt": "gateway.prompt", "queue": "gateway.queue"}
FIRST_TOKEN: Final = "gateway.first_token"  # noqa: S105 - no password

# Metrics
REQUEST_DURATION: Final = "gen_ai.server.request.duration"
TIME_TO_FIRST_TOKEN: Final = "gen_ai.server.time_to_first_token"  # noqa: S105 - no password
TIME_PER_OUTPUT_TOKEN: Final = "gen_ai.server.time_per_output_token"  # noqa: S105 - no password
TOKEN_USAGE: Final = "gen_ai.client.token.usage"  # noqa: S105 - no password
TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105 - no password

DURATION_BOUNDS: Final = tuple(0.01 * 2**power for power in range(14))
FIRST_TOKEN_BOUNDS: Final = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
PER_TOKEN_BOUNDS: Final = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
TOKEN_BOUNDS: Final = tuple(4**power for power in range(14))
