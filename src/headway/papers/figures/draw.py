"""Draws an item's figures and writes them: each kind with its title and a note on what is drawn and what is missing."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from headway.papers.figures.cells import FigureData
from headway.papers.figures.curves import curves, deviation, iterations
from headway.papers.figures.inside import local_models
from headway.papers.figures.language import tokens
from headway.papers.figures.layout import RED
from headway.papers.figures.sweeps import bars, crossings, heat, sweep
from headway.papers.plan import TINY, Plan
from headway.papers.reproduce import Outcomes
from headway.papers.table import title
from headway.report.figures import blank, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS: dict[str, Callable[[Figure, FigureData], list[str]]] = {
    "curves": curves,
    "iterations": iterations,
    "tokens": tokens,
    "crossings": crossings,
    "deviation": deviation,
    "sweep": sweep,
    "heat": heat,
    "bars": bars,
    "local-models": local_models,
}
"""Each fills an empty figure and returns what its marks mean, in words. `preset_checks` has what each kind needs."""


def draw_figure(plan: Plan, outcomes: Outcomes, kind: str) -> Figure:
    """One kind of figure of an item, with its title, and below it what is drawn, what is missing, and the paper."""
    data = FigureData(plan, outcomes)
    figure = blank(7, 5)
    meaning = "; ".join(KINDS[kind](figure, data))
    scaled = plan.scale == "tiny"
    width = figure.get_figwidth()
    colour = RED if scaled else "black"
    figure.suptitle(_wrapped(title(plan), (width - 2.5) * 11), fontsize=11, color=colour, x=0.01, ha="left")
    lines = [meaning, *data.gap_notes(), TINY if scaled else "", f"paper: {plan.preset.source}"]
    note = "\n".join(_wrapped(text, width * 15) for text in lines if text)
    figure.supxlabel(note, fontsize=8, x=0.01, ha="left", color="#555555")
    return figure


def _wrapped(text: str, width: float) -> str:
    return textwrap.fill(text, int(width))


def write_figures(plan: Plan, outcomes: Outcomes, folder: Path) -> list[Path]:
    """Write figure.png or, where an item is drawn in several ways, figure-KIND.png for each; returns their paths."""
    kinds = plan.preset.figures
    return [
        save(draw_figure(plan, outcomes, kind), folder / ("figure.png" if len(kinds) == 1 else f"figure-{kind}.png"))
        for kind in kinds
    ]
