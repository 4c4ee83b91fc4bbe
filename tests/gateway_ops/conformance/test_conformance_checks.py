"""Each check of the suite: an honest server passes it, and one that lies does not."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from gateway_ops.conformance import cancel_checks, suite
from gateway_ops.conformance.bounded_http import Http, HttpAnswer
from gateway_ops.conformance.checks import Check
from gateway_ops.conformance.server_under_check import ServerUnderCheck
from gateway_ops.conformance.suite import CheckOutcome
from gateway_ops.conformance.verdicts import UntrueError, Verdict
from tests.gateway_ops.conformance.by_curl import send_by_curl
from tests.gateway_ops.conformance.honest_server import KEY, MODEL, HonestServer, Lie, RejectedError, Reply
from tests.gateway_ops.conformance.lies import FAULT, LIES

CHECKS = {check.name: (group.title, check) for group in suite.GROUPS for check in group.checks}

FEW = ("usage-of-stream", "stop-in-stream", "text-characters", "error-context", "error-wrong-key", "models-list")


def meet(server: HonestServer) -> ServerUnderCheck:
    return suite.meet(server.url, MODEL, KEY, 20.0)


def run(server: ServerUnderCheck, name: str) -> CheckOutcome:
    group, check = CHECKS[name]
    if name == "error-no-trace":  # which looks at the errors so far
        run(server, "error-no-model")
    return suite.run_one(server, group, check)


def lie_of(name: str) -> Lie:
    return FAULT if name.startswith("fault-") else LIES[name]()


def outcome(name: str, lie: Lie, timeout_s: float = 20.0) -> CheckOutcome:
    """What a check finds of a server that lies."""
    with HonestServer(lie) as server:
        return run(suite.meet(server.url, MODEL, KEY, timeout_s), name)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait a moment for the end of a request that was left."""
    monkeypatch.setattr(cancel_checks, "_ENDED_S", 0.3)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("name", CHECKS)
def test_a_lie_is_seen_and_shown(name: str) -> None:
    found = outcome(name, lie_of(name))
    assert found.verdict is Verdict.UNTRUE, found.evidence
    assert found.evidence
    assert found.curl
    assert all(KEY not in line for line in found.curl)
    if name == "cancel-frees":  # what counts the request is shown as well
        stream, metrics = found.curl
        assert '"stream": true' in stream
        assert "/metrics" in metrics


def test_names_are_unique_and_each_check_has_a_promise_and_a_source() -> None:
    checks: list[Check] = [check for group in suite.GROUPS for check in group.checks]
    assert len(CHECKS) == len(checks)
    assert all(check.promise.endswith(".") and check.source.startswith("https://") for check in checks)
    assert set(LIES) == {check.name for check in checks if not check.name.startswith("fault-")}


@pytest.mark.parametrize(
    "name", [*FEW, *(pytest.param(each, marks=pytest.mark.long) for each in CHECKS if each not in FEW)]
)
def test_a_lie_is_seen_by_the_printed_lines(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_API_KEY", KEY)
    monkeypatch.setattr(Http, "send", send_by_curl)
    found = outcome(name, lie_of(name))
    assert found.verdict is Verdict.UNTRUE, found.evidence


def test_texts_of_a_server_do_not_act_upon_the_terminal() -> None:
    acting = "m\x9b31m\x1b[2J\u202e\nz"

    def body(server: ServerUnderCheck) -> None:
        raise UntrueError(f"the answer is {acting}", HttpAnswer(server.chat(), 200))

    server = ServerUnderCheck(Http("http://127.0.0.1:1", None, 1.0), acting, 0.0)
    found = suite.run_one(server, "group", Check("name", "promise", "source", body))
    assert found.evidence == r"the answer is m\x9b31m\x1b[2J\u202e z"
    (line,) = found.curl
    assert line.isprintable()
    assert json.loads(shlex.split(line)[-1])["model"] == acting


_COUNT = itertools.count()


def _never_alike(body: dict[str, Any], reply: Reply) -> None:
    for choice in reply.choices():
        for part in (choice.get("message"), choice.get("delta")):
            if part and part.get("content"):
                part["content"] = f"{next(_COUNT)} {part['content']}"


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(
    ("counts", "verdict"), [(None, Verdict.UNCLEAR), (True, Verdict.UNTRUE), (False, Verdict.TRUE)]
)
def test_a_gateways_own_count_does_not_show_that_its_engine_stopped(counts: bool | None, verdict: Verdict) -> None:
    found = outcome("cancel-frees", Lie(gauge="gateway_requests_in_flight", engine_counts=counts))
    assert found.verdict is verdict, found.evidence
    assert ("still counted" in found.evidence) is bool(counts)


@pytest.mark.usefixtures("soon")
def test_work_that_no_metric_counts_is_in_the_way_of_the_next_request() -> None:
    found = outcome("cancel-frees", Lie(goes_on_s=0.8))
    assert found.verdict is Verdict.UNTRUE, found.evidence
    assert re.fullmatch(
        r"the request after the client left waited \d\.\d s, and the one after it took 0\.\d s", found.evidence
    )


@pytest.mark.parametrize("name", ["cancel-frees", "cancel-harmless"])
def test_an_answer_that_never_comes_after_clients_left_is_untrue(name: str) -> None:
    found = outcome(name, Lie(goes_on_s=60.0), 1.0)
    assert found.verdict is Verdict.UNTRUE, found.evidence
    assert re.fullmatch(r"after .* left.*, the response had not ended after 1 s", found.evidence)


def test_a_server_that_never_answers_alike_is_not_called_untrue_for_it() -> None:
    with HonestServer(Lie(after=_never_alike)) as server:
        found = {each.check.name: each for each in suite.run(meet(server))}
    texts = [
        "text-stream-same", "text-parts", "stop-cuts", "stop-in-stream", "stop-list", "top-p", "seed", "logit-bias",
    ]  # fmt: skip
    assert {found[name].verdict for name in texts} == {Verdict.UNCLEAR}
    assert found["text-stream-same"].evidence == "the same greedy request gets different answers"
    assert {found[name].verdict for name in ("usage-total", "finish-known", "fault-no-model")} == {Verdict.TRUE}


def _reject(*names: str) -> Callable[[dict[str, Any], Reply], None]:
    def after(body: dict[str, Any], reply: Reply) -> None:
        for name in names:
            if reply.status == 200 and name in body:
                rejected = RejectedError(f"Unsupported parameter: {name!r}.", name).reply
                reply.status, reply.json, reply.events = rejected.status, rejected.json, None

    return after


def test_what_a_server_refuses_by_name_is_left_out_and_not_untrue() -> None:
    """As those models do that think: no temperature, no seed, another name for the limit."""
    with HonestServer(Lie(after=_reject("temperature", "seed", "max_tokens", "logit_bias", "n"))) as server:
        found = {each.check.name: each for each in suite.run(meet(server))}
    assert {name: each.evidence for name, each in found.items() if each.verdict is Verdict.UNTRUE} == {}
    for name in ("temperature", "seed", "max-tokens", "form-choices"):
        assert found[name].verdict in {Verdict.NOT_OFFERED, Verdict.UNCLEAR}, name
    assert found["max-completion-tokens"].verdict is Verdict.TRUE
    assert found["usage-at-limit"].verdict is Verdict.TRUE


@pytest.mark.parametrize("after_s", ["0", "\N{SUPERSCRIPT TWO}"])  # which is a digit, and no number
def test_a_server_that_is_busy_for_a_moment_is_asked_again(after_s: str) -> None:
    busy = itertools.cycle([True, False])

    def after(body: dict[str, Any], reply: Reply) -> None:
        if reply.status == 200 and next(busy):
            rejected = RejectedError("Busy.", None, 503).reply
            reply.status, reply.json, reply.events = 503, rejected.json, None
            reply.headers["Retry-After"] = after_s

    with HonestServer(Lie(after=after)) as server:
        known = meet(server)
        assert run(known, "usage-total").verdict is Verdict.TRUE
        if after_s == "0":  # without a number the server is left alone for a second each time
            assert run(known, "text-stream-same").verdict is Verdict.TRUE


def test_a_context_that_is_no_number_of_tokens_is_not_known() -> None:
    """Some list -1 where a model has no bound, or they do not know it."""

    def after(_: dict[str, Any], reply: Reply) -> None:
        for entry in reply.json["data"]:
            entry["max_model_len"] = -1

    found = outcome("error-context", Lie(after=after, path="/v1/models"))
    assert (found.verdict, found.evidence) == (Verdict.TRUE, "")


def test_an_answer_that_fails_is_untrue() -> None:
    def after(body: dict[str, Any], reply: Reply) -> None:
        if "logprobs" in body:
            reply.status, reply.json = 500, "KeyError"

    found = outcome("logprobs-present", Lie(after=after))
    assert (found.verdict, found.evidence) == (Verdict.UNTRUE, 'the status is 500: "KeyError"')
