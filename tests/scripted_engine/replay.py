"""Running Tritons on the scripted engine, and what tests tell them to play."""

# ruff: noqa: RUF001 - deepseek's special tokens have unusual letters
from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer
from typing_extensions import Self

from gateway_ops.local_stack.tritonserver import TritonServer
from tests.tiny_model import write_tiny_model

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
_PROBES = (("a", 1), ("<s> a", 1))  # prompt, as either tokenizer spells it, and limit
_TIMEOUT_S = 20.0
_POLL_S = 0.01

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


class Playing:
    """What a running Triton with scripted engines is told to play, and what it tells; the base of all such servers.

    Nothing is restarted when the script changes. What a script is, `turns` says. Discovery's probes (ids that begin
    with ``probe-``) are answered like any request, and `requests` leaves them out.

    Attributes:
        environment: by which engines find script and journal.
        triton: the server.
    """

    triton: TritonServer

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._script, self._journal = folder / "script.json", folder / "journal"
        self.environment = {
            "PYTHONPATH": str(ROOT),
            "ENGINE_PATH": str(HERE),
            "SCRIPT_FILE": str(self._script),
            "JOURNAL_FILE": str(self._journal),
        }
        self.play()

    @property
    def grpc_url(self) -> str:
        """Where the gateway finds it."""
        return self.triton.grpc_url

    def play(self, *turns: dict[str, Any], chunk: int | Sequence[int] = 1, guided: bool = True) -> None:
        """Replace the script, and begin a new journal.

        Args:
            turns: see `turn`; the last one that matches a prompt plays.
            chunk: tokens in a response, or numbers that are gone through again and again.
            guided: whether the project's own model takes guides. A gateway asks once, when it discovers the engine.
        """
        chunks = chunk if isinstance(chunk, int) else list(chunk)
        fresh = self._script.with_suffix(".new")
        fresh.write_text(json.dumps({"chunk": chunks, "guided": guided, "turns": turns}), encoding="utf-8")
        self._journal.unlink(missing_ok=True)
        os.replace(fresh, self._script)  # noqa: PTH105 - the engine never sees half a script

    def requests(self) -> list[dict[str, Any]]:
        """What the engines were asked since the last `play`, in the order of arrival.

        Each has ``id``, ``model``, ``prompt`` (decoded, with special tokens), ``prompt_ids``, ``max_tokens``; what it
        has to say: ``answer`` with ``ids`` (without an end token), their number ``generated``, and ``finish``; and at
        its end ``ended`` (finished, cancelled, stopped, failed) and ``tokens`` sent. Where it failed, ``error``.

        The stock models and those of text have ``effective``: the parameters as the engine follows them, with its
        defaults. Those of text have ``inputs`` as they came, and the LLM API's ``ignored``, inputs that change nothing,
        and ``adapter``. The engine step of a repository has ``end_id``, ``stop_words`` (ids), ``temperature`` and
        ``guide`` (``kind`` and ``text``, or None); a stock one ``tensors`` by name.
        """
        # What began before the last `play` tells only of its end. BLS gives requests, probes too, ids of its own.
        entries = [entry for entry in self._entries() if not entry.get("id", "probe-").startswith("probe-")]
        return [entry for entry in entries if (entry.get("prompt"), entry.get("max_tokens")) not in _PROBES]

    def requests_with(self, field: str) -> list[dict[str, Any]]:
        """The requests whose entries have a field, once there is one."""
        deadline = time.monotonic() + _TIMEOUT_S
        while not (found := [entry for entry in self.requests() if field in entry]):
            assert time.monotonic() < deadline, f"no request has {field}"
            time.sleep(_POLL_S)
        return found

    def _entries(self) -> list[dict[str, Any]]:
        merged: dict[str, dict[str, Any]] = {}
        lines = self._journal.read_text(encoding="utf-8").splitlines() if self._journal.exists() else []
        for entry in map(json.loads, lines):
            merged.setdefault(entry.pop("key"), {}).update(entry)
        return list(merged.values())


class ScriptedServer(Playing):
    """A running Triton with the project's models, whose engine plays what `play` says; the fixture ``scripted_triton``.

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

    Attributes:
        model_dir: a folder with a tokenizer that has the special tokens of many families, as single tokens.
    """

    def __init__(self, repository: Path, model_dir: Path, folder: Path, options: Sequence[str] = ()) -> None:
        super().__init__(folder)
        self.model_dir = model_dir
        self.triton = TritonServer(
            repository,
            model_dir=model_dir,
            engine="scripted",
            env=self.environment,
            log_path=folder / "triton.log",
            options=options,
        )

    @contextmanager
    def without_guides(self, *turns: dict[str, Any]) -> Iterator[None]:
        """Reject guides meanwhile; a gateway that starts later must not find this left on."""
        self.play(*turns, guided=False)
        try:
            yield
        finally:
            self.play()


class TextModelsServer(Playing):
    """A running Triton with models of text, which tests play to as to the others; a context manager.

    Args:
        folder: for the repository, the script and the logs.
        model_dir: the folder with the tokenizer of all models; the engines' one end of text is its ``eos_token``.
        names: of the models, which lie in ``folder / "repository"``.
        auto_complete: whether Triton asks models to complete their configuration, which stock launchers do not let it.
    """

    def __init__(self, folder: Path, model_dir: Path, names: Sequence[str], *, auto_complete: bool) -> None:
        super().__init__(folder)
        self.model_dir, self._names = model_dir, names
        self.tokenizer: Tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
        self.triton = (_AskingServer if auto_complete else TritonServer)(
            folder / "repository",
            model_dir=model_dir,
            engine=None,
            env=self.environment,
            log_path=folder / "triton.log",
        )

    def __enter__(self) -> Self:
        self.triton.start()
        self.triton.wait_ready(self._names)
        return self

    def __exit__(self, *_exc: object) -> None:
        self.triton.kill()  # nothing is worth the seconds that models in flight take to unload

    def ids(self, text: str) -> list[int]:
        """Tokens of a text, special ones where it spells them."""
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)


class _AskingServer(TritonServer):
    def _arguments(self, backends: Path) -> list[str]:
        return [argument for argument in super()._arguments(backends) if argument != "--disable-auto-complete-config"]


def turn(match: str | None = None, **what: Any) -> dict[str, Any]:
    """A turn of a script.

    Args:
        match: a regular expression searched for in the decoded prompt; None matches every prompt.
        what: ``text``, ``ids`` or ``sampled``; ``prompt_ids`` in place of ``match``; and more that `turns` lists.
    """
    return what if "prompt_ids" in what else {"match": match or "", **what}
