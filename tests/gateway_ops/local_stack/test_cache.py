"""The cache folder, and folders that are made whole or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gateway_ops.local_stack.cache import cache_dir, made_once
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


def write(text: str) -> object:
    def make(folder: Path) -> None:
        (folder / "content").write_text(text)

    return make


def must_not_be_called(_folder: Path) -> None:
    raise AssertionError("made again")


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


def test_a_whole_folder_is_used_again(tmp_path: Path) -> None:
    folder = made_once(tmp_path / "deep" / "thing", "1", write("first"))
    assert (folder / "content").read_text() == "first"
    assert made_once(folder, "1", must_not_be_called) == folder


def test_another_recipe_makes_it_anew(tmp_path: Path) -> None:
    folder = made_once(tmp_path / "thing", "1", write("first"))
    made_once(folder, "2", write("second"))
    assert (folder / "content").read_text() == "second"


@pytest.mark.parametrize("damage", ["removed", "changed", "no manifest", "broken manifest"])
def test_a_damaged_folder_is_made_anew(tmp_path: Path, damage: str) -> None:
    folder = made_once(tmp_path / "thing", "1", write("whole"))
    if damage == "removed":
        (folder / "content").unlink()
    elif damage == "changed":
        (folder / "content").write_text("whale")
    elif damage == "no manifest":
        (folder / "export.json").unlink()
    else:
        (folder / "export.json").write_text("{")
    made_once(folder, "1", write("whole again"))
    assert (folder / "content").read_text() == "whole again"


def test_a_failure_leaves_nothing_and_the_next_try_works(tmp_path: Path) -> None:
    def fails(folder: Path) -> None:
        (folder / "content").write_text("half")
        raise RuntimeError("disk on fire")

    with pytest.raises(RuntimeError, match="disk on fire"):
        made_once(tmp_path / "thing", "1", fails)
    assert [path.name for path in tmp_path.iterdir()] == [".thing.lock"]
    assert made_once(tmp_path / "thing", "1", write("whole")).is_dir()


def test_a_failure_keeps_the_folder_that_was_there(tmp_path: Path) -> None:
    def fails(_folder: Path) -> None:
        raise RuntimeError("no network")

    folder = made_once(tmp_path / "thing", "1", write("old"))
    with pytest.raises(RuntimeError):
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
