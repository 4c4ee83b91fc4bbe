"""A real Triton on the scripted engine, and what tests tell it to play."""

# ruff: noqa: RUF001 - deepseek's special tokens have unusual letters
from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from gateway_ops.local_stack.tritonserver import TritonServer
from tests.tiny_model import write_tiny_model

HERE = Path(__file__).resolve().parent

# Of the families whose answers are replayed. "Special" is as their own tokenizers have it: hidden when decoding.
PLAIN_TOKENS = (
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<arg_key>",
    "</arg_key>", "<arg_value>", "</arg_value>",
)  # fmt: skip
SPECIAL_TOKENS = (
    "<|python_tag|>", "<|eom_id|>", "<|eot_id|>", "<|eot|>", "<|python_start|>", "<|python_end|>",  # llama
    "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[THINK]", "[/THINK]",  # mistral
    "</s>",
    "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>",
    "<｜end▁of▁sentence｜>",  # deepseek
    "<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>",  # gpt-oss
    "<|tool_call|>", "<|/tool_call|>", "<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>",  # granite, phi
    "<|user|>", "<|assistant|>", "<|observation|>",  # glm
    "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",  # kimi
)  # fmt: skip


def write_scripted_model(folder: Path) -> None:
    """The tiny model's folder, with the tokens above behind its own; the scripted engine needs no weights."""
    write_tiny_model(folder)
    path = folder / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in PLAIN_TOKENS])
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in SPECIAL_TOKENS])
    tokenizer.save(str(path))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config |= {"vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": 32768}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


class ScriptedServer:
    """A running Triton whose engine plays what `play` says; the fixture ``scripted_triton``.

    A test (or a fixture of its module) tells it what to play, and goes through the gateway as a user would::

        scripted_triton.play(
            turn("weather in Paris", text='<tool_call>\\n{"name": "get_weather", ...}\\n</tool_call><|im_end|>'),
            turn("22 degrees", text="It is 22 degrees in Paris.<|im_end|>"),
            chunk=3,
        )
        with GatewayProcess(
            log,
            GATEWAY_MODEL="m",
            GATEWAY_TRITON_URL=scripted_triton.grpc_url,
            GATEWAY_TOKENIZER=str(scripted_triton.model_dir),
        ) as gateway: ...
        assert scripted_triton.requests()[0]["guide"]["kind"] == "json_schema"

    Nothing is restarted when the script changes. What a turn may say is in `scripted_adapter`. Discovery's probes are
    answered like any request (one token; ids that begin with ``probe-``), and `requests` leaves them out.

    Attributes:
        model_dir: a folder with a tokenizer that has the special tokens of many families, as single tokens.
        triton: the server.
    """

    def __init__(self, repository: Path, model_dir: Path, folder: Path, options: Sequence[str] = ()) -> None:
        self.model_dir = model_dir
        self._script, self._journal = folder / "script.json", folder / "journal"
        self.triton = TritonServer(
            repository,
            model_dir=model_dir,
            engine="scripted",
            env={
                "ENGINE_PATH": str(HERE),
                "SCRIPT_FILE": str(self._script),
                "JOURNAL_FILE": str(self._journal),
            },
            log_path=folder / "triton.log",
            options=options,
        )
        self.play()

    @property
    def grpc_url(self) -> str:
        """Where the gateway finds it."""
        return self.triton.grpc_url

    def play(self, *turns: dict[str, Any], chunk: int | Sequence[int] = 1) -> None:
        """Replace the script, and begin a new journal.

        Args:
            turns: see `turn`; the last one that matches a prompt plays.
            chunk: tokens in a response, or numbers that are gone through again and again.
        """
        self._write(turns, chunk, guided=True)

    @contextmanager
    def without_guides(self, *turns: dict[str, Any]) -> Iterator[None]:
        """Refuse guides meanwhile. A gateway asks once, when it discovers the engine: none is to find this left on."""
        self._write(turns, 1, guided=False)
        try:
            yield
        finally:
            self.play()

    def _write(self, turns: Sequence[dict[str, Any]], chunk: int | Sequence[int], *, guided: bool) -> None:
        chunks = chunk if isinstance(chunk, int) else list(chunk)
        fresh = self._script.with_suffix(".new")
        fresh.write_text(json.dumps({"chunk": chunks, "guided": guided, "turns": turns}), encoding="utf-8")
        self._journal.unlink(missing_ok=True)
        os.replace(fresh, self._script)  # noqa: PTH105 - the engine never sees half a script

    def requests(self) -> list[dict[str, Any]]:
        """What the engine was asked since the last `play`: ``prompt`` (decoded), ``prompt_ids``, ``max_tokens``,
        ``end_id``, ``stop_words`` (ids), ``temperature``, ``guide`` (``kind`` and ``text``, or None)."""
        lines = self._journal.read_text(encoding="utf-8").splitlines() if self._journal.exists() else []
        return [entry for entry in map(json.loads, lines) if not entry["id"].startswith("probe-")]


def turn(match: str | None = None, **what: Any) -> dict[str, Any]:
    """A turn of a script.

    Args:
        match: a regular expression searched for in the decoded prompt; None matches every prompt.
        what: ``text`` or ``ids``; ``prompt_ids`` in place of ``match``; ``finish``, ``chunk``, ``hold``, ``until``,
            ``fails``.
    """
    return what if "prompt_ids" in what else {"match": match or "", **what}
