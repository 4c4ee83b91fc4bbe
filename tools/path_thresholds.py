"""Numeric constants that choose a path: each is a fork for a reader to remember and for a test to cover."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tools.source_modules import SourceModule

_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_ARITHMETIC = (ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.expr_context)
_ERROR_WORDS = (
    "error", "failure", "mismatch", "problem", "complain", "refus", "reject", "drop", "abort", "cannot", "lacks",
)  # fmt: skip
_CHECKS = ("need",)  # functions that raise unless their argument is true
_INTEGER_BITS = (31, 32, 53, 63, 64)  # of signed and unsigned integers, and of those that a double holds exactly
_Place = tuple[str, str]
"""The module that defines a constant, and the constant's name."""
_Modules = Mapping[str, SourceModule]


@dataclass(frozen=True, order=True)
class Threshold:
    """A constant by file and name, its value as it is written, and the places that compare with it."""

    file: str
    name: str
    value: str
    places: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.file} {self.name} = {self.value} ({', '.join(self.places)})"


class ThresholdSearch:
    """Finds the constants of modules that are compared by order, and what the comparison decides.

    A constant is a name that a module binds, at its top level, to numbers and arithmetic of numbers and of other such
    constants. It is found under the name of an import, too, and as ``module.NAME``. Counted once, however many places
    compare with it, is a constant that stands in an operand of ``<``, ``<=``, ``>`` or ``>=``: alone, in arithmetic
    or in a conditional, but not in the arguments of a call (``min`` and ``max`` bound a number and choose nothing),
    in an index or in a remainder (``x % SIZE < share`` compares no size). ``==`` is not a threshold, and neither are
    facts of others: the range of an integer type, written ``2**63`` or ``2**63 - 1``, and the class of an HTTP status,
    which is compared with a ``status``.

    A comparison rejects, and its constant is a rejecting bound, where it stands

    - in an ``assert``, a ``raise``, or the argument of ``need``, which raises;
    - in the test of an ``if`` of which one branch, or what follows a branch that returns, only prepares and then
      ends in a ``raise``, or returns, yields or calls something that is named as an error (``..._error``, ``reject``,
      ``drop``, ``abort``, ``complain``) or by its module declared never to return; a ``return`` of nothing may follow;
    - in the test of a conditional expression of which one side is a call so named.

    Every other comparison chooses a path: also one that is returned or assigned, because a caller then branches on
    it, and one that empties a cache. A constant may be in both lists. Not seen are numbers that are written in
    place, and constants that are compared under another name: a parameter's default, an attribute.
    """

    def __init__(self, modules: _Modules) -> None:
        self._modules = modules
        self._imports: dict[str, dict[str, _Place]] = {}
        self._numbers: dict[str, dict[str, ast.expr]] = {}
        for module in modules.values():
            self._imports[module.name] = dict(_imported(module))
            self._numbers[module.name] = dict(_assigned(module.tree))
        path: dict[_Place, list[str]] = {}
        rejecting: dict[_Place, list[str]] = {}
        for module in modules.values():
            for comparison, rejects in _comparisons(module):
                for place in {place for node in _compared(comparison) if (place := self._resolve(module.name, node))}:
                    found = rejecting if rejects else path
                    found.setdefault(place, []).append(f"{module.file}:{comparison.lineno}")
        self.path_thresholds = self._listed(path)
        self.rejecting_bounds = self._listed(rejecting)

    def _listed(self, found: dict[_Place, list[str]]) -> list[Threshold]:
        return sorted(
            Threshold(self._modules[module].file, name, ast.unparse(self._numbers[module][name]), tuple(places))
            for (module, name), places in found.items()
        )

    def _resolve(self, module: str, node: ast.expr) -> _Place | None:
        """The numeric constant that a name or ``module.NAME`` stands for in a module."""
        if isinstance(node, ast.Name):
            place = (module, node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            place = (".".join(self._imports[module].get(node.value.id, ("", ""))), node.attr)
        else:
            return None
        while place[1] not in self._numbers.get(place[0], ()):
            following = self._imports.get(place[0], {}).get(place[1])
            if following is None:
                return None
            place = following
        return place if self._is_numeric(place) and not _is_integer_range(self._numbers[place[0]][place[1]]) else None

    def _is_numeric(self, place: _Place) -> bool:
        return all(
            isinstance(node, _ARITHMETIC)
            or (isinstance(node, ast.Constant) and type(node.value) in {int, float})
            or (isinstance(node, ast.Name) and node.id != place[1] and self._resolve(place[0], node) is not None)
            for node in ast.walk(self._numbers[place[0]][place[1]])
        )


def _imported(module: SourceModule) -> Iterator[tuple[str, _Place]]:
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:  # relative imports are forbidden
            yield from ((alias.asname or alias.name, (node.module, alias.name)) for alias in node.names)


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for statement in tree.body:
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from ((target.id, statement.value) for target in targets if isinstance(target, ast.Name))


def _compared(node: ast.expr) -> Iterator[ast.expr]:
    """Names and attributes in the operands of a comparison, outside of calls and indices."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Name, ast.Attribute)):
            yield child
        elif isinstance(child, (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.IfExp)) and not _is_remainder(child):
            yield from _compared(child)


def _is_remainder(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)


def _comparisons(module: SourceModule) -> Iterator[tuple[ast.Compare, bool]]:
    """Comparisons by order, and whether each rejects."""
    rejecting: set[ast.AST] = set()
    errors = _Errors(module)
    for node in module.nodes:
        if isinstance(node, (ast.Assert, ast.Raise)) or (isinstance(node, ast.Call) and _called(node) in _CHECKS):
            rejecting.update(ast.walk(node))
        elif isinstance(node, ast.IfExp) and (errors.named(node.body) or errors.named(node.orelse)):
            rejecting.update(ast.walk(node.test))
        for block in _blocks(node):
            for index, statement in enumerate(block):
                if isinstance(statement, ast.If) and errors.bounds(statement, block[index + 1 :]):
                    rejecting.update(ast.walk(statement.test))
    for node in module.nodes:
        if not isinstance(node, ast.Compare) or any(_is_status(operand) for operand in (node.left, *node.comparators)):
            continue
        if any(isinstance(operator, _ORDER) for operator in node.ops):
            yield node, node in rejecting


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    if not isinstance(node, ast.expr):
        yield from (getattr(node, name) for name in ("body", "orelse", "finalbody") if name in node._fields)


class _Errors:
    """Finds the errors of one module."""

    def __init__(self, module: SourceModule) -> None:
        self._never_return = {
            node.name
            for node in module.nodes
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            and node.returns is not None
            and ast.unparse(node.returns) == "NoReturn"
        }

    def bounds(self, statement: ast.If, following: list[ast.stmt]) -> bool:
        """Whether a branch of an ``if`` rejects, or what follows it."""
        leaves = isinstance(statement.body[-1], (ast.Return, ast.Continue)) and not statement.orelse
        return self._reject(statement.body) or self._reject(statement.orelse) or (leaves and self._reject(following))

    def _reject(self, branch: list[ast.stmt]) -> bool:
        if len(branch) > 1 and isinstance(last := branch[-1], ast.Return) and _is_nothing(last.value):
            branch = branch[:-1]
        *before, last = branch or [ast.Pass()]
        if not all(isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Expr)) for statement in before):
            return False
        return isinstance(last, ast.Raise) or (isinstance(last, (ast.Return, ast.Expr)) and self.named(last.value))

    def named(self, value: ast.expr | None) -> bool:
        """Whether a value is a call of something that is named as an error, or never returns."""
        if isinstance(value, (ast.Await, ast.Yield)):
            value = value.value
        if not isinstance(value, ast.Call):
            return False
        name = _called(value)
        return name in self._never_return or any(word in name.lower() for word in _ERROR_WORDS)


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _is_nothing(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and value.value is None)


def _is_status(operand: ast.expr) -> bool:
    """Whether an operand is ``status``, ``response.status`` or ``int(status)``."""
    if isinstance(operand, ast.Call) and len(operand.args) == 1:
        operand = operand.args[0]
    return ast.unparse(operand).rpartition(".")[2] == "status"


def _is_integer_range(value: ast.expr) -> bool:
    """Whether a value is written as ``2**63`` or ``2**63 - 1``."""
    return ast.unparse(value).removesuffix(" - 1") in {f"2 ** {bits}" for bits in _INTEGER_BITS}
