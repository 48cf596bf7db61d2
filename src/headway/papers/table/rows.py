"""The numbers of an item's table as plain data, which is what `--json` prints, and as CSV."""

from __future__ import annotations

import csv
import io
from typing import TypedDict

from headway.papers.plan import Plan
from headway.papers.reproduce import Outcomes
from headway.papers.table.entries import Entry, State, entries
from headway.papers.verdict import Word


class NumberRow(TypedDict):
    """One number of an item; accuracies are percentages."""

    item: str
    scale: str
    column: str
    row: str
    measure: str
    seeds: int
    measured: float | None
    std: float | None
    more_than: float | None
    """A lower bound of what was measured, where some seed did not reach the target."""
    bytes: float | None
    published: float | None
    published_std: float | None
    published_is_bound: bool | None
    gap: float | None
    verdict: Word | None
    tolerance: float | None
    state: State
    rounds: int
    best_accuracy: float | None
    """This and the next two: with which the runs ended, whatever the measure is."""
    last_accuracy: float | None
    smoothed_accuracy: float | None
    draw: str
    form: str
    ended_early: str


def plain(plan: Plan, outcomes: Outcomes) -> list[NumberRow]:
    """Every number of the table, column by column and row by row."""
    return [number_row(plan, entry) for entry in entries(plan, outcomes)]


def number_row(plan: Plan, entry: Entry) -> NumberRow:
    """One number of the table; of runs that are scaled down, without gap and verdict."""
    printed, full = entry.published, plan.scale == "full"
    verdict = entry.verdict if full else None
    return {
        "item": plan.preset.item,
        "scale": plan.scale,
        "column": entry.column,
        "row": entry.row,
        "measure": entry.measure,
        "seeds": len(entry.seeds),
        "measured": entry.mean,
        "std": entry.std,
        "more_than": entry.lower_bound,
        "bytes": entry.bytes,
        "published": printed.value if printed else None,
        "published_std": printed.std if printed else None,
        "published_is_bound": printed.bound if printed else None,
        "gap": entry.gap if full else None,
        "verdict": verdict.word if verdict else None,
        "tolerance": verdict.tolerance if verdict else None,
        "state": entry.state,
        "rounds": entry.rounds,
        "best_accuracy": entry.mean_end("best"),
        "last_accuracy": entry.mean_end("last"),
        "smoothed_accuracy": entry.mean_end("smoothed"),
        "draw": entry.marks.draw,
        "form": entry.marks.form,
        "ended_early": entry.marks.ended_early,
    }


def comma_separated(plan: Plan, outcomes: Outcomes) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(NumberRow.__annotations__), lineterminator="\n")
    writer.writeheader()
    writer.writerows(plain(plan, outcomes))
    return text.getvalue()
