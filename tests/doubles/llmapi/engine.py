"""The engine behind the stock LLM API model: text in, scripted text out, with the ways of its version."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from tests.doubles.llmapi.sampling import Sampling
from tests.doubles.llmapi.script import Journal, LlmapiScript, Turn
from tests.doubles.llmapi.versions import Version

_LOOK_S = 0.01  # how often a run that stands still looks whether it may go on
_MAX_SEQ_LEN, _MAX_NUM_TOKENS = 12288, 8192  # where model.yaml names none


@dataclass(frozen=True, slots=True)
class Output:
    """An answer so far: its whole text, and its finish reason once it has ended."""

    text: str
    finish: str | None


class Adapter(NamedTuple):
    """A LoRA adapter; its path is one of the server."""

    adapter_id: int
    name: str
    path: str


class Engine:
    """``LLM`` of one version.

    Args:
        version: whose ways it has.
        arguments: the keys of model.yaml but for ``triton_config``; ``model`` is a folder with a tokenizer.
        script: what it plays.
        journal: where it tells of each request.
    """

    def __init__(self, version: Version, arguments: dict[str, Any], script: Path, journal: Journal) -> None:
        folder = Path(arguments["model"])
        self._version, self.journal = version, journal
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer_config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        self.end_id = self.tokenizer.token_to_id(tokenizer_config["eos_token"])
        self.script = LlmapiScript(script, self.tokenizer, self.end_id)
        self._max_seq_len: int = arguments.get("max_seq_len", _MAX_SEQ_LEN)
        self._max_num_tokens: int = arguments.get("max_num_tokens", _MAX_NUM_TOKENS)
        self._has_adapters = "lora_config" in arguments
        self._adapters: dict[int, Adapter] = {}
        self._played = self.script.read()

    def start(self, key: str, prompt: str, sampling: Sampling, *, streaming: bool, adapter: Any) -> Run:
        """Begin an answer.

        Args:
            key: of the journal.
            prompt: as it came.
            sampling: what is asked.
            streaming: whether outputs come before the last one.
            adapter: an `Adapter`, or None for the base model; versions that mistake the flag ``streaming`` for it pass
                that.

        Raises:
            AttributeError: the adapter is no adapter.
            ValueError: a length is out of range.
            LookupError: the script has no answer.
        """
        ids = list(self.tokenizer.encode(prompt, add_special_tokens=self._version.bos).ids)
        used = self._adapter(adapter)
        limit = self._limit(len(ids), sampling.max_tokens)
        self.journal.write(
            key,
            prompt=str(self.tokenizer.decode(ids, skip_special_tokens=False)),
            prompt_ids=ids,
            max_tokens=limit,
            adapter=used and used._asdict(),
        )
        turn = self.script.find(ids, sampling, limit)
        shown = ids if sampling.keeps_prompt and not streaming else []
        return Run(self, key, turn, shown=shown, streaming=streaming)

    def _adapter(self, asked: Any) -> Adapter | None:
        if asked is None or not self._has_adapters:
            return None
        if self.script.read() is not self._played:  # one test's adapters are none of the next one's
            self._played, self._adapters = self.script.read(), {}
        # Weights are found by the id alone: another name or path of the same id changes nothing.
        return self._adapters.setdefault(asked.adapter_id, asked)

    def _limit(self, length: int, max_tokens: int) -> int:
        if not self._version.checks_lengths:
            return max(1, min(max_tokens, self._max_seq_len - length))
        if max_tokens <= 0:
            raise ValueError(f"max_tokens must be greater than 0, got {max_tokens}")
        if length >= self._max_seq_len:
            raise ValueError(f"default_max_tokens ({self._max_seq_len - length}) must be greater than 0")
        if length > self._max_num_tokens:
            raise ValueError(
                f"The sum of prompt length ({length}) and query length (1) should not exceed max_num_tokens "
                f"({self._max_num_tokens})"
            )
        return min(max_tokens, self._max_seq_len - length)


class Run:
    """One answer that is being made."""

    def __init__(self, engine: Engine, key: str, turn: Turn, *, shown: list[int], streaming: bool) -> None:
        self._engine, self._key, self._turn = engine, key, turn
        self._shown, self._streaming = shown, streaming
        self._aborted = threading.Event()
        self._content = engine.script.read()
        # Bytes of an unfinished character stay in it: nothing asks for them at the end.
        self._decoder = DecodeStream(skip_special_tokens=True)

    def abort(self) -> None:
        """Make no further token."""
        self._aborted.set()

    def outputs(self) -> Iterator[Output]:
        """The text after each step, or only after the last one where it does not stream.

        Raises:
            RuntimeError: the script lets it fail.
        """
        text, made, finish = self._decode(self._shown), 0, None
        for size in itertools.cycle(self._turn.chunks):
            step: list[int] = []
            if self._is_over(made):
                finish = "cancelled"
            else:
                step = self._step(made, size)
                made += len(step)
                text += self._decode(step)
                if made == len(self._turn.ids) != self._turn.stall_after:
                    finish = self._turn.finish
            if finish:
                self._tell(made, finish)
            if finish or (step and self._streaming):
                yield Output(text, finish)
            if finish:
                return

    def _is_over(self, made: int) -> bool:
        """Whether it was aborted; where it stands still, wait for that, or for another script."""
        holds = made == self._turn.stall_after
        while holds and self._engine.script.read() is self._content:
            if self._aborted.wait(_LOOK_S):
                break
        return holds or self._aborted.is_set()

    def _step(self, made: int, size: int) -> list[int]:
        if made == self._turn.fail_after:
            self._tell(made, "error")
            raise RuntimeError(self._turn.error)
        marks = (self._turn.stall_after, self._turn.fail_after)
        return self._turn.ids[made : min([made + size, *(mark for mark in marks if mark is not None and mark > made)])]

    def _decode(self, ids: list[int]) -> str:
        return "".join(self._decoder.step(self._engine.tokenizer, token) or "" for token in ids)

    def _tell(self, made: int, finish: str) -> None:
        ids = self._turn.ids[:made]
        self._engine.journal.write(
            self._key,
            answer_ids=ids,
            generated=sum(token != self._engine.end_id for token in ids),
            finish=finish,
            aborted=self._aborted.is_set(),
        )
