"""The suite: finds the server's model, then runs every check once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from gateway.serving.comparison.facts import generates
from gateway.text.bad_request import first_of
from gateway.text.harmless import one_line
from gateway_ops.conformance.bounded_http import CheckRequest, Http, HttpAnswer, UnreachableError
from gateway_ops.conformance.cancel_checks import CANCEL
from gateway_ops.conformance.checks import Check, Group
from gateway_ops.conformance.completion_checks import COMPLETIONS
from gateway_ops.conformance.error_checks import ERROR, FAULTS, LIST
from gateway_ops.conformance.logprob_checks import LOGPROBS
from gateway_ops.conformance.parameter_checks import PARAMETERS, TOOLS
from gateway_ops.conformance.replies import WholeReply, is_named
from gateway_ops.conformance.server_under_check import MODELS, ServerUnderCheck
from gateway_ops.conformance.stream_checks import FORM, STREAMS
from gateway_ops.conformance.text_checks import FINISH, STOP, TEXT
from gateway_ops.conformance.usage_checks import USAGE
from gateway_ops.conformance.verdicts import NotOfferedError, UnclearError, UntrueError, Verdict, shown

GROUPS: tuple[Group, ...] = (
    USAGE,
    FINISH,
    STOP,
    TEXT,
    FORM,
    STREAMS,
    LOGPROBS,
    PARAMETERS,
    TOOLS,
    COMPLETIONS,
    LIST,
    FAULTS,
    CANCEL,
    ERROR,  # last: reads all errors so far, and its prompt, as long as the context, takes longest
)
_ALL_S = 600.0


class UnsuitableServerError(Exception):
    """A server that cannot be checked; the message says why."""


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """The outcome of a check.

    Attributes:
        group: title of its group.
        check: the check.
        verdict: the verdict.
        evidence: the observation, or why the promise cannot be checked; empty where the promise is held.
        curl: lines of a shell that show the evidence.
    """

    group: str
    check: Check
    verdict: Verdict
    evidence: str = ""
    curl: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "group": self.group,
            "name": self.check.name,
            "promise": self.check.promise,
            "source": self.check.source,
            "verdict": self.verdict.value,
            "evidence": self.evidence,
            "curl": list(self.curl),
        }


class _Listed(BaseModel):
    """A model of the list, with the names that servers have for its context."""

    model_config = ConfigDict(extra="ignore")
    id: str
    max_model_len: int | None = None
    context_length: int | None = None
    context_window: int | None = None
    max_context_length: int | None = None
    gateway: Any = None


class _List(BaseModel):
    data: list[_Listed]


def meet(url: str, model: str | None, api_key: str | None, timeout_s: float) -> ServerUnderCheck:
    """Find a server's model, and the fields with which its responses are equal each time.

    Args:
        url: its base URL, with or without ``/v1``.
        model: the name in requests; None for the only listed one.
        api_key: a bearer key; None without one.
        timeout_s: seconds for an answer.

    Raises:
        UnsuitableServerError: the server does not respond, or rejects a plain request.
    """
    try:
        http = Http(url, api_key, timeout_s)
        listed = _models(url, http.send(CheckRequest("GET", MODELS)))
    except UnreachableError as error:
        raise UnsuitableServerError(str(error)) from None
    names = None if listed is None else [each.id for each in listed]
    server = ServerUnderCheck(http, model or _only(listed), time.monotonic() + _ALL_S)
    server.listed = names
    for each in listed or ():
        if each.id == server.model:
            known = (each.max_model_len, each.context_length, each.context_window, each.max_context_length)
            server.context = next((value for value in known if value and value > 0), None)
    _settle(server)
    return server


def _models(url: str, answer: HttpAnswer) -> list[_Listed] | None:
    """The models that a server lists; None where it has no list."""
    if not answer.status:
        raise UnsuitableServerError(f"{url} is not a server of the API: {answer.trouble}")
    if answer.status in {401, 403}:
        raise UnsuitableServerError(
            f"status {answer.status}: give a key of the server with --api-key or GATEWAY_API_KEY"
        )
    try:
        return _List.model_validate_json(answer.body).data if answer.status == 200 else None
    except ValidationError:
        return None


def _only(listed: list[_Listed] | None) -> str:
    names = [each.id for each in listed or () if generates({"gateway": each.gateway})]
    if len(names) == 1:
        return names[0]
    raise UnsuitableServerError(f"name a model with --model{_lists(names)}")


def _lists(names: list[str] | None) -> str:
    if not names:
        return "; the server lists no models"
    first, more = first_of(names)
    return f"; the server lists {', '.join(map(shown, first))} {more}".rstrip()


def _settle(server: ServerUnderCheck) -> None:
    """Leave out of greedy requests what the server rejects by name, and compare two of their responses."""
    for _ in range(4):
        request = server.chat()
        try:
            answer = server.again(request)
        except UnclearError as error:
            raise UnsuitableServerError(str(error)) from None
        if answer.trouble:
            raise UnsuitableServerError(f"the server does not respond to a plain chat request: {answer.trouble}")
        if answer.status == 200:
            break
        _without_what_is_rejected(server, answer)
    try:
        seen = WholeReply(answer)
        server.steady = "temperature" in server.greedy and WholeReply(server.ask(request)).text == seen.text
    except (UntrueError, UnclearError) as error:
        raise UnsuitableServerError(
            f"the response to a plain chat request does not conform to the API: {error}"
        ) from None


def _without_what_is_rejected(server: ServerUnderCheck, answer: HttpAnswer) -> None:
    if answer.status in {401, 403}:
        raise UnsuitableServerError(
            f"status {answer.status}: give a key of the server with --api-key or GATEWAY_API_KEY"
        )
    if answer.status == 404 and (server.listed is None or server.model not in server.listed):
        raise UnsuitableServerError(f"the model {shown(server.model)} is not served{_lists(list(server.listed or ()))}")
    if answer.status in {400, 422}:
        if server.limit == "max_tokens" and is_named(answer, "max_tokens"):
            server.limit = "max_completion_tokens"
            return
        for name in tuple(server.greedy):
            if is_named(answer, name):
                del server.greedy[name]
                return
    raise UnsuitableServerError(f"a plain chat request gets status {answer.status}: {shown(answer.text, 200)}")


def run(server: ServerUnderCheck, tell: Callable[[str], None] = lambda _: None) -> Iterator[CheckOutcome]:
    """Run every check, in the order of the groups.

    Args:
        server: the server.
        tell: gets the title of each group as the group begins.
    """
    for group in GROUPS:
        tell(group.title)
        for check in group.checks:
            yield run_one(server, group.title, check)


def run_one(server: ServerUnderCheck, group: str, check: Check) -> CheckOutcome:
    """Run a check; an error of it becomes a verdict with evidence."""
    try:
        check.body(server)
    except UntrueError as error:
        lines = tuple(server.http.curl(request) for request in error.requests)
        return CheckOutcome(group, check, Verdict.UNTRUE, one_line(str(error)), lines)
    except UnclearError as error:
        return CheckOutcome(group, check, Verdict.UNCLEAR, one_line(str(error)))
    except NotOfferedError as error:
        return CheckOutcome(group, check, Verdict.NOT_OFFERED, one_line(str(error)))
    return CheckOutcome(group, check, Verdict.TRUE)


def counts(outcomes: list[CheckOutcome]) -> Mapping[Verdict, int]:
    """Count the checks by verdict."""
    return {verdict: sum(each.verdict is verdict for each in outcomes) for verdict in Verdict}
