"""Figures over the settings that an item varies: `crossings`, `sweep`, `bars` and `heat`.

Each fills an empty figure and returns what its marks mean, in words.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headway.papers.figures.cells import FigureData
from headway.papers.figures.layout import (
    GREY,
    PUBLISHED,
    RED,
    axis_label,
    draw_published,
    legend,
    panels,
    seeds_note,
    write_upright,
)
from headway.papers.measurements import Records, heading, parse_measure, target_crossings
from headway.papers.preset import Column, Row
from headway.papers.table import Entry
from headway.report.figures import COLOURS, line
from headway.scenario import Scenario

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def crossings(figure: Figure, data: FigureData) -> list[str]:
    """The iterations at which each curve crosses its target: bars up to their mean, red lines at the first and last."""
    measures = data.plan.measures
    for axes, name in zip(panels(figure, [heading(name) for name in measures], wide=7.0), measures, strict=True):
        cells = [cell for cell in data.plan.cells if name in cell.column.measures]
        for at, cell in enumerate(cells):
            _draw_crossings(axes, at, data.seed_records(cell), cell.runs[0].scenario, name)
        axes.set_xticks(range(len(cells)), [data.cell_label(cell) for cell in cells])
        axes.set_xlim(-0.6, len(cells) - 0.4)
        axes.set_ylim(bottom=0)
        axes.grid(visible=False, axis="x")
        axes.set_ylabel("iteration")
    return ["bar: mean of all iterations at which the curve meets the target", "red: the first and the last of them"]


def _draw_crossings(axes: Axes, at: int, seeds: Sequence[Records], scenario: Scenario, measure: str) -> None:
    """Draw the bar of one cell; words in its place where some seed never crosses the target, or there is no run."""
    crossed = [target_crossings(measure, records, scenario) for records in seeds]
    if not crossed or not all(crossed):
        ran = (scenario.steps or 1) * max((records[-1]["round"] for records in seeds), default=0)
        write_upright(axes, at, f"not in {ran}" if crossed else "no run")
        return
    first, mean, last = (statistics.fmean(map(of, crossed)) for of in (min, statistics.fmean, max))
    axes.bar(at, mean, width=0.62, color=COLOURS[0], alpha=0.75)
    axes.hlines([first, last], at - 0.38, at + 0.38, color=RED, linewidth=2, zorder=3)


_GREEK = {"gamma": "γ", "lambda": "λ", "beta": "β"}


@dataclass(frozen=True)
class _SweptRows:
    """Rows by the one number in which they differ."""

    name: str
    """That of the number."""
    places: dict[Row, float]
    level: list[Row]
    """Rows without the number."""

    @classmethod
    def of(cls, rows: Sequence[Row]) -> _SweptRows:
        places = {row: number for row in rows for number in row.numbers.values()}
        name = next((name for row in places for name in row.numbers), "")
        return cls(name, places, [row for row in rows if row not in places])

    @property
    def spans_decades(self) -> bool:
        """Whether the largest number is a hundred times the smallest, or more."""
        numbers = self.places.values()
        return bool(numbers) and min(numbers) > 0 and max(numbers) / min(numbers) >= 100


def sweep(figure: Figure, data: FigureData) -> list[str]:
    """The measures over the one number in which the rows differ; a row without that number is a level line."""
    rows = _SweptRows.of(data.plan.rows)
    (axes,) = panels(figure, [""], high=4.0, wide=6.6)
    marked = [
        _draw_measure(axes, data, column, measure, rows, number)
        for number, (column, measure) in enumerate(data.plan.column_measures)
    ]
    if rows.spans_decades:
        axes.set_xscale("log")
    axes.set_xlabel(_GREEK.get(rows.name, rows.name))
    axes.set_ylabel(axis_label(data.plan.measures))
    legend(figure)
    dashed = [f"dashed: {', '.join(row.name for row in rows.level)}"] if rows.level else []
    return [*dashed, *([PUBLISHED] if any(marked) else []), *seeds_note(data)]


def _draw_measure(axes: Axes, data: FigureData, column: Column, measure: str, rows: _SweptRows, number: int) -> bool:
    """Draw one measure, the figure's line of this number, and a level for each row without a place on it.

    True where published values were drawn as well.
    """
    words, style = _series_label(data, column, measure), line(number)
    found = {row: data.entries[row.name, column.name, measure] for row in data.plan.rows}
    known = [
        (place, mean, found[row].std or 0.0)
        for row, place in rows.places.items()
        if (mean := found[row].mean) is not None
    ]
    if known:
        places, means, spread = zip(*known, strict=True)
        bars = spread if any(spread) else None
        axes.errorbar(places, means, bars, marker="o", markersize=4, linewidth=2, label=words, **style)
    for row in rows.level:
        mean = found[row].mean
        if mean is not None:
            axes.axhline(mean, color=style["color"], linestyle=(0, (4, 3)), label=f"{row.name}, {words}")
    marked = [draw_published(axes, data, place, found[row], style["color"]) for row, place in rows.places.items()]
    return any(marked)


def _series_label(data: FigureData, column: Column, measure: str) -> str:
    """The column and the measure, each where there are several; `after 500 iterations` for a fixed number of steps."""
    cell = data.cell(data.plan.rows[0], column)
    read = data.plan.read_as(cell, measure)
    words, (kind, number) = heading(read), parse_measure(read)
    if kind.at_round and data.plan.preset.scenario(cell.row, column).steps is not None:
        words = f"after {(cell.runs[0].scenario.steps or 1) * number:g} iterations"
    parts = ([column.name] if len(data.plan.columns) > 1 else []) + ([words] if len(data.plan.measures) > 1 else [])
    return ", ".join(parts) or words


def bars(figure: Figure, data: FigureData) -> list[str]:
    """A bar for each row, a panel for each column and measure."""
    pairs = data.plan.column_measures
    labels = [data.row_label(row) for row in data.plan.rows]
    longest = max(map(len, labels))
    every = panels(figure, [column.name for column, _ in pairs], high=3.6 + 0.03 * longest)
    angle, marked = 30 if longest > 6 else 0, False
    for axes, (column, measure) in zip(every, pairs, strict=True):
        for at, row in enumerate(data.plan.rows):
            entry = data.entries[row.name, column.name, measure]
            _draw_bar(axes, at, entry)
            marked |= draw_published(axes, data, at, entry, "black")
        axes.set_xticks(range(len(labels)), labels, fontsize=9, rotation=angle, ha="right" if angle else "center")
        axes.grid(visible=False, axis="x")
        axes.set_ylabel(axis_label([measure]))
        axes.margins(y=0.12)
    return [*([PUBLISHED] if marked else []), *seeds_note(data)]


def _draw_bar(axes: Axes, at: int, entry: Entry) -> None:
    """Draw a mean with its number inside, or words in its place where there is none."""
    if entry.mean is None:
        write_upright(axes, at, entry.state or "not reached")
        return
    axes.bar(at, entry.mean, yerr=entry.std, width=0.7, color=COLOURS[0], alpha=0.75, capsize=3)
    axes.annotate(
        f"{entry.mean:.1f}",
        (at, 0),
        (0, 4),
        textcoords="offset points",
        ha="center",
        va="bottom",
        fontsize=8,
        color="white",
    )


@dataclass(frozen=True)
class _Map:
    """The rows that differ in two numbers, with the names of both and their values in ascending order."""

    rows: list[Row]
    down: str
    across: str

    def values(self, name: str) -> list[float]:
        return sorted({row.numbers[name] for row in self.rows})

    def means(self, data: FigureData, column: Column, measure: str) -> np.ndarray:
        """A mean for each pair of values, shape (down, across); NaN where there is none."""
        upwards, rightwards = self.values(self.down), self.values(self.across)
        found = np.full((len(upwards), len(rightwards)), np.nan)
        for row in self.rows:
            mean = data.entries[row.name, column.name, measure].mean
            if mean is not None:
                found[upwards.index(row.numbers[self.down]), rightwards.index(row.numbers[self.across])] = mean
        return found


def heat(figure: Figure, data: FigureData) -> list[str]:
    """The means as a map over the two numbers in which the rows differ, a panel for each column and measure."""
    down, across = list(data.plan.preset.rows[0].numbers)
    rows = _Map([row for row in data.plan.rows if row.numbers], down, across)
    upwards, rightwards = rows.values(down), rows.values(across)
    pairs = data.plan.column_measures
    every = panels(figure, [column.name for column, _ in pairs], high=3.9)
    for axes, (column, measure) in zip(every, pairs, strict=True):
        values = rows.means(data, column, measure)
        if not np.isnan(values).all():
            image = axes.imshow(values, origin="lower", cmap="viridis", aspect="auto")
            figure.colorbar(image, ax=axes, shrink=0.9, label=axis_label([measure]))
        _write_values(axes, values, np.nanmax if parse_measure(measure)[0].higher_is_better else np.nanmin)
        axes.set_xticks(range(len(rightwards)), [f"{value:g}" for value in rightwards])
        axes.set_yticks(range(len(upwards)), [f"{value:g}" for value in upwards])
        axes.set_xlabel(across)
        axes.set_ylabel(down)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
    return ["bold: the best", *seeds_note(data, spread="")]


def _write_values(axes: Axes, values: np.ndarray, best: Callable[[np.ndarray], float]) -> None:
    """Write each number into its field of the map, white on dark and black on light; the best one is bold."""
    known = values[~np.isnan(values)]
    for (up, right), value in np.ndenumerate(values):
        words, colour, weight = "–", GREY, "normal"
        if not np.isnan(value):
            words = f"{value:.1f}"
            colour = "white" if value < (known.min() + known.max()) / 2 else "black"
            weight = "bold" if value == best(known) else "normal"
        axes.text(right, up, words, color=colour, weight=weight, ha="center", va="center", fontsize=8)
