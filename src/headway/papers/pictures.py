"""The pictures of a reproduced item: what its runs gave, drawn as the paper draws it, beside what it prints."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from headway.papers.over_rounds import curves, deviation, iterations
from headway.papers.over_settings import bars, crossings, heat, sweep
from headway.papers.panels import RED
from headway.papers.plan import TINY, Plan
from headway.papers.reproduce import Outcomes
from headway.papers.shown import Shown
from headway.papers.table import title
from headway.report.figures import blank, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS: dict[str, Callable[[Figure, Shown], list[str]]] = {
    "curves": curves,
    "iterations": iterations,
    "crossings": crossings,
    "deviation": deviation,
    "sweep": sweep,
    "heat": heat,
    "bars": bars,
}


def drawn(plan: Plan, outcomes: Outcomes, kind: str) -> Figure:
    """One kind of picture with its title and a note: what is drawn, what is missing, and from which paper it is."""
    shown = Shown(plan, outcomes)
    figure = blank(7, 5)
    meaning = "; ".join(KINDS[kind](figure, shown))
    scaled = plan.scale == "tiny"
    width = figure.get_figwidth()
    colour = RED if scaled else "black"
    figure.suptitle(_wrapped(title(plan), (width - 2.5) * 11), fontsize=11, color=colour, x=0.01, ha="left")
    lines = [meaning, *shown.gaps(), TINY if scaled else "", f"paper: {plan.preset.source}"]
    note = "\n".join(_wrapped(text, width * 15) for text in lines if text)
    figure.supxlabel(note, fontsize=8, x=0.01, ha="left", color="#555555")
    return figure


def _wrapped(text: str, width: float) -> str:
    return textwrap.fill(text, int(width))


def pictures(plan: Plan, outcomes: Outcomes, folder: Path) -> list[Path]:
    """figure.png or, where an item is drawn in several ways, figure-KIND.png for each."""
    kinds = plan.preset.figures
    return [
        save(drawn(plan, outcomes, kind), folder / ("figure.png" if len(kinds) == 1 else f"figure-{kind}.png"))
        for kind in kinds
    ]
