"""The picture of measured against printed: a point for each number, the diagonal, and bands beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headway.errors import UserError
from headway.papers.board.cells import BoardCell, Family
from headway.report.figures import COLOURS, blank, save, shrunk, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_Cells = Sequence[BoardCell]
_WORDS: dict[Family, str] = {"accuracy": "accuracy, %", "rounds": "rounds to a target"}
_BANDS: dict[Family, tuple[float, float]] = {"accuracy": (1.0, 3.0), "rounds": (0.1, 0.3)}
"""Half the widths of the two bands: percentage points for accuracies, shares for rounds."""


def drawable(cells: _Cells) -> dict[Family, _Cells]:
    """The cells with two numbers at full scale, neither of them a bound, by panel."""
    known = [one for one in cells if _is_comparable(one)]
    families: dict[Family, _Cells] = {name: [one for one in known if one["family"] == name] for name in _WORDS}
    return {name: some for name, some in families.items() if some}


def _is_comparable(one: BoardCell) -> bool:
    has_both = one["measured"] is not None and one["published"] is not None
    return has_both and not one["published_is_bound"] and one["scale"] == "full"


def drawn(cells: _Cells) -> Figure | None:
    """The picture with a panel for each family; None where there is no cell to draw."""
    families = drawable(cells)
    if not families:
        return None
    papers = list(dict.fromkeys(one["paper"] for one in cells))
    figure = blank(5.2 * len(families), 5)
    for axes, (name, some) in zip(np.ravel(figure.subplots(1, len(families))), families.items(), strict=True):
        _panel(axes, name, some, papers)
    marked = any(one["draw"] or one["form"] for some in families.values() for one in some)
    hollow = "; hollow: another split, other cohorts or another form of the method" if marked else ""
    figure.suptitle("Headway beside the papers: a point for each printed number", fontsize=11, x=0.01, ha="left")
    note = f"bands: ±1 and ±3 points, ±10 and ±30 %{hollow}; lines: ± one deviation over seeds"
    figure.supxlabel(note, fontsize=8, x=0.01, ha="left", color="#555555")
    return figure


def _panel(axes: Axes, name: Family, some: _Cells, papers: Sequence[str]) -> None:
    """One family of numbers: the bands, the points of each paper in one colour, and the axes."""
    values = [value for one in some for value in (one["measured"], one["published"]) if value is not None]
    low, high = _ends(min(values), max(values), name == "rounds")
    _draw_bands(axes, name, low, high)
    for number, paper in enumerate(papers):
        own = [one for one in some if one["paper"] == paper]
        if own:
            _draw_points(axes, own, COLOURS[number % len(COLOURS)], f"{paper} ({len(own)})")
    if name == "rounds":
        _logarithmic(axes)
    axes.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    axes.set(xlabel=f"printed {_WORDS[name]}", ylabel=f"measured {_WORDS[name]}")
    axes.legend(frameon=False, loc="upper left", fontsize=9)
    tidy(axes)


def _draw_bands(axes: Axes, name: Family, low: float, high: float) -> None:
    """The diagonal, where measured is as printed, and the two bands on both sides of it."""
    line = np.geomspace(low, high) if name == "rounds" else np.linspace(low, high)
    for band in _BANDS[name]:
        lower, upper = (line * (1 - band), line * (1 + band)) if name == "rounds" else (line - band, line + band)
        axes.fill_between(line, lower, upper, color="#4477aa", alpha=0.09, linewidth=0)
    axes.plot(line, line, color="#888888", linewidth=1)


def _draw_points(axes: Axes, cells: _Cells, colour: str, label: str) -> None:
    for one in cells:
        _point(axes, one, colour)
    axes.plot([], [], "o", color=colour, label=label)


def _logarithmic(axes: Axes) -> None:
    """Make both axes logarithmic, with plain numbers on them."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set(xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 3, 5, 7)))
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(NullFormatter())


def _point(axes: Axes, one: BoardCell, colour: str) -> None:
    """One number, with ± one deviation; hollow where its runs are not as the item asks for."""
    filled = "white" if one["draw"] or one["form"] else colour
    printed, measured = one["published"], one["measured"]
    assert printed is not None
    assert measured is not None, "cells without a number are not drawable"
    axes.errorbar(
        printed,
        measured,
        one["std"],
        fmt="o",
        elinewidth=1,
        ecolor=colour,
        markersize=5.5,
        markeredgecolor=colour,
        markerfacecolor=filled,
    )


def _ends(low: float, high: float, logarithmic: bool) -> tuple[float, float]:
    """The ends of both axes for numbers from `low` to `high`."""
    if logarithmic:
        return low / 1.15, high * 1.15
    room = 0.05 * (high - low) or 1.0
    return max(low - room, 0), min(high + room, 100)


def pictures(cells: _Cells, folder: Path) -> list[Path]:
    """Write board.png and board.svg; the same cells give the same bytes. Empty where there is no cell to draw."""
    import matplotlib

    figure = drawn(cells)
    if figure is None:
        return []
    path = folder / "board.svg"
    with matplotlib.rc_context({"svg.hashsalt": "board", "svg.fonttype": "path"}):
        try:
            figure.savefig(path, metadata={"Date": None})
        except OSError as fault:
            raise UserError(f"the picture '{path}' cannot be written: {fault.strerror or fault}") from None
    return [shrunk(save(figure, folder / "board.png")), path]
