"""Pictures over rounds or iterations; each function fills an empty figure and returns what its marks mean, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.papers.measures import Records, moving_average, named
from headway.papers.panels import ACCURACY, LOSS, PUBLISHED, grid, legend, seeds_in_words
from headway.papers.plan import Cell
from headway.papers.preset import Column
from headway.papers.shown import Shown
from headway.papers.table import Entry
from headway.records import RoundRecord
from headway.report.figures import Place, a_round, curve, line, mean_line, raw_line, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MANY = 6
"""More curves than these are drawn thinner."""


def _has(seeds: Sequence[Records], key: str) -> bool:
    return bool(seeds) and all(any(key in record for record in records) for records in seeds)


def _run_lines(axes: Axes, shown: Shown, cell: Cell, key: str, place: Place, **style: Any) -> None:
    """A cell's curve: the mean of its seeds or, where all failed, how far one came, with a cross at its end."""
    seeds, broken = shown.seeds(cell), shown.broken(cell)
    many = len(shown.plan.rows) > _MANY
    if _has(seeds, key):
        smooth = key == "accuracy_smoothed" and cell.runs[0].scenario.smoothing > 0
        if smooth:
            unnamed = {**style, "label": None, "alpha": 0.2 if many else 0.35}
            raw_line(axes, *curve(seeds, "accuracy", place), **unnamed)
        mean_line(axes, *curve(seeds, key, place), linewidth=2 if smooth else 1.0 if many else 1.3, **style)
    elif _has([broken], key):
        places, values = curve([broken], key, place)
        axes.plot(places, values[0], linewidth=1.2, **{**style, "label": f"{style['label']} (failed)"})
        axes.plot(places[-1:], values[0][-1:], "x", color=style["color"], markersize=8, markeredgewidth=2)


def _smoothing(shown: Shown) -> list[str]:
    keep = shown.plan.runs[0].scenario.smoothing
    return (
        [f"thick: accuracy smoothed, EMA({keep:g})", "thin: as it is"] if keep > 0 else ["accuracy without smoothing"]
    )


def curves(figure: Figure, shown: Shown) -> list[str]:
    """Accuracy over rounds, a panel for each column; points of the paper's curves as rings."""
    marks: set[str] = set()
    for axes, column in zip(grid(figure, [one.name for one in shown.plan.columns]), shown.plan.columns, strict=True):
        cells = [shown.cell(row, column) for row in shown.plan.rows]
        for number, cell in enumerate(cells):
            _run_lines(axes, shown, cell, "accuracy_smoothed", a_round, label=shown.of_row(cell.row), **line(number))
        last = max((records[-1]["round"] for cell in cells for records in shown.seeds(cell)), default=1)
        for number, cell in enumerate(cells):
            if shown.seeds(cell):
                marks |= _rings(axes, shown, cell, last, line(number)["color"])
        axes.set_xlim(0, last * 1.02)
        axes.set_xlabel("communication round")
        axes.set_ylabel(ACCURACY)
    legend(figure)
    words = {"o": f"{PUBLISHED}, at its round", "<": "◁ published, the highest of any round"}
    return [*_smoothing(shown), *seeds_in_words(shown), *(words[mark] for mark in sorted(marks, reverse=True))]


def _rings(axes: Axes, shown: Shown, cell: Cell, last: float, colour: str) -> set[str]:
    """The paper's points that lie within the rounds that were run; the kinds of marks that were drawn."""
    style: dict[str, Any] = {"color": colour, "markerfacecolor": "white", "markersize": 6.5, "zorder": 4}
    points = [(*point, "o") for point in shown.points(cell) if point[0] <= last]
    points += [(last * 1.02, accuracy, "<") for accuracy in shown.tops(cell)]
    for round, accuracy, mark in points:
        axes.plot([round], [accuracy], mark, clip_on=False, **style)
    return {mark for _, _, mark in points}


def iterations(figure: Figure, shown: Shown) -> list[str]:
    """Global loss and accuracy over local iterations t = τ · round, every run in the same panels (FedNAG)."""
    measures = [name for column in shown.plan.columns for name in column.measures]
    kinds = {"global_loss": LOSS, "accuracy_smoothed": ACCURACY}
    wanted = [key for key in kinds if any(name.split("@")[0] in key for name in measures)]
    for axes, key in zip(grid(figure, [""] * len(wanted), wide=5.0), wanted, strict=True):
        for number, cell in enumerate(shown.plan.cells):
            steps = cell.runs[0].scenario.steps or 1

            def place(record: RoundRecord, steps: int = steps) -> float:
                return float(steps * record["round"])

            _run_lines(axes, shown, cell, key, place, label=shown.label(cell), **line(number))
        axes.set_xlabel("iteration")
        axes.set_ylabel(kinds[key])
        axes.set_xlim(left=0)
        if key == "global_loss" and _spans(axes) > 50:
            axes.set_yscale("log")
    legend(figure)
    drawn = _smoothing(shown) if "accuracy_smoothed" in wanted else ["loss on all clients' data"]
    return [*drawn, *seeds_in_words(shown)]


def _spans(axes: Axes) -> float:
    """How many times the smallest value the largest one is."""
    values = [value for one in axes.lines for value in np.asarray(one.get_ydata(), dtype=float) if value > 0]
    return max(values) / min(values) if values else 1.0


def deviation(figure: Figure, shown: Shown) -> list[str]:
    """Unsmoothed accuracy with its moving average, and below it their squared difference (FedACG)."""
    columns = shown.plan.columns
    figure.set_size_inches(max(6.4 * len(columns) + 1.6, 9), 6.6)
    panels = figure.subplots(2, len(columns), sharex="col", squeeze=False, height_ratios=(3, 2))
    for (above, below), column in zip(panels.T, columns, strict=True):
        _deviations(above, below, shown, column)
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
    first = " of the first seed" if max(len(cell.runs) for cell in shown.plan.cells) > 1 else ""
    window = ", ".join(sorted({f"{named(column.measures[0])[1]:g}" for column in columns}))
    return [f"thin: accuracy{first} without smoothing", f"thick: its mean over the last {window} rounds"]


def _deviations(above: Axes, below: Axes, shown: Shown, column: Column) -> None:
    measure = column.measures[0]
    for number, row in enumerate(shown.plan.rows):
        seeds = shown.seeds(shown.cell(row, column))
        if _has(seeds, "accuracy"):
            places, values = curve(seeds[:1], "accuracy", a_round)
            means = np.array(moving_average(list(values[0]), int(named(measure)[1])))
            words = _mean_square(shown, shown.entries[row.name, column.name, measure])
            above.plot(places, values[0], linewidth=0.9, alpha=0.6, **line(number))
            above.plot(places, means, linewidth=1.6, label=row.name, **line(number))
            below.plot(places, (values[0] - means) ** 2, linewidth=0.9, label=words, **line(number))


def _mean_square(shown: Shown, entry: Entry) -> str:
    """`fedacg: mean 2.31 (published 2.26)`."""
    known = entry.published is not None and shown.plan.scale == "full"
    return f"{entry.row}: mean {entry.mean:.2f}" + (f" (published {entry.published})" if known else "")
