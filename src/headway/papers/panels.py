"""What the kinds of pictures share: panels, one legend for all, and marks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from headway.papers.measures import heading
from headway.papers.shown import Shown
from headway.papers.table import Entry
from headway.report.figures import tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ACROSS = 3
"""Panels side by side."""
ACCURACY, LOSS = "test accuracy, %", "global loss"
PUBLISHED = "○ published"
RED, GREY = "#cc3311", "#777777"


def grid(figure: Figure, names: Sequence[str], high: float = 3.6, wide: float = 4.4, least: float = 7.0) -> list[Axes]:
    """A panel for each name, at most three side by side."""
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
    """One for all panels, at the right, each name once."""
    found: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    size = 9 if len(found) <= 10 else 8
    figure.legend(list(found.values()), list(found), frameon=False, loc="outside right upper", fontsize=size)


def seeds_in_words(shown: Shown, spread: str = " ± one deviation") -> list[str]:
    most = max(len(cell.runs) for cell in shown.plan.cells)
    return [f"mean of {most} seeds{spread}"] if most > 1 else []


def axis(measures: Iterable[str]) -> str:
    """What a vertical axis with these measures says."""
    words = {"accuracy": ACCURACY, "top_accuracy": f"highest {ACCURACY}", "global_loss": LOSS}
    kinds = {words.get(name.split("@")[0], heading(name)) for name in measures}
    return ", ".join(sorted(kinds))


def ring(axes: Axes, shown: Shown, place: float, entry: Entry, colour: str) -> bool:
    """The published value of an entry."""
    printed = entry.published
    if shown.plan.scale != "full" or printed is None or printed.value is None or printed.bound:
        return False
    axes.plot([place], [printed.value], "o", color=colour, markerfacecolor="white", markersize=7, zorder=4)
    return True


def aside(axes: Axes, at: float, words: str) -> None:
    """In place of a bar."""
    axes.annotate(words, (at, 0), (0, 4), textcoords="offset points", rotation=90, ha="center", va="bottom", color=GREY)
