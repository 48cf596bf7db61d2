"""Figures over rounds or iterations: `curves`, `iterations` and `deviation`.

Each fills an empty figure and returns what its marks mean, in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headway.papers.figures.cells import FigureData
from headway.papers.figures.layout import ACCURACY, LOSS, PUBLISHED, legend, panels, seeds_note
from headway.papers.measurements import Records, moving_average, parse_measure
from headway.papers.plan import Cell
from headway.papers.preset import Column
from headway.papers.table import Entry
from headway.records import RoundRecord
from headway.report.figures import Place, a_round, curve, line, mean_line, raw_line, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MANY = 6
"""Where there are more curves, each is drawn thinner."""


def _all_have(seeds: Sequence[Records], key: str) -> bool:
    """Whether every seed was evaluated in some round with this value."""
    return bool(seeds) and all(any(key in record for record in records) for records in seeds)


@dataclass(frozen=True)
class _Curve:
    """A cell that is drawn as a curve, its name in the legend, and its number among the curves of its panel."""

    cell: Cell
    label: str
    number: int


def _draw(axes: Axes, data: FigureData, one: _Curve, key: str, place: Place) -> None:
    """Draw the mean of a cell's seeds or, where all failed, the longest one with a cross at its end."""
    seeds, failed, style = data.seed_records(one.cell), data.failed_records(one.cell), line(one.number)
    many = len(data.plan.rows) > _MANY
    if _all_have(seeds, key):
        smooth = key == "accuracy_smoothed" and one.cell.runs[0].scenario.smoothing > 0
        if smooth:
            raw_line(axes, *curve(seeds, "accuracy", place), alpha=0.2 if many else 0.35, **style)
        width = 2 if smooth else 1.0 if many else 1.3
        mean_line(axes, *curve(seeds, key, place), linewidth=width, label=one.label, **style)
    elif _all_have([failed], key):
        places, values = curve([failed], key, place)
        axes.plot(places, values[0], linewidth=1.2, label=f"{one.label} (failed)", **style)
        axes.plot(places[-1:], values[0][-1:], "x", color=style["color"], markersize=8, markeredgewidth=2)


def _smoothing_note(data: FigureData) -> list[str]:
    keep = data.plan.runs[0].scenario.smoothing
    return (
        [f"thick: accuracy smoothed, EMA({keep:g})", "thin: as it is"] if keep > 0 else ["accuracy without smoothing"]
    )


def curves(figure: Figure, data: FigureData) -> list[str]:
    """Accuracy over rounds, a panel for each column; rings are points of the paper's curves."""
    marks: set[str] = set()
    for axes, column in zip(panels(figure, [one.name for one in data.plan.columns]), data.plan.columns, strict=True):
        cells = [data.cell(row, column) for row in data.plan.rows]
        for number, cell in enumerate(cells):
            _draw(axes, data, _Curve(cell, data.row_label(cell.row), number), "accuracy_smoothed", a_round)
        last = max((records[-1]["round"] for cell in cells for records in data.seed_records(cell)), default=1)
        for number, cell in enumerate(cells):
            if data.seed_records(cell):
                marks |= _draw_printed(axes, data, cell, last, line(number)["color"])
        axes.set_xlim(0, last * 1.02)
        axes.set_xlabel("communication round")
        axes.set_ylabel(ACCURACY)
    legend(figure)
    words = {"o": f"{PUBLISHED}, at its round", "<": "◁ published, the highest of any round"}
    return [*_smoothing_note(data), *seeds_note(data), *(words[mark] for mark in sorted(marks, reverse=True))]


def _draw_printed(axes: Axes, data: FigureData, cell: Cell, last: float, colour: str) -> set[str]:
    """Draw the paper's points up to round `last`, the last that was run; returns the marks it used."""
    points = [(*point, "o") for point in data.published_points(cell) if point[0] <= last]
    points += [(last * 1.02, accuracy, "<") for accuracy in data.published_tops(cell)]
    for round, accuracy, mark in points:
        axes.plot(
            [round], [accuracy], mark, clip_on=False, color=colour, markerfacecolor="white", markersize=6.5, zorder=4
        )
    return {mark for _, _, mark in points}


_OVER_ITERATIONS = {"global_loss": LOSS, "accuracy_smoothed": ACCURACY}
"""What `iterations` draws, and the labels of its axes."""


def iterations(figure: Figure, data: FigureData) -> list[str]:
    """Global loss and accuracy over local iterations t = τ · round, all runs in the same panels (FedNAG)."""
    measures = [name.split("@")[0] for name in data.plan.measures]
    wanted = [key for key in _OVER_ITERATIONS if any(name in key for name in measures)]
    for axes, key in zip(panels(figure, [""] * len(wanted), wide=5.0), wanted, strict=True):
        for number, cell in enumerate(data.plan.cells):
            _draw(axes, data, _Curve(cell, data.cell_label(cell), number), key, _iteration(cell))
        axes.set_xlabel("iteration")
        axes.set_ylabel(_OVER_ITERATIONS[key])
        axes.set_xlim(left=0)
        if key == "global_loss" and _ratio_of_extremes(axes) > 50:
            axes.set_yscale("log")
    legend(figure)
    drawn = _smoothing_note(data) if "accuracy_smoothed" in wanted else ["loss on all clients' data"]
    return [*drawn, *seeds_note(data)]


def _iteration(cell: Cell) -> Place:
    """Places a round of a cell's run at its last local iteration t = τ · round."""
    steps = cell.runs[0].scenario.steps or 1

    def place(record: RoundRecord) -> float:
        return float(steps * record["round"])

    return place


def _ratio_of_extremes(axes: Axes) -> float:
    """The largest positive value on the axes divided by the smallest."""
    values = [value for one in axes.lines for value in np.asarray(one.get_ydata(), dtype=float) if value > 0]
    return max(values) / min(values) if values else 1.0


def deviation(figure: Figure, data: FigureData) -> list[str]:
    """The accuracy without smoothing with its moving average, and below it their squared difference (FedACG)."""
    columns = data.plan.columns
    figure.set_size_inches(max(6.4 * len(columns) + 1.6, 9), 6.6)
    pairs = figure.subplots(2, len(columns), sharex="col", squeeze=False, height_ratios=(3, 2))
    for (above, below), column in zip(pairs.T, columns, strict=True):
        _draw_deviations(above, below, data, column)
        above.set_title(column.name, fontsize=10)
        above.set_ylabel(ACCURACY)
        below.set_ylabel("squared deviation")
        below.set_xlabel("communication round")
        below.set_xlim(left=0)
        below.set_ylim(bottom=0)
        for axes, place in ((above, "lower right"), (below, "upper right")):
            tidy(axes)
            if axes.lines:
                axes.legend(framealpha=0.85, edgecolor="none", loc=place, fontsize=9)
    first = " of the first seed" if max(len(cell.runs) for cell in data.plan.cells) > 1 else ""
    window = ", ".join(sorted({f"{parse_measure(column.measures[0])[1]:g}" for column in columns}))
    return [f"thin: accuracy{first} without smoothing", f"thick: its mean over the last {window} rounds"]


def _draw_deviations(above: Axes, below: Axes, data: FigureData, column: Column) -> None:
    """The curves of one column; the mean of the squared differences is over all seeds."""
    measure = column.measures[0]
    for number, row in enumerate(data.plan.rows):
        seeds = data.seed_records(data.cell(row, column))
        if _all_have(seeds, "accuracy"):
            places, values = curve(seeds[:1], "accuracy", a_round)
            means = np.array(moving_average(list(values[0]), int(parse_measure(measure)[1])))
            words = _mean_in_words(data, data.entries[row.name, column.name, measure])
            above.plot(places, values[0], linewidth=0.9, alpha=0.6, **line(number))
            above.plot(places, means, linewidth=1.6, label=row.name, **line(number))
            below.plot(places, (values[0] - means) ** 2, linewidth=0.9, label=words, **line(number))


def _mean_in_words(data: FigureData, entry: Entry) -> str:
    """`fedacg: mean 2.31 (published 2.26)`."""
    known = entry.published is not None and data.plan.scale == "full"
    return f"{entry.row}: mean {entry.mean:.2f}" + (f" (published {entry.published})" if known else "")
