"""Model families: their guides and special tokens before generation, tool calls and reasoning after it.

Pure: no I/O, no web framework, no gRPC.
"""

from gateway.text.families.family import (
    CallArguments,
    CallStart,
    Content,
    Event,
    Family,
    Parser,
    Preparation,
    Reasoning,
    ReasoningEnd,
    Tool,
    ToolPlan,
)

__all__ = [
    "CallArguments",
    "CallStart",
    "Content",
    "Event",
    "Family",
    "Parser",
    "Preparation",
    "Reasoning",
    "ReasoningEnd",
    "Tool",
    "ToolPlan",
]
