"""Record what an independent implementation computes for a model folder: torch and transformers, float32, on the CPU.

Run once per folder, in an environment of its own, because the project needs neither package:

    pip install torch==2.13.0 transformers==5.23.0      (a CPU build of torch)
    python record_reference.py FOLDER OUT.json

``reference_smollm2.json`` was recorded from the folder that the embedded deployment makes (with ``--default-system``,
for the system line that its chat template adds), ``reference_tiny.json`` from the tiny model of seed 0. Each sequence
holds its token ids (a prompt, then the greedy continuation) and, for every position, the five most probable next
tokens with their log-probs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

PROMPTS = (
    "What is the capital of France?",
    "Count to five.",
    "Write a Python function that reverses a string.",
    "Say hello in Chinese, Arabic and emoji.",
    "Translate to French: the weather is beautiful today, and we are going to the sea with our friends.",
    "List three colours.",
)
SYSTEM = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
TURN = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--new-tokens", type=int, default=40)
    parser.add_argument("--default-system", action="store_true")
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(args.folder / "tokenizer.json"))
    model = LlamaForCausalLM.from_pretrained(args.folder, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    sequences = []
    for prompt in PROMPTS:
        text = (SYSTEM if args.default_system else "") + TURN.format(prompt)
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        length = len(ids)
        with torch.no_grad():
            for _ in range(args.new_tokens):
                ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
            best = model(torch.tensor([ids])).logits[0].log_softmax(-1).topk(5)
        sequences.append(
            {
                "prompt_length": length,
                "ids": ids,
                "top_ids": best.indices.tolist(),
                "top_log_probs": [[round(value, 6) for value in row] for row in best.values.tolist()],
            }
        )
    args.out.write_text(json.dumps({"sequences": sequences}, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
