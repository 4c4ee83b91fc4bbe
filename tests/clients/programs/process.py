"""A program run to its end: scratch home, dummy keys, no way out but to the gateway."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 240.0  # for a machine under load; a run takes a few seconds


@dataclass(frozen=True)
class Outcome:
    """How a program ended.

    Attributes:
        code: its exit status.
        out: what it printed.
        err: what it printed as errors.
    """

    code: int
    out: str
    err: str


def run(command: list[str], *, home: Path, work: Path, proxy: str, env: Mapping[str, str]) -> Outcome:
    """Run ``command`` with nothing on its input, and end all that it started.

    Args:
        command: the program and its arguments.
        home: its home folder; made where it is missing, and takes its output.
        work: the folder that it works in.
        proxy: URL of a proxy that refuses all but loopback, which is asked directly.
        env: more of its environment.

    Raises:
        subprocess.TimeoutExpired: it did not end in time.
    """
    home.mkdir(parents=True, exist_ok=True)
    out, err = home / "out", home / "err"
    with out.open("wb") as to_out, err.open("wb") as to_err:
        process = subprocess.Popen(
            command,
            cwd=work,
            env=_base(home, proxy) | dict(env),
            stdin=subprocess.DEVNULL,
            stdout=to_out,
            stderr=to_err,
            start_new_session=True,
        )
        try:
            code = process.wait(TIMEOUT_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return Outcome(code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8"))


def _base(home: Path, proxy: str) -> dict[str, str]:
    node = str(Path(shutil.which("node") or "node").parent)
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"), proxy)
    direct = {"NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
    paths = {"PATH": f"{node}:/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "TMPDIR": str(home)}
    return {**proxies, **direct, **paths, "LANG": "C.UTF-8", "TERM": "dumb"}
