"""A look whether the gateway works under an interpreter: every module, the command line, one streamed answer.

Run it with the interpreter in question: ``python3.14 tests/release/smoke.py ENVIRONMENT``. It makes an environment in
that folder with the pinned requirements and the gateway, unless it is there, and needs the package index for that.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ROOT / "requirements" / "core.txt"
TOKENS = 20
# What extras bring, or the embedded Triton.
OPTIONAL = {"aiohttp", "cryptography", "jwt", "opentelemetry", "redis", "safetensors", "sentencepiece", "transformers"}


def install(folder: Path, gateway: str) -> Path:
    """Make the environment, whole or not at all; return its interpreter."""
    python = folder / "bin" / "python"
    marker = folder / "requirements.txt"
    if not marker.exists() or marker.read_bytes() != REQUIREMENTS.read_bytes():
        venv.create(folder, clear=True, with_pip=True)
        run(python, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "-r", str(REQUIREMENTS))
        marker.write_bytes(REQUIREMENTS.read_bytes())
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", gateway)
    return python


def run(*command: Path | str) -> str:
    """Run a command and return what it prints."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, timeout=500)
    if done.returncode:
        raise SystemExit(f"{command}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def import_everything() -> int:
    """Import each module of both packages; only one of an extra may be missing. Returns how many there are."""
    count = 0
    for package in (importlib.import_module("gateway"), importlib.import_module("gateway_ops")):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name.endswith("__main__") or ".triton_repo" in found.name or ".examples" in found.name:
                continue
            try:
                importlib.import_module(found.name)
                count += 1
            except ModuleNotFoundError as error:
                if (error.name or "").partition(".")[0] not in OPTIONAL:
                    raise
    return count


def ask_for_an_answer(folder: Path) -> None:
    """Serve before a paced Triton, stream an answer, and end by SIGTERM."""
    # Of the tests, which need no more than the gateway does for this.
    sys.path.append(str(ROOT))
    scripted = importlib.import_module("tests.app.scripted")
    paced = importlib.import_module("tests.doubles.paced.server")
    tokenizer = scripted.write_tokenizer(folder / "tokenizer")
    letters = list(scripted.ByteIds(tokenizer).of(paced.LETTERS))
    with paced.PacedServer(letters, token_s=0.001, log=folder / "triton.log") as triton:
        port = importlib.import_module("tests.ports").free_port()
        settings = {
            "GATEWAY_MODEL": "paced", "GATEWAY_TRITON_URL": triton.url, "GATEWAY_TOKENIZER": str(tokenizer),
            "GATEWAY_MAX_SEQ_LEN": "4096", "GATEWAY_PORT": str(port), "GATEWAY_LAME_DUCK_S": "0",
            "XDG_STATE_HOME": str(folder),
        }  # fmt: skip
        command = [str(Path(sys.executable).with_name("gateway")), "serve"]
        with (folder / "gateway.log").open("wb") as log:
            process = subprocess.Popen(command, env={**os.environ, **settings}, cwd=folder, stdout=log, stderr=log)
        try:
            until_ready(f"http://127.0.0.1:{port}/health/ready", process)
            text, usage = stream(f"http://127.0.0.1:{port}/v1/chat/completions")
            assert text == paced.text_of(TOKENS), text
            assert usage["completion_tokens"] == TOKENS, usage
        except BaseException:
            sys.stderr.write((folder / "gateway.log").read_text()[-4000:])
            raise
        finally:
            process.send_signal(signal.SIGTERM)
            ended = process.wait(60)
    assert ended == 0, ended


def until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until an address answers 200, for a minute at most."""
    for _ in range(600):
        assert process.poll() is None, "the gateway has ended"
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise SystemExit(f"{url} does not answer 200")


def stream(url: str) -> tuple[str, dict[str, int]]:
    """Ask for a streamed answer; return its text and its usage."""
    body = {
        "model": "paced", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": TOKENS, "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        lines = [line.decode().strip() for line in answer]
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    assert "data: [DONE]" in lines, lines
    text = "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])
    return text, events[-1]["usage"]


def main() -> None:
    """Look, and say what was seen."""
    parser = argparse.ArgumentParser()
    parser.add_argument("environment", type=Path, nargs="?")
    parser.add_argument("--gateway", default=str(ROOT), help="wheel or folder to install")
    parser.add_argument("--inside", action="store_true", help="run in the environment itself")
    given = parser.parse_args()
    if not given.inside:
        with tempfile.TemporaryDirectory() as spare:
            python = install(given.environment or Path(spare), given.gateway)
            sys.stdout.write(run(python, str(Path(__file__).absolute()), "--inside"))
        return
    count = import_everything()
    said = run(Path(sys.executable).with_name("gateway"), "--version").splitlines()[0]
    with tempfile.TemporaryDirectory() as folder:
        ask_for_an_answer(Path(folder))
    python_version = sys.version.split()[0]
    sys.stdout.write(f"{said} on Python {python_version}: {count} modules imported, one answer streamed\n")


if __name__ == "__main__":
    main()
