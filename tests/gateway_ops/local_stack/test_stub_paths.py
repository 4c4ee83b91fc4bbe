"""Paths that Triton's Python backend cannot start its stubs from: named, instead of a server that is never ready."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway_ops.local_stack.triton_installation import TritonStartError, find_tritonserver, prepare_backend_directory
from gateway_ops.local_stack.tritonserver import TritonServer


def test_a_repository_with_a_space_in_its_path(tmp_path: Path) -> None:
    server = TritonServer(tmp_path / "my models", model_dir=None, log_path=tmp_path / "log")
    with pytest.raises(TritonStartError, match=r"my models contains ' '\. Move it into a folder without it."):
        server.start()
    assert not server.running


def test_a_cache_with_a_quote_in_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_CACHE_DIR", str(tmp_path / "o'clock"))
    with pytest.raises(TritonStartError, match="Set GATEWAY_CACHE_DIR to a folder without it"):
        prepare_backend_directory(find_tritonserver())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["plain", "r\u00e4der-1.2_x,y=z+@%:", "\u6a21\u578b"])
def test_other_names_are_taken(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_CACHE_DIR", str(tmp_path / name))
    assert (prepare_backend_directory(find_tritonserver()) / "python" / "libtriton_python.so").exists()
