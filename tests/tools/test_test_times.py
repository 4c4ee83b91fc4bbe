"""The report of where the seconds of a run go."""

from __future__ import annotations

import re

import pytest

pytest_plugins = ["pytester"]

SUITE = """
import time

import pytest

@pytest.fixture
def server():
    time.sleep(0.3)

def test_waits(server):
    time.sleep(0.5)

def test_computes():
    ends = time.process_time() + 0.4
    while time.process_time() < ends:
        pass
"""


def test_seconds_are_those_of_starting_waiting_and_computing(pytester: pytest.Pytester) -> None:
    pytester.mkpydir("inner")
    pytester.path.joinpath("inner", "test_one.py").write_text(SUITE)
    # Plugins that it does not need take seconds to load.
    without = [f"-pno:{name}" for name in ("asyncio", "hypothesispytest", "langsmith_plugin", "schemathesis")]
    said = pytester.runpytest_inprocess("-ptools.test_times", "-n1", *without).stdout.str()
    row = re.search(r"^inner +(\d) +(\S+) +(\S+) +(\S+)$", said, re.MULTILINE)
    assert row, said
    tests, starting, waiting, computing = map(float, row.groups())
    assert (tests, starting >= 0.3, waiting >= 0.5, computing >= 0.4) == (2, True, True, True)
    assert re.search(r"\d\.\d s  inner/test_one.py::test_waits$", said, re.MULTILINE)
