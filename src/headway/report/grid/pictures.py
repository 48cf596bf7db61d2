"""Two pictures of a grid: small multiples with one scale, and a heat map of the headline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headway.report.figures import blank, line, save, tidy
from headway.report.grid.cells import curves, heat, lead, limits, methods, places
from headway.runs.grid import Grid, label

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def small_multiples(grid: Grid, path: Path) -> Path:
    """Write the panels of all scenarios."""
    return save(multiples_figure(grid), path)


def multiples_figure(grid: Grid) -> Figure:
    """A panel for each scenario, the last setting across; all panels have one scale, all methods one colour."""
    import matplotlib

    first, (down, across), names = lead(grid), places(grid), methods(grid)
    drawn = [curves(cell, first) for cell in grid.cells]
    last, low, high = limits(drawn)
    with matplotlib.rc_context({"font.size": 9}):
        figure = blank(max(3.2 * across, 5.0), max(2.3 * down, 2.6) + 0.5)
        panels = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
        for number, (cell, panel) in enumerate(zip(grid.cells, drawn, strict=True)):
            axes = panels[number // across][number % across]
            for name, one in panel.items():
                style = line(names.index(name))
                axes.plot(one.rounds, one.mean, linewidth=1.6, label=name, **style)
                if one.std is not None:
                    low_edge, high_edge = one.mean - one.std, one.mean + one.std
                    axes.fill_between(one.rounds, low_edge, high_edge, color=style["color"], alpha=0.15, linewidth=0)
            axes.set_title("\n".join(f"{name}={value}" for name, value in cell.settings.items()), fontsize=9)
            if not panel:
                axes.text(0.5, 0.5, "no run", transform=axes.transAxes, ha="center")
            tidy(axes)
        panels[0][0].set_xlim(0, last)
        panels[0][0].set_ylim(low, high)
        figure.supxlabel("communication round", fontsize=10)
        figure.supylabel(f"{first.words.removesuffix(' %')}{', %' if first.percent else ''}", fontsize=10)
        known = {
            text: handle
            for row in panels
            for axes in row
            for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.legend(known.values(), known.keys(), loc="outside upper center", ncols=min(len(known), 6), frameon=False)
        return figure


def heat_map(grid: Grid, path: Path) -> Path:
    """Methods down, scenarios across; the colour says how good a method is among those of its scenario."""
    import matplotlib

    names, content = methods(grid), heat(grid)
    shares = np.array([[np.nan if share is None else share for _, share in row] for row in content])
    with matplotlib.rc_context({"font.size": 9}):
        figure = blank(2.2 + 1.35 * len(grid.cells), 1.5 + 0.42 * len(names))
        axes = figure.subplots()
        axes.imshow(shares, cmap="Blues", vmin=-0.15, vmax=1.6, aspect="auto")
        for row, cells in enumerate(content):
            for column, (text, share) in enumerate(cells):
                weight = "bold" if share == 1 and len(names) > 1 else "normal"
                axes.text(column, row, text, ha="center", va="center", fontweight=weight)
        axes.set_yticks(range(len(names)), names)
        labels = [label(cell.settings).replace(", ", "\n") for cell in grid.cells]
        axes.set_xticks(range(len(labels)), labels)
        axes.tick_params(length=0, labeltop=True, labelbottom=False)
        axes.spines[:].set_visible(False)
        axes.set_xlabel(f"{lead(grid).words}; bold and dark: the best of a scenario")
        return save(figure, path)
