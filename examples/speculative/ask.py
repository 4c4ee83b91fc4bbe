"""Ask tensorrt_llm_bls the same without drafts, and with drafts of eight tokens by ids and by logits."""

from __future__ import annotations

import queue
import sys

import numpy as np
from tritonclient.grpc import InferenceServerClient, InferInput

PROMPT = sys.argv[2] if len(sys.argv) > 2 else "Once upon a time"


def tensor(name: str, datatype: str, value: object) -> InferInput:
    """An input of one value."""
    kinds = {"BYTES": np.object_, "INT32": np.int32, "BOOL": np.bool_}
    given = InferInput(name, [1, 1], datatype)
    given.set_data_from_numpy(np.array([[value]], dtype=kinds[datatype]))
    return given


def ask(client: InferenceServerClient, drafts: int, *, by_logits: bool = False) -> str:
    """The answer, and how many guesses were right."""
    answers: queue.Queue = queue.Queue()
    inputs = [
        tensor("text_input", "BYTES", PROMPT.encode()),
        tensor("max_tokens", "INT32", 32),
        tensor("exclude_input_in_output", "BOOL", True),
        tensor("return_perf_metrics", "BOOL", True),
    ]
    if drafts:
        inputs += [tensor("num_draft_tokens", "INT32", drafts), tensor("use_draft_logits", "BOOL", by_logits)]
    client.start_stream(lambda result, error: answers.put((result, error)))
    client.async_stream_infer("tensorrt_llm_bls", inputs)
    result, error = answers.get(timeout=60)
    client.stop_stream()
    if error is not None:
        raise error
    text = result.as_numpy("text_output").reshape(-1)[0].decode(errors="replace")
    if result.as_numpy("total_draft_tokens") is None:
        return f"without drafts: {text!r}"
    total, right = (result.as_numpy(name).item() for name in ("total_draft_tokens", "total_accepted_draft_tokens"))
    how = "by logits:     " if by_logits else "with drafts:   "
    return f"{how} {text!r}, {right} of {total} guesses accepted"


with InferenceServerClient(sys.argv[1]) as server:
    print(ask(server, 0))
    print(ask(server, 8))
    print(ask(server, 8, by_logits=True))
