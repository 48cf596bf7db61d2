"""The picture of a sweep: a line over one parameter, a heat map over two, ranked bars over more."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headway.tuning.grid import Value, text
from headway.tuning.results import Sweep, Trial
from headway.tuning.table import heading, scored

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

_COLOUR, _BEST, _GREY = "#4477aa", "#ee6677", "#999999"
MOST_BARS = 30


def _height(sweep: Sweep, trial: Trial) -> float:
    """A candidate's score as it is drawn: shares in %."""
    return sweep.headline.scale * (trial.score or 0)


def _error(sweep: Sweep, trial: Trial) -> float | None:
    """The deviation over seeds in the same unit; None of one seed."""
    return None if trial.spread is None else sweep.headline.scale * trial.spread


def _colour(sweep: Sweep, trial: Trial) -> str:
    return _BEST if trial is sweep.best else _COLOUR


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
    places = _places(sweep, name)
    points = [(place, one) for place, one in places if one.failure is None]
    if _spans_widely(_numbers(sweep.grid[name])):
        axes.set_xscale("log")
    _join(axes, sweep, points)
    for place, one in points:
        _draw_score(axes, sweep, place, one)
    for place, one in places:
        if one.failure is not None:
            _draw_failure(axes, place, one.status)
    axes.set_xticks([place for place, _ in places], [text(one.candidate.values[name]) for _, one in places])
    axes.minorticks_off()
    axes.margins(x=0.14, y=0.2)
    axes.set_xlabel(name)
    axes.set_ylabel(heading(sweep))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _numbers(values: Sequence[Value]) -> list[float]:
    """The values as numbers; empty where one of them is a word or a truth value."""
    numbers = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    return numbers if len(numbers) == len(values) else []


def _spans_widely(numbers: Sequence[float]) -> bool:
    """Whether the largest number is more than 20 times the smallest."""
    return bool(numbers) and min(numbers) > 0 and max(numbers) / min(numbers) > 20


def _places(sweep: Sweep, name: str) -> list[tuple[float, Trial]]:
    """Where each candidate stands on the axis of a name: at its number, or at its place among words."""
    numbers = _numbers([one.candidate.values[name] for one in sweep.trials])
    if not numbers:
        return [(float(at), one) for at, one in enumerate(sweep.trials)]
    return sorted(zip(numbers, sweep.trials, strict=True), key=lambda pair: pair[0])


def _join(axes: Axes, sweep: Sweep, points: Sequence[tuple[float, Trial]]) -> None:
    """Draw a line through the scores, where all have the same rounds and can be compared."""
    if len({one.rounds for _, one in points}) == 1:
        heights = [_height(sweep, one) for _, one in points]
        axes.plot([place for place, _ in points], heights, color=_COLOUR, alpha=0.6)


def _draw_score(axes: Axes, sweep: Sweep, place: float, trial: Trial) -> None:
    """A point with its number; hollow, with its rounds, where the candidate was stopped."""
    finished, height, colour = trial.status == "finished", _height(sweep, trial), _colour(sweep, trial)
    axes.errorbar(
        place,
        height,
        yerr=_error(sweep, trial),
        fmt="o",
        color=colour,
        markerfacecolor=colour if finished else "white",
        markersize=8,
        capsize=4,
        zorder=3,
    )
    note = scored(sweep, trial).partition(" ")[0] + ("" if finished else f"\n{trial.rounds} rounds")
    axes.annotate(note, (place, height), (7, 5), textcoords="offset points", fontsize=9)


def _draw_failure(axes: Axes, place: float, words: str) -> None:
    """A dotted line with words beside it, in place of a point."""
    axes.axvline(place, color=_GREY, linestyle=":")
    axes.text(
        place,
        0.98,
        words,
        rotation=90,
        transform=axes.get_xaxis_transform(),
        color="#555555",
        ha="right",
        va="top",
        fontsize=9,
    )


def _heat_map(axes: Axes, sweep: Sweep, down: str, across: str) -> None:
    """One cell for each pair of values, with its score; hatched where a candidate diverged or failed."""
    from matplotlib.patches import Rectangle

    rows, columns = sweep.grid[down], sweep.grid[across]
    level = np.full((len(rows), len(columns)), math.nan)
    at: dict[tuple[int, int], Trial] = {}
    for trial in sweep.trials:
        place = rows.index(trial.candidate.values[down]), columns.index(trial.candidate.values[across])
        at[place] = trial
        if trial.failure is None:
            level[place] = _height(sweep, trial)
    image = axes.imshow(level, cmap="viridis" if sweep.headline.higher_is_better else "viridis_r", aspect="auto")
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


def _cell(axes: Axes, sweep: Sweep, row: int, column: int, trial: Trial, image: AxesImage) -> None:
    """Write a candidate's score into its cell, black on light and white on dark; bold where it is the best."""
    if trial.failure is not None:
        words, colour = trial.status, "#333333"
    else:
        words = scored(sweep, trial).replace(" ± ", "\n± ")
        if len(sweep.stages) > 1:
            words += f"\n{trial.rounds} rounds"
        red, green, blue, _ = image.cmap(image.norm(np.array(_height(sweep, trial))))
        colour = "black" if 0.3 * red + 0.59 * green + 0.11 * blue > 0.5 else "white"
    weight = "bold" if trial is sweep.best else "normal"
    axes.text(column, row, words, color=colour, ha="center", va="center", fontsize=9, zorder=4, weight=weight)


def _bars(axes: Axes, sweep: Sweep) -> None:
    """The candidates, best on top; where scores are near each other the axis begins just below them and says so."""
    shown = sweep.ranking[:MOST_BARS]
    start, high = _ends(sweep, shown)
    for place, one in enumerate(shown):
        if one.failure is None:
            _draw_bar(axes, sweep, place, one, start)
        else:
            axes.text(start, place, f" {one.status}", va="center", color="#555555", fontsize=9)
    axes.set_yticks(range(len(shown)), [one.candidate.label for one in shown], fontsize=9)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    end = high + max((_error(sweep, one) or 0.0 for one in shown), default=0.0)
    axes.set_xlim(start, end + 0.25 * (end - start))
    more = len(sweep.trials) - len(shown)
    notes = ["axis not from 0" if start else "", f"{more} more in sweep.md" if more else ""]
    axes.set_xlabel("; ".join([heading(sweep), *filter(None, notes)]))
    axes.grid(axis="x", alpha=0.25)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _ends(sweep: Sweep, shown: Sequence[Trial]) -> tuple[float, float]:
    """Where the axis of bars begins and where the longest ends.

    It begins at 0; just below the bars where they are nearly as long as each other, or where some are below 0.
    """
    heights = [_height(sweep, one) for one in shown if one.score is not None and one.failure is None]
    low, high = (min(heights), max(heights)) if heights else (0.0, 1.0)
    margin = 0.25 * (high - low) or 0.1 * abs(high) or 1.0
    if low < 0:
        return low - margin, high
    return max(low - margin, 0.0) if low > 0.6 * high else 0.0, high


def _draw_bar(axes: Axes, sweep: Sweep, place: int, trial: Trial, start: float) -> None:
    """A bar with its number behind it; pale, with its rounds, where the candidate was stopped."""
    finished, width, error = trial.status == "finished", _height(sweep, trial), _error(sweep, trial)
    axes.barh(
        place,
        width - start,
        left=start,
        xerr=error,
        height=0.7,
        color=_colour(sweep, trial),
        alpha=1 if finished else 0.45,
        ecolor="#333333",
        capsize=2,
    )
    note = scored(sweep, trial) + ("" if finished else f", {trial.rounds} rounds")
    axes.annotate(note, (width + (error or 0), place), (4, 0), textcoords="offset points", va="center", fontsize=9)
