"""What pictures are drawn from: the runs of each cell, and what the paper prints of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from headway.papers.marks import marks_of
from headway.papers.measures import Records, named
from headway.papers.plan import Cell, Plan
from headway.papers.preset import Column, Row, presets
from headway.papers.published import Published
from headway.papers.reproduce import Outcomes
from headway.papers.table import Entry, entries

_NAMED_AT_MOST = 6
"""Rows that a note names; of more it gives the number."""


@dataclass(frozen=True)
class Shown:
    """A plan and what there is of its runs."""

    plan: Plan
    outcomes: Outcomes

    def cell(self, row: Row, column: Column) -> Cell:
        return next(cell for cell in self.plan.cells if cell.row == row and cell.column.name == column.name)

    def seeds(self, cell: Cell) -> list[Records]:
        """The rounds of the runs that did not fail, one for each seed."""
        there = [self.outcomes[run] for run in cell.runs if run in self.outcomes]
        return [outcome.records for outcome in there if outcome.failure is None and outcome.records]

    def broken(self, cell: Cell) -> Records:
        """What a failed run left, where no seed of the cell came through."""
        there = [self.outcomes[run] for run in cell.runs if run in self.outcomes]
        left = [outcome.records for outcome in there if outcome.failure is not None]
        return [] if self.seeds(cell) or not left else max(left, key=len)

    @cached_property
    def entries(self) -> dict[tuple[str, str, str], Entry]:
        """The table's numbers by (row, column, measure)."""
        return {(entry.row, entry.column, entry.measure): entry for entry in entries(self.plan, self.outcomes)}

    def printed(self, cell: Cell) -> list[tuple[str, Published]]:
        """(Measure, number) that the paper prints of a cell's runs, in this item or in those whose runs it shares.

        There are none where runs are scaled down: they are of another problem.
        """
        if self.plan.scale != "full":
            return []
        preset = self.plan.preset
        known = presets(preset.paper) if preset.shares else {}
        wanted = preset.spelling(cell.row, cell.column).spelled, preset.scenario(cell.row, cell.column)
        found = []
        for one in (preset, *(known[name] for name in preset.shares)):
            for row, column in _alike(one.rows, one.columns, cell):
                if (one.spelling(row, column).spelled, one.scenario(row, column)) == wanted:
                    read = [(name, column.read.get(name, name)) for name in column.measures]
                    numbers = ((as_read, one.numbers.get((row.name, column.name, name))) for name, as_read in read)
                    found += [(name, number) for name, number in numbers if number is not None]
        return found

    def points(self, cell: Cell) -> list[tuple[float, float]]:
        """(Round, accuracy in %) of the paper's curve: an accuracy at a round, or the round of a target."""
        found = []
        for name, number in self.printed(cell):
            measure, given = named(name)
            if number.value is not None and not number.bound:
                if name.startswith("accuracy@"):
                    found.append((given, number.value))
                elif measure.counts and name.startswith("rounds_to_"):
                    found.append((number.value, given))
        return found

    def tops(self, cell: Cell) -> list[float]:
        """The highest accuracy in % that the paper prints; it is of no round."""
        return [one.value for name, one in self.printed(cell) if name == "top_accuracy" and one.value is not None]

    def label(self, cell: Cell) -> str:
        """What tells a cell from the others, with the marks of its runs."""
        marks = replace(marks_of(cell, self.outcomes), ended_early="")  # the note says what is not finished
        return f"{self._label(cell)} {marks.signs}".strip()

    def _label(self, cell: Cell) -> str:
        if len(self.plan.columns) == 1:
            return self.of_row(cell.row)
        column = cell.column.label or cell.column.setting or cell.column.name
        return column if len(self.plan.rows) == 1 else f"{self.of_row(cell.row)}, {column}"

    def of_row(self, row: Row) -> str:
        """Its setting, where all rows are of one method."""
        one_method = len({other.method for other in self.plan.preset.rows}) == 1
        return row.setting if one_method and row.setting else row.name

    def gaps(self) -> list[str]:
        """What is not in the picture, in words: runs that failed, are missing or are not finished."""
        failed, missing, short = [], [], []
        for cell in self.plan.cells:
            there = [self.outcomes[run] for run in cell.runs if run in self.outcomes]
            if any(outcome.failure is not None for outcome in there):
                failed.append(cell)
            if len(there) < len(cell.runs) or any(not one.records and one.failure is None for one in there):
                missing.append(cell)
            if any(records[-1]["round"] < cell.runs[0].scenario.rounds for records in self.seeds(cell)):
                short.append(cell)
        found = (("failed", failed), ("missing", missing), ("not finished", short))
        return [
            *(f"{word}: {self._named(cells)}" for word, cells in found if cells),
            *self._marked(),
        ]

    def _marked(self) -> list[str]:
        """Which cells have runs of another draw or form, and what it is."""
        cells: dict[str, list[Cell]] = {}
        for cell in self.plan.cells:
            for line in replace(marks_of(cell, self.outcomes), ended_early="").lines:
                cells.setdefault(line, []).append(cell)
        every = [cell for cell in self.plan.cells if self.seeds(cell)]
        return [f"{line}: {'every curve' if some == every else self._named(some)}" for line, some in cells.items()]

    def _named(self, cells: Sequence[Cell]) -> str:
        """Cells by their rows, with the columns where it is not all of them."""
        names = []
        for row in self.plan.rows:
            columns = [cell.column for cell in cells if cell.row == row]
            if len(columns) == len(self.plan.columns):
                names.append(self.of_row(row))
            elif columns:
                names.append(f"{self.of_row(row)} ({', '.join(one.label or one.name for one in columns)})")
        more = len(names) - _NAMED_AT_MOST
        return ", ".join(names[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")


def _alike(rows: Sequence[Row], columns: Sequence[Column], cell: Cell) -> list[tuple[Row, Column]]:
    """Pairs that may have the runs of a cell: of its method and its scenario's name."""
    return [
        (row, column)
        for column in columns
        for row in rows
        if row.method == cell.row.method and column.scenario == cell.column.scenario
    ]
