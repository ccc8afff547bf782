"""HISTORY.md: one table of the newest figures, and every run behind it. RESULTS.md is made of that table.

A row of the table is one measure. A new run replaces the rows that it has measured, whole: a ratio is of one run. Rows
that no benchmark here writes (times of `make test`, counts of seeds) are kept below the others, and changed by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from measure import Row
from measures import MEASURES

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "RESULTS.md"
HISTORY = HERE / "HISTORY.md"
COLUMNS = ("measure", "ours", "peer", "ratio", "must", "aim", "date", "revision")
NOTHING = "-"
MISSED = "(missed)"
NEWEST_BELOW = "<!-- the newest run comes first, below this line -->"

Cells = tuple[str, ...]


def table_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell or NOTHING for cell in cells) + " |"


HEADER = table_line(COLUMNS)


@dataclass(frozen=True)
class Table:
    """`before` and `after` are the lines around it. `rows` by measure, in their order."""

    before: list[str]
    rows: dict[str, Cells]
    after: list[str]

    @classmethod
    def of(cls, text: str) -> Table:
        """Raises ValueError where the table is missing, or a row has not a cell for each column."""
        lines = text.splitlines()
        if lines.count(HEADER) != 1:
            raise ValueError(f"HISTORY.md needs one table of the newest figures, which begins with the line {HEADER!r}")
        start = lines.index(HEADER) + 2
        end = next((n for n in range(start, len(lines)) if not lines[n].startswith("|")), len(lines))
        rows: dict[str, Cells] = {}
        for row in lines[start:end]:
            cells = tuple(cell.strip() for cell in row.strip("|").split("|"))
            if len(cells) != len(COLUMNS) or not all(cells):
                raise ValueError(f"a row of the newest figures has not a cell for each of {', '.join(COLUMNS)}: {row}")
            if cells[0] in rows:
                raise ValueError(f"HISTORY.md has two rows for {cells[0]!r}")
            rows[cells[0]] = cells
        return cls(lines[:start], rows, lines[end:])

    def __str__(self) -> str:
        return "\n".join([*self.before, *map(table_line, self.rows.values()), *self.after]) + "\n"

    def renewed(self, measured: Sequence[Row], when: str, revision: str) -> Table:
        rows = dict(self.rows)
        for row in measured:
            ratio = "" if row.ratio is None else f"{row.ratio:.2f}×"
            must = f"{row.must} {MISSED}" if row.met is False else row.must
            rows[row.measure] = (row.measure, row.ours, row.beside, ratio, must, row.aim, when, revision)
        order = {measure.title: number for number, measure in enumerate(MEASURES)}
        names = sorted(rows, key=lambda name: order.get(name, len(order)))
        return Table(self.before, {name: rows[name] for name in names}, self.after)


def insert(text: str, new: str) -> str:
    """Puts a section first below the line that marks the place. Older ones stay."""
    head, marker, older = text.partition(NEWEST_BELOW)
    if not marker:
        raise ValueError(f"HISTORY.md has lost its line {NEWEST_BELOW!r}")
    return f"{head}{marker}\n\n{new}\n{older.lstrip()}"
