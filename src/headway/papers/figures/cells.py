"""The data of a figure: the runs of each cell of an item, and the numbers that the paper prints for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from headway.papers.footnotes import marks_of
from headway.papers.items import presets
from headway.papers.measurements import Records, parse_measure
from headway.papers.plan import Cell, Plan
from headway.papers.preset import Column, Preset, Row
from headway.papers.published import Published
from headway.papers.reproduce import Outcome, Outcomes
from headway.papers.table import Entry, entries

_NAMED_AT_MOST = 6
"""How many rows a note names; the rest it counts."""


@dataclass(frozen=True)
class FigureData:
    """An item's plan with the outcomes of its runs; some runs may have failed, be missing or be unfinished."""

    plan: Plan
    outcomes: Outcomes

    def cell(self, row: Row, column: Column) -> Cell:
        return next(cell for cell in self.plan.cells if cell.row == row and cell.column.name == column.name)

    def _saved(self, cell: Cell) -> list[Outcome]:
        return [self.outcomes[run] for run in cell.runs if run in self.outcomes]

    def seed_records(self, cell: Cell) -> list[Records]:
        """The round records of each seed's run that did not fail."""
        return [one.records for one in self._saved(cell) if one.failure is None and one.records]

    def failed_records(self, cell: Cell) -> Records:
        """The records of the failed run that came furthest; empty where some seed did not fail."""
        failed = [one.records for one in self._saved(cell) if one.failure is not None]
        return [] if self.seed_records(cell) or not failed else max(failed, key=len)

    @cached_property
    def entries(self) -> dict[tuple[str, str, str], Entry]:
        """The table's numbers by (row, column, measure)."""
        return {(entry.row, entry.column, entry.measure): entry for entry in entries(self.plan, self.outcomes)}

    def printed(self, cell: Cell) -> list[tuple[str, Published]]:
        """(Measure, number) that the paper prints for a cell's runs, in this item or in those that share its runs.

        Runs that are scaled down have none: they are of another problem.
        """
        if self.plan.scale != "full":
            return []
        preset = self.plan.preset
        known = presets(preset.paper) if preset.shares else {}
        wanted = preset.run_of(cell.row, cell.column)
        found = []
        for one in (preset, *(known[name] for name in preset.shares)):
            for row, column in _candidates(one.rows, one.columns, cell):
                if one.run_of(row, column) == wanted:
                    found += _printed_numbers(one, row, column)
        return found

    def published_points(self, cell: Cell) -> list[tuple[float, float]]:
        """(Round, accuracy in %) of the paper's curve: an accuracy at a round, or the round of a target."""
        found = []
        for name, number in self.printed(cell):
            measure, given = parse_measure(name)
            if number.value is not None and not number.bound:
                if name.startswith("accuracy@"):
                    found.append((given, number.value))
                elif measure.counts and name.startswith("rounds_to_"):
                    found.append((number.value, given))
        return found

    def published_tops(self, cell: Cell) -> list[float]:
        """The highest accuracies in % that the paper prints; it does not say at which round."""
        return [one.value for name, one in self.printed(cell) if name == "top_accuracy" and one.value is not None]

    def cell_label(self, cell: Cell) -> str:
        """What distinguishes a cell from the others of the item, with the marks † and § of its runs."""
        marks = replace(marks_of(cell, self.outcomes), ended_early="")  # the note says which runs are unfinished
        return f"{self._row_and_column(cell)} {marks.signs}".strip()

    def _row_and_column(self, cell: Cell) -> str:
        if len(self.plan.columns) == 1:
            return self.row_label(cell.row)
        column = cell.column.label or cell.column.setting or cell.column.name
        return column if len(self.plan.rows) == 1 else f"{self.row_label(cell.row)}, {column}"

    def row_label(self, row: Row) -> str:
        """A row's name, or only its setting where all rows are of one method."""
        one_method = len({other.method for other in self.plan.preset.rows}) == 1
        return row.setting if one_method and row.setting else row.name

    def gap_notes(self) -> list[str]:
        """What the figure lacks, in words: runs that failed, are missing or are not finished; then what marks mean."""
        lacking = (("failed", self._has_failed), ("missing", self._has_gaps), ("not finished", self._is_unfinished))
        found = [(word, [cell for cell in self.plan.cells if lacks(cell)]) for word, lacks in lacking]
        return [
            *(f"{word}: {self._names(cells)}" for word, cells in found if cells),
            *self._mark_notes(),
        ]

    def _has_failed(self, cell: Cell) -> bool:
        return any(one.failure is not None for one in self._saved(cell))

    def _has_gaps(self, cell: Cell) -> bool:
        """Whether some seed has no run, or a run without a round."""
        saved = self._saved(cell)
        return len(saved) < len(cell.runs) or any(not one.records and one.failure is None for one in saved)

    def _is_unfinished(self, cell: Cell) -> bool:
        """Whether some seed ended before the item's last round; one that failed does not count."""
        whole = cell.runs[0].scenario.rounds
        return any(records[-1]["round"] < whole for records in self.seed_records(cell))

    def _mark_notes(self) -> list[str]:
        """Which cells have runs of another draw or of another form of the method, and which draw or form."""
        cells: dict[str, list[Cell]] = {}
        for cell in self.plan.cells:
            for line in replace(marks_of(cell, self.outcomes), ended_early="").lines:
                cells.setdefault(line, []).append(cell)
        every = [cell for cell in self.plan.cells if self.seed_records(cell)]
        return [f"{line}: {'every curve' if some == every else self._names(some)}" for line, some in cells.items()]

    def _names(self, cells: Sequence[Cell]) -> str:
        """Cells by their rows, with the columns where a row has only some of its cells among them."""
        names = []
        for row in self.plan.rows:
            columns = [cell.column for cell in cells if cell.row == row]
            if len(columns) == len(self.plan.columns):
                names.append(self.row_label(row))
            elif columns:
                names.append(f"{self.row_label(row)} ({', '.join(one.label or one.name for one in columns)})")
        more = len(names) - _NAMED_AT_MOST
        return ", ".join(names[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")


def _printed_numbers(preset: Preset, row: Row, column: Column) -> list[tuple[str, Published]]:
    """(Measure as it is read from runs, number) that an item prints for a row in a column."""
    numbers = ((name, preset.numbers.get((row.name, column.name, name))) for name in column.measures)
    return [(column.read.get(name, name), number) for name, number in numbers if number is not None]


def _candidates(rows: Sequence[Row], columns: Sequence[Column], cell: Cell) -> list[tuple[Row, Column]]:
    """The pairs that may have a cell's runs: of the same method and the same scenario name."""
    return [
        (row, column)
        for column in columns
        for row in rows
        if row.method == cell.row.method and column.scenario == cell.column.scenario
    ]
