"""Filling a volume with the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway_ops.local_stack import LocalStackError
from gateway_ops.local_stack.fill_folder import fill_folder


def write(folder: Path) -> None:
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / name).write_text("new")


def fails(folder: Path) -> None:
    write(folder)
    raise OSError(28, "No space left on device")


def test_an_empty_folder_is_filled_once(tmp_path: Path) -> None:
    assert fill_folder(tmp_path, write) is True
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert fill_folder(tmp_path, fails) is False


def test_a_users_model_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("theirs")
    assert fill_folder(tmp_path, write) is False
    assert (tmp_path / "config.json").read_text() == "theirs"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_failure_leaves_nothing_that_looks_whole(tmp_path: Path) -> None:
    with pytest.raises(LocalStackError, match="No space left"):
        fill_folder(tmp_path, fails)
    assert list(tmp_path.iterdir()) == []
    assert fill_folder(tmp_path, write) is True


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(LocalStackError, match="absent"):
        fill_folder(tmp_path / "absent", write)
