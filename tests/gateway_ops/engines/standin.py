"""Stands in for TensorRT-LLM's tools: takes the flags of the recorded tables, and writes the files that they write.

Started as ``standin.py HOME PROGRAM WORDS...`` by the executables that `conftest.py` puts on the PATH. Only the
standard library is imported, so that it starts fast. Sources of the files: TensorRT-LLM's `builder.py` (`Engine.save`
writes ``config.json`` with version, pretrained_config and build_config, and ``rankN.engine``), `modeling_utils.py`
(`save_checkpoint` writes ``config.json`` and ``rankN.safetensors``), `hf_lora_convert.py`,
`generate_xgrammar_tokenizer_info.py`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Be the program that the first word names."""
    home, program, words = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    tool = program
    if program == "python3":
        script = Path(words.pop(0))
        variable = "MODELOPT_EXAMPLES" if "llm_ptq" in script.parts else "TRTLLM_EXAMPLES"
        tool = str(script.relative_to(os.environ[variable]))
    with (home / "calls.jsonl").open("a") as calls:
        calls.write(json.dumps([tool, *words]) + "\n")
    run(home, tool, parse(home, tool, words))


def parse(home: Path, tool: str, words: list[str]) -> dict[str, Any]:
    """Read the words as the tool's parser does: what it does not know ends it with status 2."""
    table = json.loads((home / "tables.json").read_text())[tool]
    found: dict[str, Any] = {}
    words = words[table["positional"] :]
    while words:
        name = words.pop(0)
        if name not in table["flags"]:
            reject(f"usage: {tool}\n{tool}: error: unrecognized arguments: {name}")
        count, choices = table["flags"][name]
        values: list[str] = []
        while words and not words[0].startswith("--") and (count is None or len(values) < count):
            values.append(words.pop(0))
        if (count is not None and len(values) != count) or any(choices and value not in choices for value in values):
            reject(f"{tool}: error: argument {name}: invalid choice or count: {values}")
        found[name.lstrip("-").replace("-", "_")] = values[0] if count == 1 else values or True
    return found


def reject(why: str) -> None:
    """End as argparse does."""
    sys.stderr.write(why + "\n")
    sys.exit(2)


def run(home: Path, tool: str, told: dict[str, Any]) -> None:
    """Write what the tool writes, or half of it where a fault is asked for."""
    fault = os.environ.get("STANDIN_FAULT", "")
    fault = fault.partition(":")[2] if fault.startswith(f"{Path(tool).name}:") else ""
    output = Path(next(told[name] for name in ("output_dir", "export_path", "local_dir", "o") if name in told))
    output.mkdir(parents=True, exist_ok=True)
    if fault:
        (output / "rank0.engine").write_bytes(b"half")
    if fault == "full":
        sys.exit("OSError: [Errno 28] No space left on device")
    if fault == "hang":
        (home / "hanging").write_text(str(os.getpid()))
        signal.pause()
    if fault == "short":
        return
    sys.stdout.write(f"{tool} at work\n")
    write(tool, told, output)


def write(tool: str, told: dict[str, Any], output: Path) -> None:
    """The files of the tool's result."""
    if tool == "hf":
        save(output / "config.json", CONFIG)
        (output / "model.safetensors").write_bytes(safetensors())
    elif tool == "trtllm-build":
        engine(told, output)
    elif tool == "generate_xgrammar_tokenizer_info.py":
        save(output / "xgrammar_tokenizer_info.json", {"encoded_vocab": []})
    elif tool == "hf_lora_convert.py":
        (output / "model.lora_weights.npy").write_bytes(b"weights")
        (output / "model.lora_config.npy").write_bytes(b"config")
    elif tool == "llm_ptq/hf_ptq.py":
        save(output / "config.json", CONFIG)
        save(output / "hf_quant_config.json", {"quantization": {"quant_algo": told["qformat"].upper()}})
        (output / "model.safetensors").write_bytes(safetensors())
    else:
        checkpoint(tool, told, output)


def checkpoint(tool: str, told: dict[str, Any], output: Path) -> None:
    """A checkpoint for trtllm-build, from a model that must be there."""
    source = Path(told["model_dir"])
    config = json.loads((source / "config.json").read_text())
    tp, pp = int(told.get("tp_size", told.get("world_size", 1))), int(told.get("pp_size", 1))
    quantized = {"quant_algo": told.get("qformat"), "kv_cache_quant_algo": told.get("kv_cache_dtype")}
    mapping = {"world_size": tp * pp, "tp_size": tp, "pp_size": pp}
    told_by_model = {"architecture": config["model_type"], "vocab_size": config["vocab_size"]}
    save(output / "config.json", told_by_model | {"quantization": quantized, "mapping": mapping})
    for rank in range(tp * pp):
        (output / f"rank{rank}.safetensors").write_bytes(safetensors())


def engine(told: dict[str, Any], output: Path) -> None:
    """An engine, from a checkpoint that must be there."""
    config = json.loads((Path(told["checkpoint_dir"]) / "config.json").read_text())
    plugins = {"tokens_per_block": int(told.get("tokens_per_block", 32)), "lora_plugin": told.get("lora_plugin")}
    plugins["use_paged_context_fmha"] = told["use_paged_context_fmha"] == "enable"
    build = {"plugin_config": plugins, "gather_context_logits": bool(told.get("gather_context_logits"))}
    defaults = {"max_batch_size": 2048, "max_input_len": 1024, "max_seq_len": 8192, "max_num_tokens": 8192}
    for name, default in {**defaults, "max_beam_width": 1, "max_draft_len": 0}.items():
        build[name] = int(told.get(name, default))
    version = os.environ["STANDIN_TRTLLM"]
    for rank in range(config["mapping"]["world_size"]):
        (output / f"rank{rank}.engine").write_bytes(b"engine" * 100)
    save(output / "config.json", {"version": version, "pretrained_config": config, "build_config": build})


CONFIG = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}  # fmt: skip


def safetensors() -> bytes:
    """A file of one small tensor."""
    tensor = {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]}
    header = json.dumps({"model.layers.0.mlp.up_proj.weight": tensor}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(8)


def save(path: Path, data: Any) -> None:
    """Write JSON."""
    path.write_text(json.dumps(data))


if __name__ == "__main__":
    main()
