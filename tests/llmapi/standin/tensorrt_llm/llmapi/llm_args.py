"""Stand-in for tensorrt_llm.llmapi.llm_args."""

from __future__ import annotations

from typing import Any

import recorded


class TorchLlmArgs:
    """Only its fields are known."""

    model_fields = recorded.parameters("TorchLlmArgs")


class KvCacheConfig:
    """Takes what the recorded signature takes."""

    model_fields = recorded.parameters("KvCacheConfig")

    def __init__(self, **arguments: Any) -> None:
        recorded.check_call("KvCacheConfig", arguments)
        self.arguments = arguments


class LoraConfig:
    """Takes what the recorded signature takes."""

    def __init__(self, **arguments: Any) -> None:
        recorded.check_call("LoraConfig", arguments)
        self.arguments = arguments

    def __repr__(self) -> str:
        return f"LoraConfig({self.arguments})"
