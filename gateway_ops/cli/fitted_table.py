"""Tables that fit a terminal: elided names, and fewer columns; no cell wraps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.table import Table
from rich.text import Text

_GAP = 2
_NAME = 24  # a name gets this many cells before an optional column gets any


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        title: the heading.
        name: whether the column holds names, which are elided where the table is too wide.
        spare: the column with the highest number is left out first; a column with 0 stays.
        reserved: cells that the column has at least, so that a change of its numbers does not change the table.
    """

    title: str
    name: bool = False
    spare: int = 0
    reserved: int = 0


def fitted(columns: Sequence[Column], rows: Sequence[Sequence[Text]], width: int) -> tuple[Table, list[str]]:
    """Make a table.

    Args:
        columns: the columns.
        rows: a cell for each column.
        width: of the terminal, in cells.

    Returns:
        The table, and the titles of columns that did not fit.
    """
    widths = [
        max(column.reserved, cell_len(column.title), *(row[index].cell_len for row in rows), 0)
        for index, column in enumerate(columns)
    ]
    shown = list(range(len(columns)))
    while _least(columns, widths, shown) > width:
        index = max(shown, key=lambda each: columns[each].spare)
        if not columns[index].spare:
            break
        shown.remove(index)
    names = [index for index in shown if columns[index].name]
    room = width - _GAP * (len(shown) - 1) - sum(widths[index] for index in shown if index not in names)
    for place, index in enumerate(sorted(names, key=lambda each: widths[each])):  # shortest first
        widths[index] = max(1, min(widths[index], room // (len(names) - place)))
        room -= widths[index]
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False)
    for index in shown:
        column = columns[index]
        table.add_column(
            column.title, justify="right" if column.reserved else "left", min_width=widths[index], no_wrap=True
        )
    for row in rows:
        table.add_row(*(_within(row[index], widths[index]) for index in shown))
    return table, [column.title for index, column in enumerate(columns) if index not in shown]


def elided(text: str, width: int) -> str:
    """Shorten a text to ``width`` cells in its middle, as names differ at both ends."""
    if cell_len(text) <= width:
        return text
    tail = (width - 1) // 2
    head = width - 1 - tail
    return f"{set_cell_size(text, head)}…{set_cell_size(text[::-1], tail)[::-1]}"


def packed(items: Sequence[str], width: int, indent: str = "  ") -> str:
    """Join items by commas into lines that end between items; further lines are indented."""
    lines = [""]
    for index, item in enumerate(items):
        mark = "," if index + 1 < len(items) else ""
        more = f"{lines[-1]} {item}{mark}" if lines[-1] else f"{item}{mark}"
        if lines[-1] and cell_len(more) > width:
            lines.append(f"{indent}{elided(item, width - len(indent) - 1)}{mark}")
        else:
            lines[-1] = more if cell_len(more) <= width else f"{elided(item, width - 1)}{mark}"
    return "\n".join(lines)


def _least(columns: Sequence[Column], widths: Sequence[int], shown: Sequence[int]) -> int:
    """Cells of a table whose names are as short as they should become."""
    needed = (min(widths[index], _NAME) if columns[index].name else widths[index] for index in shown)
    return sum(needed) + _GAP * (len(shown) - 1)


def _within(cell: Text, width: int) -> Text:
    return Text(elided(cell.plain, width), cell.style)
