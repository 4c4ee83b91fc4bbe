"""Report where the seconds of a test run go: `python -m pytest -p tools.test_times ...`.

The seconds of a folder are those of starting (fixtures set up and torn down: servers above all), of computing (CPU of
the test's own process) and of waiting (the rest of the test). Children's CPU counts as waiting. With pytest-xdist the
seconds of all processes are added.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest

_CPU = "cpu_seconds"
_KINDS = ("starting", "waiting", "computing")
_LEVELS = 3  # of folders
_FOLDERS = 40
_TESTS = 25


class _TimesReport:
    """The seconds of each folder and of each test."""

    def __init__(self) -> None:
        self._folders: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(("tests", *_KINDS), 0.0))
        self._tests: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase of one test."""
        folder = "/".join(PurePosixPath(report.nodeid.split("::")[0]).parts[:-1][:_LEVELS])
        self._tests[report.nodeid] += report.duration
        for row in (self._folders[folder], self._folders["all"]):
            if report.when != "call":
                row["starting"] += report.duration
                continue
            computing = min(dict(report.user_properties).get(_CPU, 0.0), report.duration)
            row["tests"] += 1
            row["computing"] += computing
            row["waiting"] += report.duration - computing

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the folders and the tests that take longest."""
        write = terminalreporter.write_line
        terminalreporter.section("times")
        write(f"{'folder':<44}{'tests':>7}" + "".join(f"{kind:>11}" for kind in _KINDS))
        for folder, row in sorted(self._folders.items(), key=lambda each: -sum(each[1][kind] for kind in _KINDS))[
            :_FOLDERS
        ]:
            write(f"{folder:<44}{row['tests']:>7.0f}" + "".join(f"{row[kind]:>11.1f}" for kind in _KINDS))
        for nodeid, seconds in sorted(self._tests.items(), key=lambda each: -each[1])[:_TESTS]:
            write(f"{seconds:>8.1f} s  {nodeid}")


def pytest_configure(config: pytest.Config) -> None:
    """Begin a report; each process of the tests keeps CPU seconds, and one process adds all of them."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_TimesReport())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Keep the CPU seconds of a test with its report."""
    began = time.process_time()
    try:
        return (yield)
    finally:
        item.user_properties.append((_CPU, time.process_time() - began))
