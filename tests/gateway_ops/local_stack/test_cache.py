"""The cache folder, and folders and volumes that are filled whole or not at all."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway_ops.local_stack import LocalStackError
from gateway_ops.local_stack.cache import cache_dir, made_once
from gateway_ops.local_stack.fill_folder import fill_folder
from tests.bound_process import BoundProcess

# Two of these run at once: each adds a line to a log when it really makes the folder.
PROGRAM = """
import sys, time
from pathlib import Path
from gateway_ops.local_stack.cache import made_once

base, log = Path(sys.argv[1]), Path(sys.argv[2])

def make(folder):
    with log.open("a") as out:
        out.write("made\\n")
    sys.stdout.write("in\\n")
    sys.stdout.flush()
    sys.stdin.readline()
    (folder / "content").write_text("whole")

print((made_once(base / "thing", "1", make) / "content").read_text())
"""


def write(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "content").write_text(text)


def fails(folder: Path) -> None:
    (folder / "config.json").write_text("half")
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({"GATEWAY_CACHE_DIR": "/a/b", "XDG_CACHE_HOME": "/x"}, Path("/a/b")),
        ({"XDG_CACHE_HOME": "/x"}, Path("/x/triton-openai-gateway")),
        ({"XDG_CACHE_HOME": "relative"}, Path.home() / ".cache" / "triton-openai-gateway"),
        ({"GATEWAY_CACHE_DIR": ""}, Path.home() / ".cache" / "triton-openai-gateway"),
    ],
)
def test_where_the_cache_is(environ: dict[str, str], wanted: Path) -> None:
    assert cache_dir(environ) == wanted


def test_a_whole_folder_is_used_again_and_another_recipe_makes_it_anew(tmp_path: Path) -> None:
    folder = made_once(tmp_path / "deep" / "thing", "1", write("first"))
    assert made_once(folder, "1", fails) == folder
    assert (folder / "content").read_text() == "first"
    made_once(folder, "2", write("second"))
    assert (folder / "content").read_text() == "second"


@pytest.mark.parametrize(("file", "text"), [("content", None), ("content", "whale"), ("export.json", "{")])
def test_a_damaged_folder_is_made_anew(tmp_path: Path, file: str, text: str | None) -> None:
    folder = made_once(tmp_path / "thing", "1", write("whole"))
    (folder / file).unlink() if text is None else (folder / file).write_text(text)
    made_once(folder, "1", write("whole again"))
    assert (folder / "content").read_text() == "whole again"


def test_a_failure_leaves_nothing_or_what_was_there(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        made_once(tmp_path / "thing", "1", fails)
    assert [path.name for path in tmp_path.iterdir()] == [".thing.lock"]
    folder = made_once(tmp_path / "thing", "1", write("old"))
    with pytest.raises(OSError, match="No space left"):
        made_once(folder, "2", fails)
    assert (folder / "content").read_text() == "old"


def test_two_processes_at_once_make_it_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(log)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with BoundProcess(command, **pipes) as first:
        assert first.stdout.readline() == "in\n"  # it is inside make, holds the lock and waits for us
        with BoundProcess(command, **pipes) as second:
            assert not (tmp_path / "thing").exists()
            out, _ = first.communicate("go\n", timeout=30)
            assert out == "whole\n"
            out, _ = second.communicate("go\n", timeout=30)
            assert out == "whole\n"
    assert log.read_text() == "made\n"


def test_a_maker_that_was_killed_leaves_no_lock_and_no_rest(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(tmp_path / "log")]
    with BoundProcess(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as killed:
        killed.stdout.readline()
        killed.kill()
    made_once(tmp_path / "thing", "1", write("whole"))
    assert sorted(path.name for path in tmp_path.iterdir()) == [".thing.lock", "log", "thing"]


def test_a_volume_is_filled_once_and_a_users_model_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(LocalStackError, match="No space left"):
        fill_folder(tmp_path, fails)
    assert list(tmp_path.iterdir()) == []
    assert fill_folder(tmp_path, lambda folder: (folder / "config.json").write_text("new")) is True
    assert fill_folder(tmp_path, fails) is False
    assert [path.read_text() for path in tmp_path.iterdir()] == ["new"]
    with pytest.raises(LocalStackError, match="absent"):
        fill_folder(tmp_path / "absent", fails)
