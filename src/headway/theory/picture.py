"""The picture of bounds: panels side by side, from the same curves as bounds.csv."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headway.report.figures import COLOURS, blank, save, tidy
from headway.theory.result import Bounds, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(bounds: Bounds, path: Path) -> Path:
    """All panels of some bounds as PNG or SVG, by the name of the file."""
    import matplotlib

    with matplotlib.rc_context({"font.size": 11, "svg.hashsalt": "headway"}):
        width = max(5.6 * len(bounds.panels), 7.0)
        figure = blank(width, 5.4)
        every = figure.subplots(1, len(bounds.panels), squeeze=False)[0]
        for axes, panel in zip(every, bounds.panels, strict=True):
            _draw(axes, panel)
        title = textwrap.fill(f"{bounds.method} · {bounds.problem}", int(11 * width))
        figure.suptitle(f"{title}\nconstants {bounds.origin}", fontsize=11)
        return save(figure, path)


def _draw(axes: Axes, panel: Panel) -> None:
    drawn = False
    for curve in panel.curves:
        fits = np.isfinite(curve.y) & (curve.y > 0)
        colour, dashes = COLOURS[curve.colour % len(COLOURS)], "--" if curve.dashed else "-"
        if len(curve.x) == 1:
            axes.axhline(float(curve.y[0]), label=curve.name, linewidth=1.6, color=colour, linestyle=dashes)
        elif fits.any():
            axes.plot(curve.x[fits], curve.y[fits], label=curve.name, linewidth=1.8, color=colour, linestyle=dashes)
        drawn = drawn or bool(fits.any())
    if drawn:
        axes.set_yscale("log")
    if panel.log_x:
        axes.set_xscale("log")
    axes.set_title(panel.title, fontsize=11)
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    axes.legend(frameon=False, fontsize=9, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    tidy(axes)
