"""What papers say of an item's methods, and whether its runs show it: `seen`, `not seen` or `not run`.

A statement is that a row is better than others by one measure, or no worse by more than a share, in every cell that it
names. It is of these runs, with these seeds, and says nothing of a paper's own ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from headway.papers.measurements import heading, parse_measure
from headway.papers.plan import Plan
from headway.papers.preset import Preset, Statement
from headway.papers.reproduce import Outcomes
from headway.papers.table.entries import Entry, entries
from headway.papers.table.sheets import measured

Seen = Literal["seen", "not seen", "not run"]
Pair = tuple[Entry, Entry]
"""The number of the row that is said to be better, and the other."""


@dataclass(frozen=True)
class Finding:
    """A statement with what the runs say of it."""

    statement: Statement
    word: Seen
    pairs: Sequence[Pair]
    labels: Mapping[str, str] = field(default_factory=dict)
    """The short name of each column."""
    is_scaled: bool = False
    """Whether the runs are scaled down, so that they show nothing of the statement."""

    @property
    def line(self) -> str:
        """One line for below the table."""
        told, scaled = self.statement, " (scaled down)" if self.is_scaled else ""
        numbers = "; ".join(_in_words(*pair, self.labels) for pair in self.pairs)
        room = f", up to {100 * told.slack:g} % worse allowed" if told.slack else ""
        return f"{self.word}{scaled}: {told.text} ({told.source}{room}){f': {numbers}' if numbers else ''}"


def _in_words(one: Entry, other: Entry, labels: Mapping[str, str]) -> str:
    here, there = labels[one.column], labels[other.column]
    if one.row == other.row and here == there:
        return f"{one.row} {heading(one.measure)} {measured(one)}, {heading(other.measure)} {measured(other)} in {here}"
    if here == there:
        return f"{one.row} {measured(one)}, {other.row} {measured(other)} in {here}"
    return f"{one.row} {measured(one)} in {here}, {measured(other)} in {there}"


def _labels(preset: Preset) -> dict[str, str]:
    """The short name of each column, by its name."""
    return {column.name: column.label or column.name for column in preset.columns}


def findings(plan: Plan, outcomes: Outcomes) -> list[Finding]:
    """What the runs say of each statement of the item."""
    known = {(one.row, one.column, one.measure.partition("@")[0]): one for one in entries(plan, outcomes)}
    labels, scaled = _labels(plan.preset), plan.scale != "full"
    found = (_finding(told, plan.preset, known) for told in plan.preset.statements)
    return [replace(one, labels=labels, is_scaled=scaled) for one in found]


def _finding(told: Statement, preset: Preset, known: dict[tuple[str, str, str], Entry]) -> Finding:
    wanted = list(_cells(told, preset))
    pairs = [(known[one], known[other]) for one, other in wanted if {one, other} <= known.keys()]
    judged = [holds for pair in pairs if (holds := _holds(told, *pair)) is not None]
    complete = len(judged) == len(wanted)
    word: Seen = "not seen" if not all(judged) else "seen" if complete and judged else "not run"
    return Finding(told, word, [pair for pair in pairs if _holds(told, *pair) is not None])


def _cells(told: Statement, preset: Preset) -> Iterator[tuple[tuple[str, str, str], tuple[str, str, str]]]:
    """The pairs of (row, column, measure) that a statement compares."""
    names = {label: name for name, label in _labels(preset).items()}
    for column in told.columns or names:
        for row in told.than or (told.row,):
            yield (
                (told.row, names[column], told.measure),
                (row, names[told.than_column or column], told.than_measure or told.measure),
            )


def _holds(told: Statement, one: Entry, other: Entry) -> bool | None:
    """Whether the one is better, or worse by at most the share; None where either has no number."""
    if one.mean is None or other.mean is None:
        return None
    if parse_measure(one.measure)[0].higher_is_better:
        return one.mean > other.mean * (1 - told.slack)
    return one.mean < other.mean * (1 + told.slack)


def orders(plan: Plan, outcomes: Outcomes) -> list[str]:
    """The rows of a table without printed numbers from the best to the worst, by the first measure of each column."""
    if plan.preset.numbers or plan.preset.kind != "table" or len(plan.rows) < 2:
        return []
    found, lines = entries(plan, outcomes), []
    for column in plan.columns:
        name = column.measures[0]
        sign = -1 if parse_measure(name)[0].higher_is_better else 1
        group = [one for one in found if (one.column, one.measure) == (column.name, name) and one.mean is not None]
        ranked = sorted(group, key=lambda one: sign * (one.mean or 0.0))
        if len(ranked) > 1:
            order = ", ".join(f"{place} {one.row} {measured(one)}" for place, one in enumerate(ranked, 1))
            lines.append(f"order in {_labels(plan.preset)[column.name]}, by {heading(name)}: {order}")
    return lines
