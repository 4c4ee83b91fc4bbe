"""Checks of the cost of disconnected clients for others."""

from __future__ import annotations

import re
import time

from gateway_ops.conformance.api_reference import CHUNKS
from gateway_ops.conformance.bounded_http import CheckRequest, HttpAnswer, UnreachableError
from gateway_ops.conformance.checks import Group
from gateway_ops.conformance.replies import WholeReply, served
from gateway_ops.conformance.server_under_check import ServerUnderCheck
from gateway_ops.conformance.verdicts import UnclearError, UntrueError, shown

CANCEL = Group("Clients that disconnect")
_OF_A_GATEWAY = "gateway_requests_in_flight"
# Gauges of requests that run, by the names of the servers that have them.
_RUNNING = (
    _OF_A_GATEWAY,
    "vllm:num_requests_running",
    "sglang:num_running_reqs",
    "tgi_batch_current_size",
    "llamacpp:requests_processing",
)
_NUMBER = r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
_GAUGE = re.compile(rf"^(?:{'|'.join(_RUNNING)})(?:{{[^\n]*}})? {_NUMBER}$", re.MULTILINE)
# The engine's own gauges, relayed by a gateway: a request that a gateway no longer counts may still run there.
_ENGINE = re.compile(
    rf'^nv_trt_llm_request_metrics{{[^\n]*request_type="active"[^\n]*}} {_NUMBER}$|'
    rf"^nv_inference_pending_request_count(?:{{[^\n]*}})? {_NUMBER}$",
    re.MULTILINE,
)
_METRICS = CheckRequest("GET", "/metrics")
_MANY = 2000  # tokens of an answer whose end the client does not wait for
_ENDED_S = 5.0
_LOOK_S = 0.1
_EVENTS = 4


def _running(server: ServerUnderCheck) -> float | None:
    """Requests that run, as the server's metrics have it, or else those of the engine behind it."""
    answer = server.again(_METRICS)
    values = _GAUGE.findall(answer.text) if answer.status == 200 else []
    if not values:
        return None
    return sum(map(float, values)) or sum(float("".join(each)) for each in _ENGINE.findall(answer.text))


def _long(server: ServerUnderCheck) -> CheckRequest:
    limit = min(_MANY, server.context // 2) if server.context else _MANY
    return server.chat(limit=limit).changed(stream=True)


def _next_s(server: ServerUnderCheck, after: str = "") -> float:
    """Seconds that a short request takes; ``after``: what came before it and must not hold it up."""
    began = time.monotonic()
    served(_ended(server.again(server.chat(limit=1)), after))
    return time.monotonic() - began


def _ended(answer: HttpAnswer, after: str) -> HttpAnswer:
    if answer.late and after:
        raise UntrueError(f"after {after}, {answer.trouble}", answer)
    return answer


def _leave(server: ServerUnderCheck, request: CheckRequest, after: str = "") -> tuple[float, float | None]:
    """Begin a stream and leave it; return the seconds between its events, and the requests that ran meanwhile."""
    try:
        with server.http.opened(request) as answer:
            times = [time.monotonic() for _ in answer.events(_EVENTS)]
            seen = _ended(answer.answer(), after)
            if seen.status != 200 or not times:
                raise UnclearError(f"the stream got status {seen.status}")
            running = _running(server)
    except UnreachableError as error:
        raise UnclearError(str(error)) from None
    return (times[-1] - times[0]) / _EVENTS, running


@CANCEL.check(
    "cancel-frees",
    "After a client disconnects from its stream, the request ends in the server and in the engine behind it.",
    CHUNKS,
)
def _frees(server: ServerUnderCheck) -> None:
    before = _running(server)
    if before is None:
        raise UnclearError("the server's `/metrics` do not report the number of running requests")
    if before:
        raise UnclearError(f"{before:g} other requests are running")
    request = _long(server)
    alone_s = min(_next_s(server) for _ in range(2))
    between_s, running = _leave(server, request)
    if not running:
        raise UnclearError("the metrics do not count a stream that is being read")
    if between_s * _MANY < 2 * _ENDED_S:
        raise UnclearError("the stream may have ended by itself in the meantime")
    next_s, after_s = (_next_s(server, "a client left a long stream") for _ in range(2))
    if next_s > max(_ENDED_S, 4 * alone_s) and next_s > 4 * after_s:  # that request waited for the uncancelled work
        evidence = f"the request after the client left waited {next_s:.1f} s, and the one after it took {after_s:.1f} s"
        raise UntrueError(evidence, HttpAnswer(request, 200), HttpAnswer(server.chat(limit=1), 200))
    ends = time.monotonic() + _ENDED_S
    while _running(server):
        if time.monotonic() > ends:
            evidence = f"{_ENDED_S:g} s after the client disconnected (as by Ctrl-C), the request is still counted"
            raise UntrueError(evidence, HttpAnswer(request, 200), HttpAnswer(_METRICS, 200))
        time.sleep(_LOOK_S)
    page = server.again(_METRICS).text
    if _OF_A_GATEWAY in page and 'request_type="active"' not in page:
        raise UnclearError("the metrics do not report the requests that run in the engine behind the server")


@CANCEL.check(
    "cancel-harmless", "Clients that disconnect do not affect other clients: answers are the same as before.", CHUNKS
)
def _harmless(server: ServerUnderCheck) -> None:
    before = server.whole(server.chat())
    for after_what in ("", "a client left", "two clients left"):
        _leave(server, _long(server), after_what)
    after = [WholeReply(served(_ended(server.again(server.chat()), "three clients left"))) for _ in range(2)]
    texts = [seen.text for seen in after]
    if before.text in texts:
        return
    if texts[0] != texts[1]:
        raise UnclearError("the same greedy request gets different answers")
    raise UntrueError(
        f"the text is {shown(texts[0])}, and was {shown(before.text)} before clients disconnected", after[0].answer
    )
