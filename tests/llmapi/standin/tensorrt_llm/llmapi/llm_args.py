"""Stand-in for tensorrt_llm.llmapi.llm_args."""

from __future__ import annotations

from typing import Any

import recorded


class TorchLlmArgs:
    """Only its fields are known."""

    model_fields = recorded.parameters("TorchLlmArgs")


class KvCacheConfig:
    """Takes what the recorded signature takes."""

    def __init__(self, **arguments: Any) -> None:
        recorded.check_call("KvCacheConfig", arguments)
        self.arguments = arguments
