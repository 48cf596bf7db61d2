"""What all kinds of figures share: panels, one legend for all of them, axis labels, and marks for published numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headway.papers.figures.cells import FigureData
from headway.papers.measurements import heading
from headway.papers.table import Entry
from headway.report.figures import tidy

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ACROSS = 3
"""How many panels stand side by side."""
ACCURACY, LOSS = "test accuracy, %", "global loss"
PUBLISHED = "○ published"
RED, GREY = "#cc3311", "#777777"


def panels(
    figure: Figure, names: Sequence[str], high: float = 3.6, wide: float = 4.4, least: float = 7.0
) -> list[Axes]:
    """A panel for each name, at most three side by side, each `wide` × `high` inches; the figure is resized."""
    across = min(len(names), _ACROSS)
    down = -(-len(names) // across)
    figure.set_size_inches(max(across * wide + 1.6, least), down * high + 1.2)
    every: list[Axes] = list(figure.subplots(down, across, squeeze=False).flat)
    for axes in every[len(names) :]:
        figure.delaxes(axes)
    for axes, name in zip(every, names, strict=False):
        axes.set_title(name, fontsize=10)
        tidy(axes)
    return every[: len(names)]


def legend(figure: Figure) -> None:
    """One legend for all panels, at the right; each name appears once."""
    found: dict[str, Artist] = {}
    for axes in figure.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    size = 9 if len(found) <= 10 else 8
    figure.legend(list(found.values()), list(found), frameon=False, loc="outside right upper", fontsize=size)


def seeds_note(data: FigureData, spread: str = " ± one deviation") -> list[str]:
    """`mean of 3 seeds ± one deviation`; nothing where each cell has one seed."""
    most = max(len(cell.runs) for cell in data.plan.cells)
    return [f"mean of {most} seeds{spread}"] if most > 1 else []


def axis_label(measures: Iterable[str]) -> str:
    """The label of a vertical axis on which these measures are drawn."""
    words = {"accuracy": ACCURACY, "top_accuracy": f"highest {ACCURACY}", "global_loss": LOSS}
    kinds = {words.get(name.split("@")[0], heading(name)) for name in measures}
    return ", ".join(sorted(kinds))


def draw_published(axes: Axes, data: FigureData, place: float, entry: Entry, colour: str) -> bool:
    """Draw the published value of an entry as a ring; False where there is none that can be compared."""
    printed = entry.published
    if data.plan.scale != "full" or printed is None or printed.value is None or printed.bound:
        return False
    axes.plot([place], [printed.value], "o", color=colour, markerfacecolor="white", markersize=7, zorder=4)
    return True


def write_upright(axes: Axes, at: float, words: str) -> None:
    """Words from the bottom upwards, where a bar would stand if there were a number for it."""
    axes.annotate(words, (at, 0), (0, 4), textcoords="offset points", rotation=90, ha="center", va="bottom", color=GREY)
