"""Records what the stock configurations of tensorrtllm_backend v0.9.0, v0.12.0 and v0.16.0 declare, as facts.

Run with a folder that holds those tags' ``all_models/inflight_batcher_llm`` as ``v0.9.0`` and so on, to write
``older.json``: a line for each model.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.gateway_ops.repository.record_upstream import MODELS, facts

FILE = Path(__file__).with_name("older.json")
VERSIONS = ("0.9.0", "0.12.0", "0.16.0")


def main() -> None:
    versions = []
    for version in VERSIONS:
        folder = Path(sys.argv[1]) / f"v{version}"
        found = {name: facts((folder / name / "config.pbtxt").read_text()) for name in MODELS}
        lines = [f'  "{name}": {json.dumps(found[name], sort_keys=True)}' for name in MODELS]
        versions.append(f' "{version}": {{\n' + ",\n".join(lines) + "\n }")
    FILE.write_text("{\n" + ",\n".join(versions) + "\n}\n")


if __name__ == "__main__":
    main()
