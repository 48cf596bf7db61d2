"""The numbers of an item's table: what the runs of each cell measured, and what the paper prints there."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Literal

from headway.measure.curves import End, end_of
from headway.papers.footnotes import Marks, marks_of
from headway.papers.measurements import Measurement, measure_run
from headway.papers.plan import Cell, Plan
from headway.papers.published import Published
from headway.papers.reproduce import Outcomes
from headway.papers.verdict import Verdict, verdict

State = Literal["", "failed", "missing"]


@dataclass(frozen=True)
class Entry:
    """One number of the table: its values over the seeds, and what the paper prints there."""

    row: str
    column: str
    measure: str
    seeds: tuple[Measurement, ...]
    """One for each run that did not fail."""
    published: Published | None
    state: State = ""
    """Why there is no number: all runs of the cell failed, or none was found."""
    ends: tuple[End, ...] = ()
    """Best, last and smoothed accuracy of each of these runs when it ended."""
    rounds: int = 0
    """Rounds of the longest of these runs."""
    marks: Marks = field(default_factory=Marks)

    @property
    def values(self) -> list[float]:
        return [one.value for one in self.seeds if one.value is not None]

    @property
    def reached(self) -> bool:
        """Whether every seed has a value; a target that is not reached gives none."""
        return bool(self.seeds) and len(self.values) == len(self.seeds)

    @property
    def is_as_asked(self) -> bool:
        """Whether it has runs with the item's own split, cohorts and form of the method."""
        return not self.state and not self.marks.kind

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.values) if self.reached else None

    @property
    def std(self) -> float | None:
        return statistics.stdev(self.values) if self.reached and len(self.values) > 1 else None

    @property
    def lower_bound(self) -> float | None:
        """A lower bound of the mean where some seed ended before it reached the target."""
        bounds = [bound for one in self.seeds if (bound := one.at_least) is not None]
        return statistics.fmean(bounds) if bounds and len(bounds) == len(self.seeds) and not self.reached else None

    @property
    def bytes(self) -> float | None:
        """The mean traffic until the target, where all seeds have one."""
        sent = [one.bytes for one in self.seeds if one.bytes is not None]
        return statistics.fmean(sent) if sent and len(sent) == len(self.seeds) else None

    @property
    def gap(self) -> float | None:
        """Measured − published; None where either is missing or a bound."""
        if self.mean is None or self.published is None or self.published.value is None or self.published.bound:
            return None
        return self.mean - self.published.value

    @property
    def verdict(self) -> Verdict | None:
        """Whether seeds explain the gap. It means something for runs at full scale only."""
        return verdict(self.seeds, self.published)

    def mean_end(self, which: Literal["best", "last", "smoothed"]) -> float | None:
        """The mean over seeds of the accuracy in % with which the runs ended."""
        known = [value for one in self.ends if (value := getattr(one, which)) is not None]
        return 100 * statistics.fmean(known) if known and len(known) == len(self.ends) else None


def entries(plan: Plan, outcomes: Outcomes) -> list[Entry]:
    """Every number of the table, column by column and row by row."""
    return [entry for cell in plan.cells for entry in _cell_entries(plan, cell, outcomes)]


def _cell_entries(plan: Plan, cell: Cell, outcomes: Outcomes) -> list[Entry]:
    """The numbers of one cell, one for each measure of its column."""
    saved = [(one, outcomes[one]) for one in cell.runs if one in outcomes]
    good = [(one.scenario, outcome) for one, outcome in saved if outcome.failure is None]
    state: State = "" if good else "failed" if saved else "missing"
    ends = tuple(end_of(outcome.records) for _, outcome in good)
    rounds = max((outcome.rounds for _, outcome in good), default=0)
    marks = marks_of(cell, outcomes)

    def entry(measure: str) -> Entry:
        place = (cell.row.name, cell.column.name, measure)
        read = plan.read_as(cell, measure)
        seeds = tuple(measure_run(read, outcome.records, scenario) for scenario, outcome in good)
        return Entry(*place, seeds, plan.preset.numbers.get(place), state, ends, rounds, marks)

    return [entry(measure) for measure in cell.column.measures]
