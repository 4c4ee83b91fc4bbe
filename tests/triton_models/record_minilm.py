"""Record the vectors of all-MiniLM-L6-v2 by an independent implementation: torch and transformers, float32, on the CPU.

Run once, in an environment of its own, because the project needs neither package:

    pip install torch==2.13.0+cpu transformers==5.23.0
    python record_minilm.py FOLDER minilm.json

The folder is the one that the embedded deployment makes. Tokens are pooled by their mean and vectors have length 1, as
the folder's ``1_Pooling/config.json`` and ``modules.json`` say.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import BertModel

TEXTS = (
    "What is the capital of France?", "Größe, Straße, naïve façade: 東京 👍", "def f(x):\n    return x ** 2  # squares",
    "a", " ".join(f"The {number}th sentence of a long text is about trains." for number in range(20)),
)  # fmt: skip


def main(folder: Path, out: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    model = BertModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    recorded = []
    for text in TEXTS:
        encoding = tokenizer.encode(text)
        with torch.no_grad():
            mean = model(torch.tensor([encoding.ids])).last_hidden_state[0].mean(dim=0)
        vector = [round(value, 8) for value in (mean / mean.norm()).tolist()]
        recorded.append({"text": text, "tokens": len(encoding.ids), "vector": vector})
    out.write_text(json.dumps(recorded, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
