"""Stand-in for tensorrt_llm.llmapi."""

from __future__ import annotations

from typing import Any

import recorded


class KvCacheRetentionConfig:
    """Takes what the recorded signature takes."""

    class TokenRangeRetentionConfig:
        """Takes what the recorded signature takes, in its order."""

        def __init__(self, *values: Any) -> None:
            names = recorded.parameters("TokenRangeRetentionConfig", recorded.BINDINGS)
            self.arguments = dict(zip(names, values, strict=True))
            recorded.check_call("TokenRangeRetentionConfig", self.arguments, recorded.BINDINGS)

    def __init__(self, **arguments: Any) -> None:
        recorded.check_call("KvCacheRetentionConfig", arguments, recorded.BINDINGS)
        ranges = [one.arguments for one in arguments["token_range_retention_configs"]]
        self.arguments = {**arguments, "token_range_retention_configs": ranges}

    def __repr__(self) -> str:
        return f"KvCacheRetentionConfig({self.arguments})"
