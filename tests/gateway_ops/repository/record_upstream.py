"""Records what TensorRT-LLM's stock configurations declare, as facts: names, types, dims, flags, parameters, steps.

Run with the folder ``inflight_batcher_llm`` of tensorrtllm_backend v0.19.0 (``all_models/``), where it was last kept
whole, to write ``upstream.json``; and with a folder that holds it of v0.9.0, v0.12.0 and v0.16.0 below these names, to
write ``older.json`` of the tests of ``gateway check``. The facts of 1.2.1 are those of 0.19.0 with the changes listed
here, as read in TensorRT-LLM ``triton_backend/all_models/inflight_batcher_llm/*/config.pbtxt``: tensorrt_llm at commit
0c8de69a1ca6, ensemble at 2a9abd9536aa, preprocessing at 08dc37e368e4, postprocessing at 89fd9b74ab7a, tensorrt_llm_bls
at 0193dbd41892.
"""

from __future__ import annotations

import copy
import json
import re
import sys
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from tests.rows import in_rows

FILE = Path(__file__).with_name("upstream.json")
OLDER = Path(__file__).parents[1] / "check" / "older.json"
MODELS = ("ensemble", "preprocessing", "tensorrt_llm", "postprocessing", "tensorrt_llm_bls")
VARIABLE = re.compile(r"\$\{(\w+)\}")
NEWER = {"random_seed": "seed", "min_length": "min_tokens"}
COUNTS = ("num_input_tokens", "num_output_tokens")


def facts(text: str) -> dict[str, Any]:
    """What a template declares; a data type that is a variable stays one."""

    def stand_in(match: re.Match[str]) -> str:
        if text[text.rfind("\n", 0, match.start()) : match.start()].count('"') % 2:
            return match[0]
        return "TYPE_BF16" if match[1].endswith("type") else "false" if match[1] == "decoupled_mode" else "1"

    config = text_format.Parse(VARIABLE.sub(stand_in, text), model_config_pb2.ModelConfig())
    return {
        "variables": sorted(set(VARIABLE.findall(text))),
        "inputs": {tensor.name: tensor_facts(tensor) for tensor in config.input},
        "outputs": {tensor.name: tensor_facts(tensor) for tensor in config.output},
        "parameters": {key: value.string_value for key, value in config.parameters.items()},
        "batching": config.HasField("dynamic_batching"),
        "steps": [{"model": step.model_name, "inputs": dict(step.input_map),
                   "outputs": dict(step.output_map)} for step in config.ensemble_scheduling.step],
    }  # fmt: skip


def tensor_facts(tensor: Any) -> dict[str, Any]:
    name = model_config_pb2.DataType.Name(tensor.data_type).removeprefix("TYPE_")
    found = {"type": "variable" if name == "BF16" else name, "dims": list(tensor.dims)}
    for flag, value in (
        ("optional", tensor.optional if hasattr(tensor, "optional") else False),
        ("ragged", tensor.allow_ragged_batch if hasattr(tensor, "allow_ragged_batch") else False),
        ("scalar", tensor.HasField("reshape")),
    ):
        if value:
            found[flag] = True
    return found


def newest(old: dict[str, Any]) -> dict[str, Any]:
    """The facts of 1.2.1."""
    new: dict[str, Any] = json.loads(re.sub("|".join(NEWER), lambda match: NEWER[match[0]], json.dumps(old)))
    for name in ("ensemble", "tensorrt_llm", "tensorrt_llm_bls"):
        for count in COUNTS:
            flag = copy.deepcopy(new[name]["inputs"]["return_perf_metrics"])
            new[name]["inputs"][f"return_{count}"] = flag
            new[name]["outputs"][count] = {"type": "INT32", "dims": [1]}
    for count in COUNTS:
        new["ensemble"]["steps"][1]["inputs"][f"return_{count}"] = f"return_{count}"
        new["ensemble"]["steps"][1]["outputs"][count] = count
    new["preprocessing"]["inputs"]["IMAGES"] = {"type": "STRING", "dims": [-1], "optional": True}
    new["preprocessing"]["parameters"]["hf_model_path"] = "${hf_model_path}"
    new["preprocessing"]["variables"] = sorted({*new["preprocessing"]["variables"], "hf_model_path"})
    new["tensorrt_llm"]["inputs"]["prompt_embedding_table"]["type"] = "variable"
    new["tensorrt_llm"]["variables"] = sorted({*new["tensorrt_llm"]["variables"], "prompt_embedding_table_data_type"})
    return new


def recorded(folder: Path) -> dict[str, Any]:
    return {name: facts((folder / name / "config.pbtxt").read_text()) for name in MODELS}


def main() -> None:
    given = Path(sys.argv[1])
    if (given / "v0.9.0").is_dir():
        older = {version: recorded(given / f"v{version}") for version in ("0.9.0", "0.12.0", "0.16.0")}
        OLDER.write_text(in_rows(json.loads(json.dumps(older, sort_keys=True))) + "\n")
        return
    old = recorded(given)
    found = json.dumps({"0.19.0": old, "1.2.1": newest(old)}, sort_keys=True)
    FILE.write_text(in_rows(json.loads(found)) + "\n")


if __name__ == "__main__":
    main()
