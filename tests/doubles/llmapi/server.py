"""A real Triton with doubles of the stock LLM API model, and what tests tell them to play."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, processors

from gateway_ops.local_stack.tritonserver import TritonServer
from tests.doubles.llmapi.repository import LlmapiConfig, write_model
from tests.doubles.llmapi.versions import VERSIONS
from tests.scripted_engine.replay import write_scripted_model

ROOT = Path(__file__).resolve().parents[3]
BOS = "<|im_start|>"


def write_llmapi_model(folder: Path) -> None:
    """The scripted model's folder, with a tokenizer that puts `BOS` before a text whose special tokens it adds."""
    write_scripted_model(folder)
    path = folder / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    tokenizer.save(str(path))


class AskingServer(TritonServer):
    """A server that asks models to complete their configuration, which stock launchers do not let it."""

    def _arguments(self, backends: Path) -> list[str]:
        return [argument for argument in super()._arguments(backends) if argument != "--disable-auto-complete-config"]


class LlmapiServer:
    """A running Triton with models of the LLM API; the fixture ``llmapi_triton`` has one of each version.

    A test tells what they all play, and asks any of them::

        llmapi_triton.play(turn("weather", text="It rains. 🌧<|im_end|>"), turn("held", text="ab", hold_after=1))
        client.stream(llmapi_triton.model("1.3"), text_input=np.array([b"the weather?"], dtype=np.object_), ...)
        [request] = llmapi_triton.requests()
        assert request["ignored"] == {}

    What a turn may say is in `script`. Requests whose ids begin with ``probe-`` are left out of `requests`; those for
    up to two tokens that no turn matches are answered with an echo.

    Args:
        folder: for the repository, the script and the logs.
        configs: the models.
        model_dir: see below.
        auto_complete: whether Triton hears what model.yaml says of decoupling.

    Attributes:
        model_dir: the folder with the tokenizer of all models; the engine's one end of text is its ``eos_token``.
        tokenizer: of that folder.
        triton: the server.
    """

    def __init__(
        self, folder: Path, configs: Sequence[LlmapiConfig], model_dir: Path, *, auto_complete: bool = False
    ) -> None:
        self.model_dir = model_dir
        self.tokenizer: Tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
        self._configs = tuple(configs)
        self._script, self._journal = folder / "script.json", folder / "journal"
        for config in configs:
            write_model(folder / "repository", config, model_dir)
        self.triton = (AskingServer if auto_complete else TritonServer)(
            folder / "repository",
            model_dir=model_dir,
            engine=None,
            env={"PYTHONPATH": str(ROOT), "SCRIPT_FILE": str(self._script), "JOURNAL_FILE": str(self._journal)},
            log_path=folder / "triton.log",
        )
        self.play()

    def __enter__(self) -> LlmapiServer:
        self.triton.start()
        self.triton.wait_ready([config.name for config in self._configs])
        return self

    def __exit__(self, *_exc: object) -> None:
        self.triton.kill()  # nothing is worth the seconds that models in flight take to unload

    @property
    def grpc_url(self) -> str:
        """Where the gateway finds it."""
        return self.triton.grpc_url

    def model(self, version: str) -> str:
        """The name of the first model of a version."""
        return next(config.name for config in self._configs if config.version == version)

    def ids(self, text: str) -> list[int]:
        """Tokens of a text, special ones where it spells them."""
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def play(self, *turns: dict[str, Any], chunk: int | Sequence[int] = 1) -> None:
        """Replace the script, and begin a new journal; answers that stand still end.

        Args:
            turns: see `tests.scripted_engine.replay.turn`; the last one that matches a prompt plays.
            chunk: tokens in a step, or numbers that are gone through again and again.
        """
        chunks = chunk if isinstance(chunk, int) else list(chunk)
        fresh = self._script.with_suffix(".new")
        fresh.write_text(json.dumps({"chunk": chunks, "turns": turns}), encoding="utf-8")
        self._journal.unlink(missing_ok=True)
        os.replace(fresh, self._script)  # noqa: PTH105 - the engine never sees half a script

    def requests(self) -> list[dict[str, Any]]:
        """What the models were asked since the last `play`, in the order of arrival.

        Each has ``id``, ``model``, ``version``, ``inputs`` (as they came), ``effective`` (sampling parameters that the
        engine heeds, with ``greedy``) and ``ignored`` (inputs that change nothing). Once the engine took it: ``prompt``
        (decoded, with special tokens), ``prompt_ids``, ``max_tokens`` (cut to the context) and ``adapter``. Once it
        ended: ``answer_ids``, ``generated`` (their number without the end of text), ``finish`` and ``aborted``. Where
        it failed: ``error``.
        """
        merged: dict[str, dict[str, Any]] = {}
        lines = self._journal.read_text(encoding="utf-8").splitlines() if self._journal.exists() else []
        for entry in map(json.loads, lines):
            merged.setdefault(entry.pop("key"), {}).update(entry)
        # An answer that began before the last `play` tells only of its end.
        return [entry for entry in merged.values() if not entry.get("id", "probe-").startswith("probe-")]


def one_of_each_version() -> list[LlmapiConfig]:
    """Decoupled models ``llmapi_0_19`` and so on; that of 1.3 takes adapters."""
    return [
        LlmapiConfig(
            version, f"llmapi_{version.replace('.', '_')}", arguments={"lora_config": {}} if facts.adapters else {}
        )
        for version, facts in VERSIONS.items()
    ]


def misconfigured() -> list[LlmapiConfig]:
    """Models whose settings harm: ``NAME_lost`` believes that it is decoupled and is not, ``NAME_whole`` is not and
    knows it, ``llmapi_1_2_lora`` has adapters that its version mistakes the flag ``streaming`` for."""
    return [
        LlmapiConfig("1.2", "llmapi_1_2_lost", policy=False),
        LlmapiConfig("1.3", "llmapi_1_3_lost", policy=False),
        LlmapiConfig("1.2", "llmapi_1_2_whole", decoupled=False, policy=False),
        LlmapiConfig("1.3", "llmapi_1_3_whole", decoupled=False, policy=False),
        LlmapiConfig("1.2", "llmapi_1_2_lora", arguments={"lora_config": {}}),
    ]
