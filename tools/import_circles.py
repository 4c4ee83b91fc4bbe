"""Circles of imports: also those for types only, and those within a function."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

from tools.source_modules import SourceModule


def import_circles(modules: Mapping[str, SourceModule]) -> list[str]:
    """Circles, each by its modules, the first also last. Those that share an import are counted once."""
    graph = {name: _imported(module, modules) for name, module in modules.items()}
    circles = []
    while circle := _circle(graph):
        circles.append(" <- ".join(circle))
        graph[circle[1]].remove(circle[0])
    return circles


def _circle(graph: dict[str, set[str]]) -> list[str]:
    """One circle, each of whose modules the next imports; empty without one."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def _imported(module: SourceModule, known: Mapping[str, SourceModule]) -> set[str]:
    found: set[str] = set()
    for node in module.nodes:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update(inner & known.keys() or {node.module})
    return found & known.keys()
