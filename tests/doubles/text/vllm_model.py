"""The model of Triton's vLLM backend as Triton loads it, with scripted answers in place of vLLM's.

The facts are those of wire contract 10.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import triton_python_backend_utils as pb_utils

from tests.doubles.text.vllm_sampling import VERSIONS, Sampling, logprobs_of, read_sampling
from tests.scripted_engine.text_model import FINAL, Decoder, TextModel, error, read_inputs, strings
from tests.scripted_engine.turns import Answer, Asked, play, sampling_of


class VllmModel(TextModel):
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
        self._most, self._adapters = settings["max_model_len"], settings.get("adapters", [])
        self.open(args["model_name"], Path(settings["model"]), goes_on=True)

    def answer(self, request: pb_utils.InferenceRequest, key: str) -> None:
        """See `TextModel`."""
        sender = request.get_response_sender()
        try:
            inputs = read_inputs(request)
            self.note(key, id=request.request_id(), model=self.name, inputs=inputs)
            if problem := self._adapter_problem(inputs):
                sender.send(error(problem), FINAL)
                return
            self._generate(sender, key, inputs)
        except Exception as failure:
            self.note(key, error=str(failure))
            text = pb_utils.Tensor("text_output", strings("N/A"))
            told = pb_utils.TritonError(f"Error generating stream: {failure}")
            sender.send(pb_utils.InferenceResponse([text], error=told), FINAL)
            raise

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
        sampling = read_sampling(VERSIONS[self.VERSION], inputs.get("sampling_parameters", "{}"))
        prompt = inputs["text_input"]
        ids = list(self.tokenizer.encode(prompt).ids)  # with special tokens
        if len(ids) > self._most:
            raise ValueError(
                f"The decoder prompt (length {len(ids)}) is longer than the maximum model length of {self._most}. "
                "Make sure that `max_model_len` is no smaller than the number of text tokens."
            )
        limit = min(sampling.max_tokens, max(self._most - len(ids), 1))
        ends = frozenset(sampling.stop_token_ids) | (frozenset() if sampling.ignore_eos else {self.eos})
        answer = self.script.answer(
            Asked(ids, limit, ends, heeded=sampling.repeats, sampling=sampling_of(sampling.effective))
        )
        self.note(
            key, prompt=self.script.decode(ids), prompt_ids=ids, max_tokens=sampling.max_tokens,
            effective=sampling.effective, **answer.told(),
        )  # fmt: skip
        self._send(sender, key, inputs, sampling, answer, len(ids), prompt if prepend else "")

    def _send(
        self,
        sender: Any,
        key: str,
        inputs: dict[str, Any],
        sampling: Sampling,
        answer: Answer,
        prompt: int,
        text: str,
    ) -> None:
        """Send all responses: the last one has the final flag and data."""
        decoder, made, total = Decoder(self.tokenizer), 0, 0.0
        unsent: list[int] = []
        for step in play(answer, answer.drawn, self.until_replaced(sender.is_cancelled)):
            made += len(step.ids)
            unsent += step.ids
            if step.finish == "cancelled":
                self.note(key, ended="cancelled", tokens=made)
                sender.send(error("Request was cancelled", pb_utils.TritonError.CANCELLED), FINAL)
                return
            text += decoder.push(step.ids if made <= len(answer.ids) else step.ids[:-1])  # without the end token
            if not step.finish and not inputs.get("stream"):
                continue
            entries = logprobs_of(unsent, sampling.logprobs, self.tokenizer.get_vocab_size())
            total += sum(entry[token]["logprob"] for entry, token in zip(entries or [], unsent, strict=False))
            found = {
                "text_output": strings(text),
                "finish_reason": strings(str(step.finish)),
                "num_input_tokens": np.asarray(prompt, dtype=np.uint32),  # of no dimension
                "num_output_tokens": np.asarray([len(unsent)], dtype=np.uint32),
                "logprobs": strings(json.dumps(entries)),
                "cumulative_logprob": np.asarray([total], dtype=np.float32),
            }
            tensors = _tensors(found, inputs, answer)  # kept until they are sent
            sender.send(pb_utils.InferenceResponse(tensors), FINAL if step.finish else 0)
            text, unsent = "", []
        self.note(key, ended="finished", tokens=made)


def _tensors(found: dict[str, Any], inputs: dict[str, Any], answer: Answer) -> list[pb_utils.Tensor]:
    """Those of the outputs that were asked for, spoiled as the script says."""
    asked = {name: array for name, array in found.items() if inputs.get(f"return_{name}", name == "text_output")}
    for name, value in answer.turn.get("spoil", {}).items():
        if asked.pop(name, None) is not None and value is not None:
            asked[name] = strings(value) if isinstance(value, str) else np.asarray(value, dtype=np.uint32)
    return [pb_utils.Tensor(name, array) for name, array in asked.items()]
