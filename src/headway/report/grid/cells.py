"""The numbers of a grid: each method's headline in each scenario, and where panels stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headway.measure.headline import Headline
from headway.measure.numbers import MethodNumbers, number_of
from headway.report.clients import with_deviation
from headway.report.figures import a_round, curve
from headway.runs.grid import Cell, Grid
from headway.runs.study import Study


@dataclass(frozen=True)
class Drawn:
    """The curve of one method in one scenario: rounds, and means and deviations over seeds."""

    rounds: np.ndarray
    mean: np.ndarray
    std: np.ndarray | None


def studies(grid: Grid) -> list[Study]:
    """The comparisons that there are."""
    return [cell.study for cell in grid.cells if cell.study is not None]


def lead(grid: Grid) -> Headline:
    """The headline of all scenarios: smoothed where it is in one, so that all are read in the same way."""
    found = [study.headline for study in studies(grid)]
    return next((one for one in found if one.smoothed), found[0])


def methods(grid: Grid) -> list[str]:
    """Every method that has a run in some scenario, in the order that was given."""
    return list(dict.fromkeys(name for study in studies(grid) for name in study.runs))


def rows_of(cell: Cell) -> dict[str, MethodNumbers]:
    """What a scenario has of each method."""
    return {} if cell.study is None else {row["name"]: row for row in cell.study.summary()}


def places(grid: Grid) -> tuple[int, int]:
    """How many rows and columns of panels: the last setting goes across."""
    across = len(list(grid.axes.values())[-1])
    return len(grid.cells) // across, across


def heat(grid: Grid) -> list[list[tuple[str, float | None]]]:
    """For each method and scenario the headline as it is written, and how good it is there: 0 the worst, 1 the best.

    A scenario may be harder than another, so methods are judged within each.
    """
    first, every = lead(grid), [rows_of(cell) for cell in grid.cells]
    found: list[list[tuple[str, float | None]]] = []
    for name in methods(grid):
        line: list[tuple[str, float | None]] = []
        for rows in every:
            text = "–"
            if name in rows:
                row = rows[name]
                text = with_deviation(
                    number_of(row, first.key), number_of(row, f"{first.key}_std"), first.scale, first.digits
                )
            line.append((text, _share(name, rows, first)))
        found.append(line)
    return found


def _share(name: str, rows: dict[str, MethodNumbers], first: Headline) -> float | None:
    sign = 1 if first.higher_is_better else -1
    known = {one: sign * value for one, row in rows.items() if (value := number_of(row, first.key)) is not None}
    if name not in known:
        return None
    low, high = min(known.values()), max(known.values())
    return 1.0 if high == low else (known[name] - low) / (high - low)


def curves(cell: Cell, first: Headline) -> dict[str, Drawn]:
    """The curves of a scenario, by method; without those that were not evaluated."""
    if cell.study is None:
        return {}
    found = {}
    for name, seeds in cell.study.runs.items():
        rounds, values = curve([one.records for one in seeds], first.curve, a_round, first.scale)
        if len(rounds):
            std = values.std(0, ddof=1) if len(values) > 1 else None
            found[name] = Drawn(rounds, values.mean(0), std)
    return found


def limits(drawn: Sequence[dict[str, Drawn]]) -> tuple[float, float, float]:
    """(last round, lowest, highest value) of all panels, which have one scale."""
    every = [one for panel in drawn for one in panel.values()]
    if not every:
        return 1.0, 0.0, 1.0
    lowest, highest = min(float(one.mean.min()) for one in every), max(float(one.mean.max()) for one in every)
    room = 0.04 * (highest - lowest) or 1.0
    return max(float(one.rounds[-1]) for one in every), lowest - room, highest + room
