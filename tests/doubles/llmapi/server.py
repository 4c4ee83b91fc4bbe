"""A real Triton with doubles of the stock LLM API model, and what tests tell them to play."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer, processors

from tests.doubles.llmapi.repository import LlmapiConfig, write_model
from tests.doubles.llmapi.versions import VERSIONS
from tests.scripted_engine.replay import TextModelsServer, write_scripted_model

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


class LlmapiServer(TextModelsServer):
    """A running Triton with models of the LLM API; the fixture ``llmapi_triton`` has one of each version.

    A test tells what they all play, and asks any of them::

        llmapi_triton.play(turn("weather", text="It rains. 🌧<|im_end|>"), turn("held", text="ab", stall_after=1))
        client.stream(llmapi_triton.model("1.3"), text_input=np.array([b"the weather?"], dtype=np.object_), ...)
        [request] = llmapi_triton.requests()
        assert request["ignored"] == {}
    """

    def __init__(self, folder: Path, configs: Sequence[LlmapiConfig], model_dir: Path) -> None:
        super().__init__(folder, model_dir, [config.name for config in configs], auto_complete=False)
        self._configs = tuple(configs)
        for config in configs:
            write_model(folder / "repository", config, model_dir)

    def model(self, version: str) -> str:
        """The name of the first model of a version."""
        return next(config.name for config in self._configs if config.version == version)


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
