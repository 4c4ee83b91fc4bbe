"""A wheel by itself, as ``pip install .`` makes it: what it brings besides code."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.app.scripted import write_tokenizer

ROOT = Path(__file__).parents[3]
PARTS = ("pyproject.toml", "README.md", "LICENSE", "gateway", "chat_templates")
USE = """
import sys
from pathlib import Path
import gateway
from gateway.config import load_settings
from gateway.prompt import load_template
from gateway.tokens import Tokenizer

assert Path(gateway.__file__).is_relative_to(sys.argv[1]), gateway.__file__
for settings in (load_settings(Path("gateway.yaml"), {}), load_settings(None, {
    "GATEWAY_MODEL": "m", "GATEWAY_TRITON_URL": "x:1", "GATEWAY_TEMPLATE": "chat_templates/hermes.jinja"})):
    path = settings.models[0].template
    assert path.is_relative_to(sys.argv[1]), path
    template = load_template(Tokenizer.from_folder(Path(sys.argv[2])), path)
    print(template.render([{"role": "user", "content": "Hi"}]))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The content of the wheel, built from what is in a source archive."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, source / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / part, source)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*command, "--no-build-isolation", "-w", built, source], check=True, capture_output=True)
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(built / "site")
    return built / "site"


def test_it_has_every_template(installed: Path) -> None:
    shipped = {path.name: path.read_bytes() for path in (installed / "gateway" / "chat_templates").glob("*.jinja")}
    assert shipped == {path.name: path.read_bytes() for path in (ROOT / "chat_templates").glob("*.jinja")}
    assert len(shipped) >= 12
    assert (installed / "gateway" / "py.typed").exists()


def test_a_template_is_used_by_its_name_far_from_any_checkout(installed: Path, tmp_path: Path) -> None:
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    model = "{name: m, triton: {url: 'x:1'}, template: chat_templates/hermes.jinja}"
    (tmp_path / "gateway.yaml").write_text(f"models: [{model}]")
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(
        [sys.executable, "-c", USE, installed, tokenizer],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("<|im_start|>user\nHi<|im_end|>") == 2
