"""Clients in JavaScript: each a Node process of its own that runs one scenario after the other."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.clients.programs.pages import MODEL
from tests.sdks.conftest import DEGREES, QUESTION

HERE = Path(__file__).with_name("js")
_TIMEOUT_S = 120  # for a machine under load; a scenario takes a second


def environment(url: str) -> dict[str, str]:
    """What a Node process is given: settings of SDKs that read them there, and what the scenarios share."""
    return {
        "PATH": os.environ["PATH"],
        "GATEWAY_URL": url,
        "GATEWAY_MODEL": MODEL,
        "QUESTION": QUESTION,
        "DEGREES": json.dumps(DEGREES),
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "unused",
    }


def desk(folder: Path, node_modules: Path) -> Path:
    """A folder where scripts find the installed packages."""
    shutil.copytree(HERE, folder)
    (folder / "node_modules").symlink_to(node_modules)
    return folder


class JavaScriptClient:
    """A running client."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, scenario: str, **options: Any) -> Any:
        """What a scenario, a function of the client's module, returns; fails with what it throws."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"scenario": scenario, "options": options}) + "\n")
        stdin.flush()
        assert select.select([stdout], [], [], _TIMEOUT_S)[0], f"{scenario} has not ended"
        line = stdout.readline()
        assert line, "the client's process ended"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer.get("value")


@contextmanager
def running(name: str, folder: Path, url: str, log: Path) -> Iterator[JavaScriptClient]:
    """A client whose module is ``name``, in a folder made by `desk`."""
    with log.open("ab") as errors:
        process = subprocess.Popen(
            ["node", "drive.mjs", name], cwd=folder, env=environment(url), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
        )  # fmt: skip
    with process:
        try:
            yield JavaScriptClient(process)
        finally:
            process.terminate()
    assert log.read_text() == ""  # no warnings: an SDK tells by them what it fell back from
