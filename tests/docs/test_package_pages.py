"""The pages of the packages of ``gateway.text``: their examples hold, and need no other package of the server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.app.scripted import write_tokenizer

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "gateway" / "text" / package / "README.md" for package in ("prompt", "families", "guides", "tokens")]
RUN = """
import doctest, sys
from pathlib import Path
folder, *pages = map(Path, sys.argv[1:])
for page in pages:
    failed, tried = doctest.testfile(str(page), module_relative=False, globs={"folder": folder}, encoding="utf-8")
    assert tried and not failed, page
others = {".".join(name.split(".")[:2]) for name in sys.modules if name.startswith("gateway.")}
assert others <= {"gateway.text", "gateway.settings"}, others
"""


def test_the_examples_hold_with_nothing_else_of_the_server(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUN, str(write_tokenizer(tmp_path)), *map(str, PAGES)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    assert run.returncode == 0, run.stdout + run.stderr
    assert max(len(page.read_text(encoding="utf-8").splitlines()) for page in PAGES) <= 25
