"""``python -m benchmarks MODE``: measure, store and print the results; ``write`` puts them into README.md."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .harness import hostile, modes, relay, store, tables
from .harness.processes import ROOT, BenchmarkError

_ROUNDS = 5


def main() -> int:
    """Measure one mode, or write stored results into README.md."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("mode", choices=[*modes.MODES, "write"], nargs="?", default="relay")
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help="interleaved runs, of which the median counts")
    parser.add_argument("--write", action="store_true", help="put the results into benchmarks/README.md too")
    parser.add_argument(
        "--only", action="append", metavar="PART",
        help="of the hostile inputs those with this in their name; may be given several times, and keeps no results",
    )  # fmt: skip
    arguments = parser.parse_args()
    if arguments.only and (arguments.mode != "hostile" or arguments.write):
        parser.error("--only is for hostile inputs, and without --write")
    if arguments.mode == "write":
        tables.write_readme()
        return 0
    if subprocess.run([ROOT / "benchmarks" / "build.sh"], env=_build_env(), check=False).returncode:
        return 1
    begun = time.monotonic()
    try:
        with tempfile.TemporaryDirectory() as home:
            os.environ["XDG_STATE_HOME"] = home  # the gateways keep responses as they do by default, not in the user's
            if arguments.only:
                hostile.measure(arguments.rounds, _tell, arguments.only)
                return 0
            values = modes.MODES[arguments.mode](arguments.rounds, _tell)
    except BenchmarkError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    commands = {"relay": "make bench", "peers": "make bench-peers"}
    command = commands.get(arguments.mode, f"make bench MODE={arguments.mode}")
    if arguments.rounds != _ROUNDS:
        command += f' ARGS="--rounds {arguments.rounds}"'
    store.save(arguments.mode, command, values)
    if arguments.write:
        tables.write_readme()
    print(tables.plain(arguments.mode), flush=True)
    print(f"took {time.monotonic() - begun:.0f} s; kept in {store.FOLDER.relative_to(ROOT)}")
    if arguments.mode == "relay":
        print(relay.last_line(values))
    return 0


def _tell(text: str) -> None:
    print(text, flush=True)


def _build_env() -> dict[str, str]:
    return {**os.environ, "PYTHON": sys.executable, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


if __name__ == "__main__":
    sys.exit(main())
