"""The image of Triton on the CPU has a few modules of the gateway only: its installation must import no others."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[3]
RUN = (
    "import gateway_ops.local_stack.fill_folder, gateway_ops.local_stack.tritonserver, gateway; print(gateway.__file__)"
)


def test_the_modules_that_are_copied_suffice(tmp_path: Path) -> None:
    dockerfile = (ROOT / "docker" / "Dockerfile.triton-cpu").read_text(encoding="utf-8")
    for sources, target in re.findall(r"(?m)^COPY (gateway\S*/.*) (\S+)$", dockerfile):
        for source in map(ROOT.joinpath, sources.split()):
            place = tmp_path / target
            if source.is_dir():
                shutil.copytree(source, place)
                continue
            place = place / source.name if target.endswith("/") else place
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, place)
    # Without the .pth files of site-packages, by which an editable installation would be found.
    path = f"{tmp_path}:{sysconfig.get_path('purelib')}"
    found = subprocess.run(
        [sys.executable, "-S", "-c", RUN],
        cwd=tmp_path,
        env={"PYTHONPATH": path},
        text=True,
        capture_output=True,
        check=False,
    )
    assert found.stdout.strip() == str(tmp_path / "gateway" / "__init__.py"), found.stderr
