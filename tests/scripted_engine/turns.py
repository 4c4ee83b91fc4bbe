"""Scripts of engines that replay: a file of turns, each of which answers the prompts that it matches.

The script is an object::

    {"chunk": 1, "guided": true, "turns": [{"match": "weather in Paris", "text": "<tool_call>...", "chunk": 3}, ...]}

``chunk`` is the number of tokens in a response, or a list of such numbers that is gone through again and again.
``guided`` false refuses guides as an engine without a guided decoder does; true takes them, journals them, and replays
all the same. A turn has

- ``match``: a regular expression that is searched for in the decoded prompt, special tokens included; or
  ``prompt_ids``: the prompt's exact ids. The last turn that matches plays, so that turns of a conversation stand in
  their order;
- ``ids``: the answer's token ids; or ``text``, from which they are made, special tokens included;
- ``chunk``: its own;
- more that an engine knows: see its own page.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer


class Script:
    """The file, read when it changed."""

    def __init__(self, path: Path, tokenizer: Tokenizer) -> None:
        self._path, self._tokenizer = path, tokenizer
        self._version: tuple[int, int] | None = None
        self._content: dict[str, Any] = {}

    def read(self) -> dict[str, Any]:
        """The script as it is now."""
        status = self._path.stat()
        version = (status.st_mtime_ns, status.st_ino)
        if version != self._version:
            self._content, self._version = json.loads(self._path.read_text(encoding="utf-8")), version
        return self._content

    def decode(self, ids: list[int]) -> str:
        """The text of ids, special tokens included."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))

    def turn(self, prompt_ids: list[int]) -> dict[str, Any] | None:
        """What answers a prompt: ``ids``, ``chunk`` as a list, and the rest as the script has it; None without one."""
        content = self.read()
        prompt = self.decode(prompt_ids)
        for turn in reversed(content.get("turns", [])):
            if "prompt_ids" in turn:
                matches = turn["prompt_ids"] == prompt_ids
            else:
                matches = re.search(turn["match"], prompt, re.DOTALL) is not None
            if matches:
                chunk = turn.get("chunk") or content.get("chunk", 1)
                ids = turn["ids"] if "ids" in turn else self._encode(turn.get("text", ""))
                return {**turn, "ids": ids, "chunk": chunk if isinstance(chunk, list) else [chunk]}
        return None

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids
