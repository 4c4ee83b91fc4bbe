"""The base of scripted models of text: what they share as Triton's Python backend calls them."""

from __future__ import annotations

import itertools
import json
import os
import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from tests.scripted_engine.turns import Journal, Script

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
_PLAYERS = 128  # requests that are answered at the same time; more of them wait


class TextModel:
    """A model that answers in threads of its own, by `answer`, which a subclass has."""

    def open(self, name: str, folder: Path, *, goes_on: bool) -> None:
        """Begin; one that ``goes_on`` says a turn's text again where the end token does not end an answer."""
        self.name = name
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        named = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        self.eos: int = self.tokenizer.token_to_id(named["eos_token"]) or 0
        self.script = Script(
            Path(os.environ["SCRIPT_FILE"]), self.tokenizer, eos=self.eos if goes_on else None, end=self.eos
        )
        self.note = Journal(Path(os.environ["JOURNAL_FILE"])).write
        self.keys = (f"{name}-{os.getpid()}-{number}" for number in itertools.count())
        self._players = ThreadPoolExecutor(_PLAYERS, "player")
        self.closing = threading.Event()

    def answer(self, request: pb_utils.InferenceRequest, key: str) -> None:
        """Send all responses to a request; ``key`` is that of its entry in the journal."""
        raise NotImplementedError

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> Any:
        """Begin to answer."""
        for request in requests:
            self._players.submit(self.answer, request, next(self.keys))

    def finalize(self) -> None:
        """End what is still being answered."""
        self.closing.set()
        self._players.shutdown(cancel_futures=True)

    def until_replaced(self, is_over: Callable[[], bool]) -> Callable[[], bool]:
        """Whether an answer is over: by itself, or because another script is played or the model unloaded."""
        content = self.script.read()
        return lambda: is_over() or self.closing.is_set() or self.script.read() is not content


class Decoder:
    """Ids to text, step by step, without special tokens; bytes of an unfinished character stay in it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self._stream = tokenizer, DecodeStream(skip_special_tokens=True)

    def push(self, ids: list[int]) -> str:
        """The text that new ids complete."""
        return "".join(self._stream.step(self._tokenizer, token) or "" for token in ids)


def read_inputs(request: pb_utils.InferenceRequest, lists: Collection[str] = ()) -> dict[str, Any]:
    """Values of the inputs that came: the first of each, all of those that are ``lists``."""
    found: dict[str, Any] = {}
    for tensor in request.inputs():
        values = tensor.as_numpy().reshape(-1).tolist()
        plain = [value.decode() if isinstance(value, bytes) else value for value in values]
        found[tensor.name()] = plain if tensor.name() in lists else plain[0]
    return found


def strings(text: str) -> Any:
    """A tensor's array of one text, of one dimension."""
    return np.array([text.encode()], dtype=np.object_)


def error(message: str, *code: Any) -> pb_utils.InferenceResponse:
    """A response that is an error."""
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, *code))
