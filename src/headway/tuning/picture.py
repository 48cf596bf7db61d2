"""The picture of a sweep: a line over one parameter, a heat map over two, ranked bars over more."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.tuning.grid import text
from headway.tuning.results import Sweep, Trial
from headway.tuning.table import heading, scored

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOUR, _BEST, _GREY = "#4477aa", "#ee6677", "#999999"
MOST_BARS = 30


def _scale(sweep: Sweep) -> float:
    return 100 if sweep.measure == "accuracy" else 1


def picture(sweep: Sweep, path: Path) -> Path:
    """What varies decides the form: one name a line, two a heat map, more the ranked candidates."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    varied = [name for name, values in sweep.grid.items() if len(values) > 1]
    with matplotlib.rc_context({"font.size": 11}):
        width, height = _size(sweep, varied)
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        if len(varied) == 1:
            _line(axes, sweep, varied[0])
        elif len(varied) == 2:
            _heat_map(axes, sweep, *varied)
        else:
            _bars(axes, sweep)
        scenario = (*sweep.ran, sweep.scenario)[0]
        title = textwrap.fill(f"{sweep.method} · {scenario.data}, {scenario.partition}", int(10 * width))
        figure.suptitle(f"{title}\n{heading(sweep)}, after {_rounds(sweep)} rounds", fontsize=11)
        figure.savefig(path, dpi=130)
    return path


def _rounds(sweep: Sweep) -> str:
    """`80`, or `10, 30 and 70` where candidates were stopped after fewer."""
    *others, last = [str(stage.rounds) for stage in sweep.stages]
    return f"{', '.join(others)} and {last}" if others else last


def _size(sweep: Sweep, varied: list[str]) -> tuple[float, float]:
    if len(varied) == 2:
        down, across = (len(sweep.grid[name]) for name in varied)
        return max(5.4, 2.4 + 1.1 * across), max(3.6, 1.6 + 0.75 * down)
    if len(varied) == 1:
        return 6.4, 4.2
    return 8.4, 1.6 + 0.3 * min(len(sweep.trials), MOST_BARS)


def _line(axes: Axes, sweep: Sweep, name: str) -> None:
    """Scores over the values; numbers that span more than a factor of 20 on a logarithmic axis, words evenly spaced."""
    values = sweep.grid[name]
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    order = sorted(sweep.trials, key=lambda one: one.candidate.values[name]) if numeric else sweep.trials
    places = [one.candidate.values[name] if numeric else float(at) for at, one in enumerate(order)]
    shown = [(place, one) for place, one in zip(places, order, strict=True) if one.failure is None]
    scale = _scale(sweep)
    if numeric and min(values) > 0 and max(values) / min(values) > 20:
        axes.set_xscale("log")
    if len({one.rounds for _, one in shown}) == 1:
        axes.plot(
            [place for place, _ in shown], [scale * (one.score or 0) for _, one in shown], color=_COLOUR, alpha=0.6
        )
    for place, one in shown:
        colour = _BEST if one is sweep.best else _COLOUR
        filled = colour if one.status == "finished" else "white"
        axes.errorbar(
            place,
            scale * (one.score or 0),
            yerr=None if one.spread is None else scale * one.spread,
            fmt="o",
            color=colour,
            markerfacecolor=filled,
            markersize=8,
            capsize=4,
            zorder=3,
        )
        note = scored(sweep, one).partition(" ")[0] + ("" if one.status == "finished" else f"\n{one.rounds} rounds")
        axes.annotate(note, (place, scale * (one.score or 0)), (7, 5), textcoords="offset points", fontsize=9)
    for place, one in zip(places, order, strict=True):
        if one.failure is not None:
            axes.axvline(place, color=_GREY, linestyle=":")
            axes.text(place, 0.98, one.status, rotation=90, transform=axes.get_xaxis_transform(), color="#555555",
                      ha="right", va="top", fontsize=9)  # fmt: skip
    axes.set_xticks(places, [text(one.candidate.values[name]) for one in order])
    axes.minorticks_off()
    axes.margins(x=0.14, y=0.2)
    axes.set_xlabel(name)
    axes.set_ylabel(heading(sweep))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _heat_map(axes: Axes, sweep: Sweep, down: str, across: str) -> None:
    """One cell for each pair of values, with its score; hatched where a candidate diverged or failed."""
    from matplotlib.patches import Rectangle

    rows, columns = sweep.grid[down], sweep.grid[across]
    scale = _scale(sweep)
    level = np.full((len(rows), len(columns)), math.nan)
    at: dict[tuple[int, int], Trial] = {}
    for trial in sweep.trials:
        place = rows.index(trial.candidate.values[down]), columns.index(trial.candidate.values[across])
        at[place] = trial
        if trial.failure is None:
            level[place] = scale * (trial.score or 0)
    image = axes.imshow(level, cmap="viridis" if sweep.measure == "accuracy" else "viridis_r", aspect="auto")
    for (row, column), trial in at.items():
        _cell(axes, sweep, row, column, trial, image)
        if trial.failure is not None:
            axes.add_patch(
                Rectangle(
                    (column - 0.5, row - 0.5), 1, 1, facecolor="#eeeeee", edgecolor="#bbbbbb", hatch="//", linewidth=0
                )
            )
        if trial is sweep.best:
            axes.add_patch(
                Rectangle((column - 0.47, row - 0.47), 0.94, 0.94, fill=False, edgecolor=_BEST, linewidth=3.5)
            )
    axes.set_xticks(range(len(columns)), [text(value) for value in columns])
    axes.set_yticks(range(len(rows)), [text(value) for value in rows])
    axes.set_xlabel(across)
    axes.set_ylabel(down)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.figure.colorbar(image, ax=axes, label=heading(sweep))


def _cell(axes: Axes, sweep: Sweep, row: int, column: int, trial: Trial, image: Any) -> None:
    if trial.failure is not None:
        words, colour = trial.status, "#333333"
    else:
        words = scored(sweep, trial).replace(" ± ", "\n± ")
        if len(sweep.stages) > 1:
            words += f"\n{trial.rounds} rounds"
        red, green, blue, _ = image.cmap(image.norm(_scale(sweep) * (trial.score or 0)))
        colour = "black" if 0.3 * red + 0.59 * green + 0.11 * blue > 0.5 else "white"
    style: dict[str, Any] = {"weight": "bold"} if trial is sweep.best else {}
    axes.text(column, row, words, color=colour, ha="center", va="center", fontsize=9, zorder=4, **style)


def _bars(axes: Axes, sweep: Sweep) -> None:
    """The candidates, best on top; where scores are near each other the axis begins just below them and says so."""
    shown = sweep.ranking[:MOST_BARS]
    scale = _scale(sweep)
    known = [scale * one.score for one in shown if one.score is not None and one.failure is None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    margin = 0.25 * (high - low) or 0.1 * abs(high) or 1.0
    start = max(low - margin, 0.0) if low > 0.6 * high else 0.0
    for place, one in enumerate(shown):
        if one.failure is not None:
            axes.text(start, place, f" {one.status}", va="center", color="#555555", fontsize=9)
            continue
        colour = _BEST if one is sweep.best else _COLOUR
        width = scale * (one.score or 0)
        error = None if one.spread is None else scale * one.spread
        axes.barh(place, width - start, left=start, xerr=error, height=0.7, color=colour,
                  alpha=1 if one.status == "finished" else 0.45, ecolor="#333333", capsize=2)  # fmt: skip
        note = scored(sweep, one) + ("" if one.status == "finished" else f", {one.rounds} rounds")
        axes.annotate(note, (width + (error or 0), place), (4, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_yticks(range(len(shown)), [one.candidate.label for one in shown], fontsize=9)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    end = high + scale * max((one.spread or 0.0 for one in shown), default=0.0)
    axes.set_xlim(start, end + 0.25 * (end - start))
    more = len(sweep.trials) - len(shown)
    notes = ["axis not from 0" if start else "", f"{more} more in sweep.md" if more else ""]
    axes.set_xlabel("; ".join([heading(sweep), *filter(None, notes)]))
    axes.grid(axis="x", alpha=0.25)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
