"""Model families: their part before generation (guides, special tokens) and after it (tool calls, reasoning).

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
