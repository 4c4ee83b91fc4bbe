"""Folders of metrics: none stays for good, and none goes that a process holds."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gateway.workers.metrics_folder import metrics_folder
from tests.bound_process import BoundProcess

HOLDER = """
import sys, time
from pathlib import Path
from gateway.workers.metrics_folder import hold
hold(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def abandoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An old folder with a file, which nobody holds."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = tmp_path / "gateway-metrics-old"
    folder.mkdir()
    (folder / "counter_1.db").touch()
    os.utime(folder, (0, 0))
    return folder


def test_it_goes_at_the_end_and_an_abandoned_one_at_the_start(abandoned: Path) -> None:
    with metrics_folder() as folder:
        assert not abandoned.exists()
        (folder / "counter_2.db").touch()
    assert not folder.exists()


def test_a_folder_stays_that_a_process_holds_and_one_that_is_new(abandoned: Path) -> None:
    with BoundProcess([sys.executable, "-c", HOLDER, str(abandoned)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with metrics_folder():
            assert abandoned.exists()
        holder.kill()
    os.utime(abandoned, (time.time(), time.time()))
    with metrics_folder():
        assert abandoned.exists()
    os.utime(abandoned, (0, 0))
    with metrics_folder():
        assert not abandoned.exists()
