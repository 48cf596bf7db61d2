"""Which client has how many samples of which class, as bubbles (GradMA, figure 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headway.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg", ".pdf")
CLIENTS_AT_MOST = 1000
"""The most clients that are drawn: where there are more, they are evenly spaced by id."""

_COLOUR = "#4477aa"
_WIDTH, _HEIGHT = 930.0, 760.0
"""Points for the cells of a picture; it is higher where cells would become too small."""
_LEAST, _MOST = 3.0, 28.0
"""Points from one cell to the next."""
_BETWEEN = 30.0
"""Points between two rows of clients."""
_STEPS = (1, 2, 5, 10, 20, 50, 100)
_DOT = 1.5
"""Least area of a bubble in points²: one sample beside thousands is still to be seen."""


def check_path(path: Path) -> None:
    """Refuses a picture that could not be written, before any work is done."""
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"the picture '{path}' must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    if not path.parent.is_dir():
        raise UserError(f"the picture '{path}' cannot be written: there is no folder {path.parent}")


@dataclass(frozen=True)
class Grid:
    """Clients from left to right in one row or several, classes upwards; lengths in points."""

    in_row: int
    rows: int
    across: float
    """From one client to the next."""
    up: float
    """From one class to the next."""

    @property
    def cell(self) -> float:
        return min(self.across, self.up)


def _grid(clients: int, classes: int) -> Grid:
    """The one with the largest cells among those whose last row is well filled."""

    def grid(rows: int) -> Grid:
        in_row = clients if rows == 1 else -(-clients // rows // 10) * 10
        across = min(_MOST, _WIDTH / in_row)
        up = max(min(_MOST, (_HEIGHT / rows - _BETWEEN) / classes, 1.5 * across), _LEAST)
        return Grid(in_row, rows, min(across, 2 * up), up)

    def fits(grid: Grid) -> bool:
        last = clients - (grid.rows - 1) * grid.in_row
        return grid.across >= _LEAST and last >= 0.75 * grid.in_row

    return max(filter(fits, map(grid, range(1, 25))), key=lambda grid: (grid.cell, -grid.rows))


def _area(counts: np.ndarray, cell: float) -> float:
    """Points² of one sample's bubble: most just touch, and the largest covers no more than its neighbours' halves."""
    common, largest = np.quantile(counts[counts > 0], 0.95), counts.max()
    return float(min(cell**2 / common, (2 * cell) ** 2 / largest))


def _step(pitch: float, apart: float) -> int:
    """1, 2, 5, 10, 20, …: the first with which marks are at least `apart` points from one to the next."""
    return next(step for step in _STEPS if step * pitch >= apart)


def _draw_row(axes: Axes, counts: np.ndarray, start: int, grid: Grid, area: float) -> None:
    """One row of clients: those from `start` on."""
    client, label = np.nonzero(counts[start : start + grid.in_row])
    sizes = np.maximum(counts[client + start, label] * area, _DOT)
    order = np.argsort(-sizes, kind="stable")  # small ones in front
    axes.scatter(
        client[order] + start,
        label[order],
        s=sizes[order],
        color=_COLOUR,
        alpha=0.85,
        edgecolors="white",
        linewidths=np.where(sizes[order] > 12, 0.4, 0.0).tolist(),
        rasterized=len(sizes) > 5000,
        clip_on=False,
    )
    axes.set_xlim(start - 0.8, start + grid.in_row - 0.2)
    axes.set_ylim(-0.8, counts.shape[1] - 0.2)


def _mark(axes: Axes, ids: np.ndarray, names: Sequence[str], start: int, grid: Grid) -> None:
    """Ids below, classes at the left, faint lines to follow."""
    step = _step(grid.across, 26)
    places = [place for place in range(start, min(start + grid.in_row, len(ids))) if place % step == 0]
    axes.set_xticks(places, [str(ids[place]) for place in places])
    labels = list(range(0, len(names), _step(grid.up, 9)))
    axes.set_yticks(labels, [names[label] for label in labels], parse_math=False)
    axes.grid(alpha=0.25, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.tick_params(length=2, labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _legend(largest: int, area: float) -> list[tuple[int, float]]:
    """A few round numbers of samples, the first near the largest, and how wide their bubbles are."""
    digits = 10 ** (len(str(largest)) - 1)
    numbers = sorted({max(largest // digits * digits // part, 1) for part in (1, 5, 25)}, reverse=True)
    return [(number, max(number * area, _DOT) ** 0.5) for number in numbers]


def _explain(axes: Axes, legend: list[tuple[int, float]]) -> None:
    """The legend's bubbles below each other; the units of `axes` are points, downwards."""
    axes.text(0, 0, "samples", va="top", fontsize=9)
    y = 16.0
    for number, across in legend:
        y += max(across, 11) / 2
        axes.scatter([legend[0][1] / 2], [y], s=[across**2], color=_COLOUR, alpha=0.85, linewidths=0, clip_on=False)
        axes.text(legend[0][1] + 6, y, f"{number:,}", va="center", fontsize=9)
        y += max(across, 11) / 2 + 3
    axes.set_axis_off()


def class_labels(names: Sequence[str], classes: int) -> list[str]:
    """Classes by name or, where names are missing or too long to fit, by number; a space as one can see it."""
    if classes == 1:
        return ["all"]
    if not names or (classes > 30 and max(map(len, names)) > 1):
        return [str(label) for label in range(classes)]
    return [repr(name)[1:-1].replace(" ", "␣") if len(name) == 1 else f"{name:.14}" for name in names]


def draw_split(counts: np.ndarray, class_names: Sequence[str], title: str, path: Path) -> Path:
    """Draw clients × classes: a bubble for each pair, with an area ∝ samples. Many clients go in several rows.

    `counts` has shape (clients, classes).
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    ids = np.unique(np.linspace(0, len(counts) - 1, min(len(counts), CLIENTS_AT_MOST)).astype(int))
    if len(ids) < len(counts):
        title += f" ({len(ids):,} shown)"
    shown, names = counts[ids], class_labels(class_names, counts.shape[1])
    grid = _grid(*shown.shape)
    area = _area(shown, grid.cell)
    wide, high = grid.in_row * grid.across, shown.shape[1] * grid.up
    legend = _legend(int(shown.max()), area)
    right, below = 60 + legend[0][1], 20 + sum(max(across, 11) + 3 for _, across in legend)
    left, top, bottom = 30 + 4.8 * max(map(len, names)), 40.0, 40.0
    width = left + max(wide + right, 7 * len(title))
    height = top + max(grid.rows * (high + _BETWEEN) - _BETWEEN + bottom, below)
    with matplotlib.rc_context({"font.size": 10, "svg.fonttype": "none"}):
        figure = Figure(figsize=(width / 72, height / 72))
        FigureCanvasAgg(figure)
        for row in range(grid.rows):
            base = height - top - (row + 1) * high - row * _BETWEEN
            axes = figure.add_axes((left / width, base / height, wide / width, high / height))
            _draw_row(axes, shown, row * grid.in_row, grid, area)
            _mark(axes, ids, names, row * grid.in_row, grid)
        axes.set_xlabel("client")
        if len(names) > 1:
            figure.text(8 / width, 1 - (top + high / 2) / height, "class", rotation=90, va="center")
        figure.text(left / width, 1 - 20 / height, title, va="center", fontsize=11, parse_math=False)
        place = (left + wide + 12) / width, 1 - (top + below) / height, (right - 12) / width, below / height
        _explain(figure.add_axes(place, xlim=(0, right - 12), ylim=(below, 0)), legend)
        try:
            figure.savefig(path, dpi=130)
        except OSError as fault:
            raise UserError(f"the picture '{path}' cannot be written: {fault.strerror or fault}") from None
    return path
