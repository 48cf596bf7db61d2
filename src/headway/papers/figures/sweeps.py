"""Figures over the settings that an item varies: `crossings`, `sweep`, `bars` and `heat`.

Each fills an empty figure and returns what its marks mean, in words.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

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
from headway.papers.measurements import heading, parse_measure, target_crossings
from headway.papers.preset import Column, Row
from headway.report.figures import COLOURS, line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def crossings(figure: Figure, data: FigureData) -> list[str]:
    """The iterations at which each curve crosses its target: bars up to their mean, red lines at the first and last."""
    measures = list(dict.fromkeys(name for column in data.plan.columns for name in column.measures))
    for axes, name in zip(panels(figure, [heading(name) for name in measures], wide=7.0), measures, strict=True):
        cells = [cell for cell in data.plan.cells if name in cell.column.measures]
        for at, cell in enumerate(cells):
            scenario, seeds = cell.runs[0].scenario, data.seed_records(cell)
            crossed = [target_crossings(name, records, scenario) for records in seeds]
            if not crossed or not all(crossed):
                ran = (scenario.steps or 1) * max((records[-1]["round"] for records in seeds), default=0)
                write_upright(axes, at, f"not in {ran}" if crossed else "no run")
                continue
            first, mean, last = (statistics.fmean(map(of, crossed)) for of in (min, statistics.fmean, max))
            axes.bar(at, mean, width=0.62, color=COLOURS[0], alpha=0.75)
            axes.hlines([first, last], at - 0.38, at + 0.38, color=RED, linewidth=2, zorder=3)
        axes.set_xticks(range(len(cells)), [data.cell_label(cell) for cell in cells])
        axes.set_xlim(-0.6, len(cells) - 0.4)
        axes.set_ylim(bottom=0)
        axes.grid(visible=False, axis="x")
        axes.set_ylabel("iteration")
    return ["bar: mean of all iterations at which the curve meets the target", "red: the first and the last of them"]


_GREEK = {"gamma": "γ", "lambda": "λ", "beta": "β"}


def sweep(figure: Figure, data: FigureData) -> list[str]:
    """The measures over the one number in which the rows differ; a row without that number is a level line."""
    swept = {row: number for row in data.plan.rows for number in row.numbers.values()}
    level = [row for row in data.plan.rows if row not in swept]
    name = next((name for row in swept for name in row.numbers), "")
    (axes,) = panels(figure, [""], high=4.0, wide=6.6)
    pairs = [(column, measure) for column in data.plan.columns for measure in column.measures]
    marked = [
        _draw_measure(axes, data, column, measure, (swept, level), line(number))
        for number, (column, measure) in enumerate(pairs)
    ]
    if swept and min(swept.values()) > 0 and max(swept.values()) / min(swept.values()) >= 100:
        axes.set_xscale("log")
    axes.set_xlabel(_GREEK.get(name, name))
    axes.set_ylabel(axis_label(measure for _, measure in pairs))
    legend(figure)
    dashed = [f"dashed: {', '.join(row.name for row in level)}"] if level else []
    return [*dashed, *([PUBLISHED] if any(marked) else []), *seeds_note(data)]


def _draw_measure(
    axes: Axes,
    data: FigureData,
    column: Column,
    measure: str,
    rows: tuple[dict[Row, float], list[Row]],
    style: dict[str, Any],
) -> bool:
    """Draw one measure: a line over the rows with their numbers, and a level for each row without one.

    True where published values were drawn as well.
    """
    swept, level = rows
    words = _series_label(data, column, measure)
    found = {row: data.entries[row.name, column.name, measure] for row in (*swept, *level)}
    known = [
        (place, found[row].mean, found[row].std or 0.0) for row, place in swept.items() if found[row].mean is not None
    ]
    if known:
        places, means, spread = zip(*known, strict=True)
        bars = spread if any(spread) else None
        axes.errorbar(places, means, bars, marker="o", markersize=4, linewidth=2, label=words, **style)
    for row in level:
        mean = found[row].mean
        if mean is not None:
            axes.axhline(mean, color=style["color"], linestyle=(0, (4, 3)), label=f"{row.name}, {words}")
    marked = [draw_published(axes, data, place, found[row], style["color"]) for row, place in swept.items()]
    return any(marked)


def _series_label(data: FigureData, column: Column, measure: str) -> str:
    """The column and the measure, each where there are several; `after 500 iterations` for a fixed number of steps."""
    cell = data.cell(data.plan.rows[0], column)
    read = data.plan.read_as(cell, measure)
    words, (kind, number) = heading(read), parse_measure(read)
    if kind.at_round and data.plan.preset.scenario(cell.row, column).steps is not None:
        words = f"after {(cell.runs[0].scenario.steps or 1) * number:g} iterations"
    several = len({name for one in data.plan.columns for name in one.measures}) > 1
    parts = ([column.name] if len(data.plan.columns) > 1 else []) + ([words] if several else [])
    return ", ".join(parts) or words


def bars(figure: Figure, data: FigureData) -> list[str]:
    """A bar for each row, a panel for each column and measure."""
    pairs = [(column, measure) for column in data.plan.columns for measure in column.measures]
    labels = [data.row_label(row) for row in data.plan.rows]
    longest = max(map(len, labels))
    every = panels(figure, [column.name for column, _ in pairs], high=3.6 + 0.03 * longest)
    marked = False
    for axes, (column, measure) in zip(every, pairs, strict=True):
        for at, row in enumerate(data.plan.rows):
            entry = data.entries[row.name, column.name, measure]
            if entry.mean is None:
                write_upright(axes, at, entry.state or "not reached")
            else:
                axes.bar(at, entry.mean, yerr=entry.std, width=0.7, color=COLOURS[0], alpha=0.75, capsize=3)
                inside: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 8, "color": "white"}
                axes.annotate(f"{entry.mean:.1f}", (at, 0), (0, 4), textcoords="offset points", **inside)
            marked |= draw_published(axes, data, at, entry, "black")
        turned: dict[str, Any] = {"rotation": 30, "ha": "right"} if longest > 6 else {}
        axes.set_xticks(range(len(labels)), labels, fontsize=9, **turned)
        axes.grid(visible=False, axis="x")
        axes.set_ylabel(axis_label([measure]))
        axes.margins(y=0.12)
    return [*([PUBLISHED] if marked else []), *seeds_note(data)]


def heat(figure: Figure, data: FigureData) -> list[str]:
    """The means as a map over the two numbers in which the rows differ, a panel for each column and measure."""
    down, across = list(data.plan.preset.rows[0].numbers)
    rows = [row for row in data.plan.rows if row.numbers]
    upwards, rightwards = (sorted({row.numbers[name] for row in rows}) for name in (down, across))
    pairs = [(column, measure) for column in data.plan.columns for measure in column.measures]
    for axes, (column, measure) in zip(
        panels(figure, [column.name for column, _ in pairs], high=3.9), pairs, strict=True
    ):
        values = np.full((len(upwards), len(rightwards)), np.nan)
        for row in rows:
            place = upwards.index(row.numbers[down]), rightwards.index(row.numbers[across])
            mean = data.entries[row.name, column.name, measure].mean
            values[place] = np.nan if mean is None else mean
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
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8}
        if np.isnan(value):
            axes.text(right, up, "–", color=GREY, **style)
        else:
            colour = "white" if value < (known.min() + known.max()) / 2 else "black"
            weight = "bold" if value == best(known) else "normal"
            axes.text(right, up, f"{value:.1f}", color=colour, weight=weight, **style)
