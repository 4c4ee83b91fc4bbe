"""``TRITON_ENGINE=stock``: the same behind the tensors of TensorRT-LLM's stock model, with the habits of a version.

``double.json`` in the model's folder has ``version`` and ``tokenizer``; MODEL_DIR is the folder of the built engine.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from tests.scripted_engine.scripted_adapter import Adapter as ScriptedAdapter
from tests.scripted_engine.turns import Asked, Script
from wire.additions import LORA
from wire.base_adapter import _handle
from wire.outputs import to_tensors
from wire.request import RejectedError, Request
from wire.response import Response

Tensors = dict[str, NDArray[Any]]

_LONGEST_SHOWN = 4096
_GUIDES = (b"json", b"json_schema", b"regex", b"ebnf_grammar")
_RENAMED = {"random_seed": "seed", "min_length": "min_tokens", "return_kv_cache_reuse_stats": "return_perf_metrics"}
# Before 0.13, what was not asked for came out as zeros.
_ZEROS = {
    "cum_log_probs": np.zeros((1, 1), np.float32),
    "output_log_probs": np.zeros((1, 1, 1), np.float32),
    "context_logits": np.zeros((1, 1, 1), np.float32),
    "generation_logits": np.zeros((1, 1, 1, 1), np.float32),
    "batch_index": np.zeros((1, 1), np.int32),
}
_FREE = ("greedy", "seed", "temperature", "top_k", "top_p")
_STEERING = ("repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias", "bad_words")


class Adapter(ScriptedAdapter):
    """Plays a script as the engine of one version; what is asked is told as that engine follows it."""

    _takes = frozenset((LORA,))
    _blocks = (4, 1)

    def __init__(self, args: dict[str, str], folder: Path) -> None:
        file = Path(args["model_repository"], args["model_version"], "double.json")
        self._double = json.loads(file.read_text(encoding="utf-8"))
        engine = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self._max_seq_len = engine["build_config"]["max_seq_len"]
        self._vocab = engine["pretrained_config"]["vocab_size"]
        super().__init__(args, folder)
        policy = json.loads(args["model_config"]).get("model_transaction_policy", {})
        self._decoupled = bool(policy.get("decoupled"))
        self._has_guides = self._parameters.get("guided_decoding_backend") == "xgrammar"
        self._normalizes = self._parameters.get("normalize_log_probs") not in ("false", "False", "FALSE", "0")
        self._unasked = _ZEROS if tuple(map(int, self._double["version"].split("."))) < (0, 13) else {}
        self._tensors: Tensors = {}
        self._cached_loras: set[int] = set()

    def _open_script(self) -> Script:
        tokenizer_dir = Path(self._double["tokenizer"])
        named = json.loads((tokenizer_dir / "tokenizer_config.json").read_text(encoding="utf-8"))
        tokenizer = Tokenizer.from_file(str(tokenizer_dir / "tokenizer.json"))
        eos = tokenizer.token_to_id(named["eos_token"])
        return Script(Path(os.environ["SCRIPT_FILE"]), tokenizer, eos=eos)

    def _take(self, request: Any) -> None:
        self._guided = self._has_guides
        self._tensors = {tensor.name(): np.array(tensor.as_numpy()) for tensor in request.inputs()}
        received: Any = _Received(request, self._read(self._tensors))
        super(ScriptedAdapter, self)._take(received)

    def _read(self, tensors: Tensors) -> Tensors:
        """The tensors by their newest names, without guides of an unknown kind, which the backend drops in silence."""
        found = {_RENAMED.get(name, name): array for name, array in tensors.items()}
        kind = found.get("guided_decoding_guide_type", np.empty(0)).reshape(-1)
        if self._guided and len(kind) and kind[0] not in _GUIDES:
            found = {name: array for name, array in found.items() if not name.startswith("guided_decoding_guide")}
        return found

    def _check(self, request: Request) -> None:
        request.max_tokens = min(request.max_tokens, self._max_seq_len - len(request.prompt))
        request.check(max_seq_len=self._max_seq_len, vocab=self._vocab)
        if request.streaming and not self._decoupled:
            raise RejectedError("Streaming is only supported in decoupled mode.")
        if request.lora is None:
            return
        if request.lora.weights is not None:
            self._cached_loras.add(request.lora.id)
        if request.lora.id not in self._cached_loras:
            raise RejectedError(
                f"LoRA task {request.lora.id} not found in cache. Please send LoRA weights with request"
            )

    def _asked(self, request: Request) -> Asked:
        asked, effective = super()._asked(request), self._effective(request)
        names = (*(("greedy",) if effective["greedy"] else _FREE), *_STEERING)
        heeded = [effective[name] for name in names]
        return replace(asked, min_tokens=effective["min_tokens"], heeded=heeded, normalizes=self._normalizes)

    def _told(self, request: Request) -> dict[str, Any]:
        shown = {
            name: list(array.shape) if array.size > _LONGEST_SHOWN else _plain(array)
            for name, array in self._tensors.items()
        }
        asked = int(self._tensors["request_output_len"].reshape(-1)[0])
        return super()._told(request) | {
            "max_tokens": asked, "tensors": shown, "effective": self._effective(request),
        }  # fmt: skip

    def _effective(self, request: Request) -> dict[str, Any]:
        """The parameters as the executor follows them (wire contract 2.1 and 2.3).

        Temperature 0 turns into 1, and makes greedy only what was given with it.
        """
        sampling = request.sampling
        temperature, top_k, top_p = sampling.temperature, sampling.top_k, sampling.top_p
        if temperature == 0:
            temperature, top_k, top_p = 1.0, top_k and 1, top_p and 1.0
        top_k, top_p = top_k or 0, max(top_p or 0.0, 0.0)
        bias = np.empty(0) if sampling.bias is None else sampling.bias
        return {
            "greedy": top_k == 1 or (top_k == 0 and top_p == 0),
            "temperature": 1.0 if temperature is None else temperature,
            "top_k": top_k,
            "top_p": top_p,
            "seed": sampling.seed,
            "min_tokens": sampling.min_tokens or 1,
            "repetition_penalty": sampling.repetition_penalty,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "max_tokens": request.max_tokens,
            "end_id": request.end_id,
            "stop_words": request.stop_words,
            "bad_words": sampling.bad_words,
            "logit_bias": {str(token): float(bias[token]) for token in np.flatnonzero(bias)},
            "guide": request.guide and request.guide._asdict(),
            "lora_task_id": request.lora and request.lora.id,
            "streaming": request.streaming,
        }

    def _log_prob(self, request: Request, token: int) -> float:
        # Normalized, it is among the candidates that are left.
        alone = self._normalizes and self._effective(request)["greedy"]
        return 0.0 if alone else super()._log_prob(request, token)

    def _send(self, response: Response) -> None:
        _handle(response.request).send({**self._unasked, **to_tensors(response)}, final=response.final)

    def _fail(self, request: Request, reason: str) -> None:
        """Send the error with the final flag, by which a BLS caller that has data hangs."""
        message = f"Executor failed process requestId {request.id or 1} due to the following error: {reason}"
        _handle(request)._send_error(message)


class _Received:
    """A request of Triton with other tensors."""

    def __init__(self, request: Any, tensors: Tensors) -> None:
        self._tensors = tensors
        self.request_id, self.get_response_sender = request.request_id, request.get_response_sender

    def inputs(self) -> list[_Input]:
        """As Triton's."""
        return [_Input(name, array) for name, array in self._tensors.items()]


class _Input:
    def __init__(self, name: str, array: NDArray[Any]) -> None:
        self.name, self.as_numpy = (lambda: name), (lambda: array)


def _plain(array: NDArray[Any]) -> list[Any]:
    values = array.reshape(-1).tolist()
    return [value.decode(errors="replace") if isinstance(value, bytes) else value for value in values]
