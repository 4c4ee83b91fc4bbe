"""The model of Triton's vLLM backend as Triton loads it, with scripted answers in place of vLLM's.

The facts are those of wire contract 10. The environment names the files of `text_script`: SCRIPT_FILE and JOURNAL_FILE.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import triton_python_backend_utils as pb_utils
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from tests.doubles.llmapi.script import Journal
from tests.doubles.text.text_script import Asked, Played, TextScript
from tests.doubles.text.vllm_sampling import VERSIONS, Sampling, logprobs_of, read_sampling

_PLAYERS = 64
_LOOK_S = 0.01
_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class VllmModel:
    """``TritonPythonModel`` of one version; model.py makes a subclass that names it."""

    VERSION: ClassVar[str]

    @classmethod
    def auto_complete_config(cls, auto_complete_model_config: Any) -> Any:
        """Tell Triton the tensors; all that config.pbtxt has is a backend."""
        version = VERSIONS[cls.VERSION]
        for name, kind, dimension in version.inputs():
            tensor = {"name": name, "data_type": f"TYPE_{kind}", "dims": [dimension]}
            auto_complete_model_config.add_input(tensor | ({} if name == "text_input" else {"optional": True}))
        for name, kind, dimension in version.outputs():
            auto_complete_model_config.add_output({"name": name, "data_type": f"TYPE_{kind}", "dims": [dimension]})
        auto_complete_model_config.set_model_transaction_policy({"decoupled": True})
        auto_complete_model_config.set_max_batch_size(0)
        return auto_complete_model_config

    def initialize(self, args: dict[str, str]) -> None:
        """Read the tokenizer's folder, the longest sequence and the adapters out of model.json."""
        folder = Path(args["model_repository"]) / args["model_version"]
        settings = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        self._version, self._name = VERSIONS[self.VERSION], args["model_name"]
        self._most, self._adapters = settings["max_model_len"], settings.get("adapters", [])
        model = Path(settings["model"])
        self._tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        eos = json.loads((model / "tokenizer_config.json").read_text(encoding="utf-8"))["eos_token"]
        self._eos = int(self._tokenizer.token_to_id(eos) or 0)
        self._journal = Journal(Path(os.environ["JOURNAL_FILE"]))
        self._script = TextScript(Path(os.environ["SCRIPT_FILE"]), self._tokenizer, self._eos)
        self._keys = (f"{self._name}-{os.getpid()}-{number}" for number in itertools.count())
        self._players = ThreadPoolExecutor(_PLAYERS, "player")
        self._closing = threading.Event()

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> None:
        """Begin to answer, in threads of their own."""
        for request in requests:
            self._players.submit(self._answer, request, next(self._keys))

    def finalize(self) -> None:
        """Leave what is still being answered."""
        self._closing.set()
        self._players.shutdown(cancel_futures=True)

    def _answer(self, request: pb_utils.InferenceRequest, key: str) -> None:
        sender = request.get_response_sender()
        try:
            inputs = self._inputs(request)
            self._journal.write(key, id=request.request_id(), model=self._name, inputs=inputs)
            if problem := self._adapter_problem(inputs):
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(problem)), _FINAL)
                return
            self._generate(sender, key, inputs)
        except Exception as error:
            self._journal.write(key, error=str(error))
            text = pb_utils.Tensor("text_output", np.asarray(["N/A"], dtype=np.object_))
            failure = pb_utils.TritonError(f"Error generating stream: {error}")
            sender.send(pb_utils.InferenceResponse([text], error=failure), _FINAL)
            raise

    def _inputs(self, request: pb_utils.InferenceRequest) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, kind, _ in self._version.inputs():
            tensor = pb_utils.get_input_tensor_by_name(request, name)
            if tensor is not None:
                value = tensor.as_numpy()[0]
                found[name] = value.decode() if kind == "STRING" else bool(value)
        return found

    def _adapter_problem(self, inputs: dict[str, Any]) -> str | None:
        name = json.loads(inputs.get("sampling_parameters", "{}")).get("lora_name")
        if name is None or name in self._adapters:
            return None
        if not self._adapters:
            return "LoRA feature is not enabled."
        return f"LoRA {name} is not supported, we currently support {self._adapters}"

    def _generate(self, sender: Any, key: str, inputs: dict[str, Any]) -> None:
        stream = inputs.get("stream", False)
        prepend = not inputs.get("exclude_input_in_output", stream)
        if prepend and stream:
            raise ValueError("When streaming, `exclude_input_in_output` = False is not allowed.")
        sampling = read_sampling(self._version, inputs.get("sampling_parameters", "{}"))
        prompt = inputs["text_input"]
        ids = list(self._tokenizer.encode(prompt).ids)  # with special tokens
        if len(ids) > self._most:
            raise ValueError(
                f"The decoder prompt (length {len(ids)}) is longer than the maximum model length of {self._most}. "
                "Make sure that `max_model_len` is no smaller than the number of text tokens."
            )
        limit = min(sampling.max_tokens, max(self._most - len(ids), 1))
        ends = frozenset(sampling.stop_token_ids) | (frozenset() if sampling.ignore_eos else {self._eos})
        played = self._script.answer(Asked(ids, limit, ends, sampling.repeats))
        text = str(self._tokenizer.decode(ids, skip_special_tokens=False))
        generated = len(played.ids) - (played.finish == "stop")
        answer = {"ids": played.ids[:generated], "end": played.finish}
        self._journal.write(
            key, prompt=text, prompt_ids=ids, max_tokens=sampling.max_tokens, effective=sampling.effective,
            generated=generated, finish=played.finish, answer=answer,
        )  # fmt: skip
        _Run(self, sender, key, inputs, sampling, played, len(ids)).send(
            stream=stream, prompt=prompt if prepend else ""
        )

    def is_stalled(self, content: object) -> bool:
        """Wait a little, where an answer stands still; False once the script was replaced."""
        return not self._closing.wait(_LOOK_S) and self._script.read() is content

    def note(self, key: str, **what: Any) -> None:
        """Tell the journal."""
        self._journal.write(key, **what)

    def decode(self, decoder: DecodeStream, ids: list[int], finish: str | None) -> str:
        """New text: without special tokens, the token that ended it, and the bytes of an unfinished character."""
        shown = ids[:-1] if finish == "stop" else ids
        return "".join(decoder.step(self._tokenizer, token) or "" for token in shown)

    @property
    def content(self) -> object:
        """The script as it is now."""
        return self._script.read()

    @property
    def version(self) -> Any:
        """Whose ways it has."""
        return self._version

    @property
    def vocabulary(self) -> int:
        """Tokens that there are."""
        return int(self._tokenizer.get_vocab_size())


class _Run:
    """One answer."""

    def __init__(
        self,
        model: VllmModel,
        sender: Any,
        key: str,
        inputs: dict[str, Any],
        sampling: Sampling,
        played: Played,
        prompt: int,
    ) -> None:
        self._model, self._sender, self._key, self._inputs = model, sender, key, inputs
        self._sampling, self._played, self._prompt = sampling, played, prompt
        self._decoder = DecodeStream(skip_special_tokens=True)
        self._sum = 0.0

    def send(self, *, stream: bool, prompt: str) -> None:
        """Send all responses: the last one has the final flag and data."""
        content, turn, made, whole = self._model.content, self._played.turn, 0, ""
        last: list[int] = []
        for size in self._played.sizes():
            time.sleep(turn.get("pause", 0))
            ids = self._played.ids[made : made + size]
            made += size
            done = made == len(self._played.ids) and "hold" not in turn and made != turn.get("fail_after")
            finish = self._played.finish if done else None
            # A cancel is looked for when vLLM has made something, and only then.
            if self._sender.is_cancelled():
                self._cancelled(made)
                return
            whole, last = whole + self._model.decode(self._decoder, ids, finish), last + ids
            if stream or finish:
                tensors = self._tensors(prompt + whole, last, finish)  # kept until they are sent
                self._sender.send(pb_utils.InferenceResponse(tensors), _FINAL if finish else 0)
                whole, last = "", []
            if finish:
                self._model.note(self._key, ended="finished", tokens=made)
                return
        if turn.get("fail_after") == made:
            raise RuntimeError(turn.get("error", "EngineCore encountered an issue. See stack trace (above)"))
        while not self._sender.is_cancelled() and self._model.is_stalled(content):
            pass
        self._cancelled(made)

    def _cancelled(self, made: int) -> None:
        self._model.note(self._key, ended="cancelled", tokens=made)
        error = pb_utils.TritonError("Request was cancelled", pb_utils.TritonError.CANCELLED)
        self._sender.send(pb_utils.InferenceResponse(error=error), _FINAL)

    def _tensors(self, text: str, ids: list[int], finish: str | None) -> list[Any]:
        found: dict[str, Any] = {"text_output": _strings(text)}
        if self._inputs.get("return_finish_reason"):
            found["finish_reason"] = _strings(str(finish))
        if self._inputs.get("return_num_input_tokens"):
            found["num_input_tokens"] = np.asarray(self._prompt, dtype=np.uint32)  # of no dimension
        if self._inputs.get("return_num_output_tokens"):
            found["num_output_tokens"] = np.asarray([len(ids)], dtype=np.uint32)
        entries = logprobs_of(ids, self._sampling.logprobs, self._model.vocabulary)
        self._sum += sum(entry[token]["logprob"] for entry, token in zip(entries or [], ids, strict=False))
        if self._inputs.get("return_logprobs"):
            found["logprobs"] = _strings(json.dumps(entries))
        if self._inputs.get("return_cumulative_logprob"):
            found["cumulative_logprob"] = np.asarray([self._sum], dtype=np.float32)
        for name, value in self._played.turn.get("spoil", {}).items():
            if found.pop(name, None) is not None and value is not None:
                found[name] = _strings(value) if isinstance(value, str) else np.asarray(value, dtype=np.uint32)
        return [pb_utils.Tensor(name, array) for name, array in found.items()]


def _strings(text: str) -> Any:
    return np.asarray([text.encode()], dtype=np.object_)
