"""Sends requests to two servers and compares their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from gateway.serving.comparison.answer_forms import Outcome
from gateway.serving.comparison.report import ComparisonReport
from gateway.serving.comparison.verdict import ComparisonRules
from gateway_ops.compare.asking import ComparedRequest, ask
from gateway_ops.compare.targets import Target


@dataclass(frozen=True, slots=True)
class ComparisonPlan:
    """A plan to send and compare requests.

    Attributes:
        at_once: requests at the same time; each goes to one target after the other.
        timeout_s: seconds for an answer.
        repeat: whether A gets each request a second time.
        rules: rules that define a difference.
        show_text: whether rows have texts, which may repeat secrets of the requests.
    """

    at_once: int = 4
    timeout_s: float = 300.0
    repeat: bool = False
    rules: ComparisonRules = field(default_factory=ComparisonRules)
    show_text: bool = False


class Comparison:
    """Sends the same requests to two targets and keeps what differs.

    Attributes:
        report: report on the outcomes.
    """

    def __init__(self, a: Target, b: Target, plan: ComparisonPlan) -> None:
        self.report = ComparisonReport(plan.rules, repeat=plan.repeat, show_text=plan.show_text)
        self._targets = (a, b)
        self._plan = plan

    async def run(self, requests: Iterable[ComparedRequest], on_result: Callable[[], None]) -> None:
        """Send all requests; a cancel ends it early and keeps the results.

        Args:
            requests: the requests.
            on_result: called after each request.
        """
        source = iter(requests)
        tasks = [asyncio.create_task(self._work(source, on_result)) for _ in range(self._plan.at_once)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, source: Iterator[ComparedRequest], on_result: Callable[[], None]) -> None:
        for request in source:
            # Each target is the first as often as the other: what a cache keeps of one may help the next.
            sides = (0, 1) if request.place % 2 else (1, 0)
            outcomes = {side: await self._ask(side, request) for side in sides}
            again = await self._ask(0, request) if self._plan.repeat else None
            row = {"request": request.place, "name": request.name, "endpoint": request.path}
            self.report.take(row, outcomes[0], outcomes[1], again)
            on_result()

    async def _ask(self, side: int, request: ComparedRequest) -> Outcome:
        return await ask(self._targets[side], request, self._plan.timeout_s)
