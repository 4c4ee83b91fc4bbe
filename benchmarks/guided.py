"""The cost of guided decoding in the reference engine per token, beside the cost of a token without it.

    OPENBLAS_NUM_THREADS=1 .venv/bin/python benchmarks/guided.py [--tokens 96]

SmolLM2-135M-Instruct writes an answer by each guide; its tokens are then taken through the guide once more, compiled
afresh and alone, and the CPU time of the mask, of its use and of the advance is taken. It needs the development
requirements.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from gateway_ops.local_stack.smollm2 import ensure_model_folder

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "triton_repo" / "tensorrt_llm" / "1"))

from cpu_double.guided import GuidedDecoder
from cpu_double.llama import Llama
from cpu_double.reference_engine import Limits, ReferenceEngine
from wire.request import Guide, Request, Sampling

PROMPT = "<|im_start|>user\nInvent a person, in JSON.<|im_end|>\n<|im_start|>assistant\n"
TEXT = {"type": "string", "maxLength": 40}
PERSON = {
    "type": "object",
    "properties": {"name": TEXT, "age": {"type": "integer"}, "tags": {"type": "array", "items": TEXT, "maxItems": 8}},
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
TOOLS = {
    "anyOf": [
        {"type": "object", "properties": {"name": {"const": f"tool_{n}"}, "arguments": PERSON}, "required": ["name"]}
        for n in range(100)
    ]
}
GRAMMAR = r"""
root   ::= object
value  ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" (string ":" value ("," string ":" value)*)? "}"
array  ::= "[" (value ("," value)*)? "]"
string ::= "\"" ([^"\\\x00-\x1f] | "\\" ["\\/bfnrt])* "\""
number ::= "-"? [0-9]+ ("." [0-9]+)?
"""
CALL = {"structures": [{"begin": "<call>", "schema": PERSON, "end": "</call>"}], "triggers": ["<call>"]}
GUIDES = {
    "json": Guide("json", ""),
    "json_schema, small": Guide("json_schema", json.dumps(PERSON)),
    "json_schema, 100 tools": Guide("json_schema", json.dumps(TOOLS)),
    "regex": Guide("regex", r"([A-Z][a-z]{2,9} ){20,30}"),
    "ebnf_grammar, JSON": Guide("ebnf_grammar", GRAMMAR),
    "structural_tag, free text": Guide("structural_tag", json.dumps(CALL)),
}


def generate(engine: ReferenceEngine, prompt: list[int], tokens: int, guide: Guide | None) -> tuple[list[int], float]:
    """Generate an answer; return its tokens and the CPU milliseconds of each, without the prompt."""
    engine.submit(
        Request("r", prompt, tokens, end_id=2, sampling=Sampling(0.8, top_p=1.0), streaming=True, guide=guide)
    )
    ids: list[int] = []
    start = 0.0
    while engine.busy:
        for response in engine.step():
            if response.error:
                raise SystemExit(response.error)
            start = start or time.process_time()
            ids += response.ids
    return ids, (time.process_time() - start) * 1000 / max(1, len(ids) - 1)


def replay(decoder: GuidedDecoder, guide: Guide, ids: list[int], vocab: int) -> list[float]:
    """CPU milliseconds of the guide for each token of an answer."""
    request = Request("r", [0], 1, end_id=2, guide=guide)
    matcher = decoder.start(request, decoder.compile(guide))
    scores = np.zeros(vocab)
    times = []
    for token in ids:
        start = time.thread_time()
        np.where(matcher.allowed(), scores, -np.inf)
        matcher.advance(token)
        times.append((time.thread_time() - start) * 1000)
    return times


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=96)
    tokens = parser.parse_args().tokens
    folder = ensure_model_folder()
    model = Llama(folder)
    vocab = model.config.vocab
    start = time.perf_counter()
    decoder = GuidedDecoder.of(folder, vocab)
    print(f"tokenizer read in {time.perf_counter() - start:.2f} s")
    fresh = GuidedDecoder.of(folder, vocab)
    engine = ReferenceEngine(model, Limits(1024), guided=decoder)
    prompt = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(PROMPT, add_special_tokens=False).ids
    _, free = generate(engine, prompt, tokens, None)
    print(f"without a guide: {free:.1f} ms CPU per token\n")
    print("| guide | compiled, ms | tokens | guide per token, ms: mean | median | most |\n|---|---|---|---|---|---|")
    for name, guide in GUIDES.items():
        ids, _ = generate(engine, prompt, tokens, guide)
        start = time.perf_counter()
        fresh.compile(guide).result()
        compiled = (time.perf_counter() - start) * 1000
        times = replay(fresh, guide, ids, vocab)
        cells = (statistics.mean(times), statistics.median(times), max(times))
        print(f"| {name} | {compiled:.1f} | {len(ids)} | {' | '.join(f'{cell:.2f}' for cell in cells)} |")
    decoder.close()
    fresh.close()


if __name__ == "__main__":
    main()
