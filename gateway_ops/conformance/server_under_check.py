"""The server that is checked, with the responses to the requests of all checks, each requested once."""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from gateway.text.harmless import one_line
from gateway_ops.conformance.bounded_http import CheckRequest, Http, HttpAnswer, UnreachableError, json_request
from gateway_ops.conformance.replies import StreamedReplies, WholeReply, served
from gateway_ops.conformance.verdicts import UnclearError, UntrueError, shown

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MODELS = "/v1/models"
COUNTING = "Count from 1 to 1000 in digits, separated by spaces."
LIMIT = 16
"""Tokens of most answers: few, because a model on a CPU takes a second for them."""
_MOST_TIMEOUTS = 4
_TRIES = 3
_LONGEST_WAIT_S = 5.0
Value = TypeVar("Value")
Seen = TypeVar("Seen", WholeReply, StreamedReplies)


class ServerUnderCheck:
    """A server with its model, and responses to requests.

    Attributes:
        http: its address.
        model: the name in requests.
        listed: the listed models; None without a list.
        context: most tokens of prompt and answer, where the list has it.
        greedy: the fields that make answers the same each time.
        limit: the name of the field that bounds an answer.
        steady: whether equal greedy requests had equal answers.
        sent: the number of requests so far.
        lost: why requests have no response, or are not sent any more; empty without a failure.
    """

    def __init__(self, http: Http, model: str, ends: float) -> None:
        self.http = http
        self.model = model
        self.listed: Sequence[str] | None = None
        self.context: int | None = None
        self.greedy: dict[str, Any] = {"temperature": 0, "seed": 1}
        self.limit = "max_tokens"
        self.steady = True
        self.sent = 0
        self.lost = ""
        self._ends = ends
        self._timeouts = 0
        self._answers: dict[CheckRequest, HttpAnswer] = {}

    def chat(self, prompt: Any = COUNTING, limit: int | None = LIMIT, **fields: Any) -> CheckRequest:
        """Make a greedy chat request.

        Args:
            prompt: text of the user, or a list of messages.
            limit: most tokens of the answer.
            fields: further fields; None removes a field.
        """
        messages = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
        return self._request(CHAT, {"model": self.model, "messages": messages}, {self.limit: limit, **fields})

    def completion(self, prompt: Any = "1 2 3 4 5 6", limit: int = LIMIT, **fields: Any) -> CheckRequest:
        """Make a greedy completion request."""
        return self._request(COMPLETIONS, {"model": self.model, "prompt": prompt}, {"max_tokens": limit, **fields})

    def _request(self, path: str, said: dict[str, Any], fields: dict[str, Any]) -> CheckRequest:
        body = {**said, **self.greedy, **fields}
        return json_request(path, {name: value for name, value in body.items() if value is not None})

    def ask(self, request: CheckRequest) -> HttpAnswer:
        """Return the response to a request, from memory where it was sent before."""
        if request not in self._answers:
            self._answers[request] = self.again(request)
        return self._answers[request]

    def again(self, request: CheckRequest) -> HttpAnswer:
        """Send a request again, up to a few times where the server rejects it temporarily.

        Raises:
            UnclearError: the server is gone, or the time has passed.
        """
        for attempt in range(_TRIES):
            self._still()
            self.sent += 1
            try:
                answer = self.http.send(request)
            except UnreachableError as error:
                raise self._given_up(str(error)) from None
            self._timeouts += answer.late
            if answer.status not in {429, 503} or attempt == _TRIES - 1:
                break
            time.sleep(_wait(answer))
        return answer

    def _still(self) -> None:
        if self._timeouts >= _MOST_TIMEOUTS:
            raise self._given_up(f"not run: {_MOST_TIMEOUTS} answers had not ended in time")
        if time.monotonic() > self._ends:
            raise self._given_up("not run: the time for all checks has run out")

    def _given_up(self, why: str) -> UnclearError:
        self.lost = one_line(why)
        return UnclearError(why)

    @property
    def quoted_model(self) -> str:
        """The model's name as a part of a path."""
        return urllib.parse.quote(self.model, safe="")

    @property
    def answers(self) -> list[HttpAnswer]:
        """All responses in memory."""
        return list(self._answers.values())

    def whole(self, request: CheckRequest, *names: str) -> WholeReply:
        """Read the response to a request without ``stream``; the server may reject the parameters in ``names``.

        Raises:
            NotOfferedError, UnclearError, UntrueError: the request fails; see `served`.
        """
        return WholeReply(served(self.ask(request), *names))

    def stream(self, request: CheckRequest, *names: str) -> StreamedReplies:
        """Read the response to a request with ``stream``; the server may reject the parameters in ``names``.

        Raises:
            NotOfferedError, UnclearError, UntrueError: the request fails; see `served`.
        """
        return StreamedReplies(served(self.ask(request.changed(stream=True)), "stream", *names))

    def must_equal(
        self, first: tuple[Seen, Callable[[Seen], Value]], second: tuple[Any, Callable[[Any], Value]], what: str
    ) -> None:
        """Compare two responses by one value of each.

        Raises:
            UntrueError: the values differ, and still do when both are requested again.
            UnclearError: the values differ, and one response differs from itself.
        """
        values = [of(seen) for seen, of in (first, second)]
        if values[0] == values[1]:
            return
        for (seen, of), value in zip((first, second), values, strict=True):
            repeated = type(seen)(served(self.again(seen.answer.request)))
            if of(repeated) != value:
                raise UnclearError("the same greedy request gets different answers")
        evidence = f"{what}: {shown(values[0])} and {shown(values[1])}"
        raise UntrueError(evidence, first[0].answer, second[0].answer)


def _wait(answer: HttpAnswer) -> float:
    header = answer.headers.get("retry-after", "")
    return min(float(header), _LONGEST_WAIT_S) if header.isdecimal() else 1.0
