"""`local-models`: the loss surface of three local models of each method, and how near and alike they are by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from headway.papers.figures.cells import FigureData
from headway.papers.local_models import analyses
from headway.report.figures import line, tidy
from headway.report.inside.pictures import draw_surface

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headway.analysis.inside import Analysis

HIGHEST = 0.9
"""Contours end where this share of all drawn losses lies below."""


def _levels(found: Iterable[Analysis]) -> tuple[float | None, float | None]:
    """The lowest level of all surfaces, and the highest that is worth a colour."""
    losses = [one.surface.loss for one in found if one.surface is not None]
    finite = [loss[np.isfinite(loss)] for loss in losses]
    highest = float(np.quantile(np.concatenate(finite), HIGHEST)) if finite else None
    return min((float(loss.min()) for loss in finite), default=None), highest


def local_models(figure: Figure, data: FigureData) -> list[str]:
    """Surfaces above, with the same levels for all methods; below, similarity and divergence by layer, and the way."""
    found = analyses(data.plan, data.outcomes)
    if not found:
        figure.subplots().set_axis_off()
        return ["no run kept a state to look into; run the item without --from"]
    across = max(len(found), 3)
    figure.set_size_inches(4.9 * across, 10.4)
    every = figure.subplots(2, across, squeeze=False)
    above, below = list(every[0]), list(every[1])
    lowest, highest = _levels(found.values())
    for axes, (name, one) in zip(above, found.items(), strict=False):
        axes.set_title(f"{name}, round {one.round}", fontsize=10)
        if one.surface is None:
            axes.text(0.5, 0.5, "fewer than three local models", ha="center", transform=axes.transAxes)
        else:
            draw_surface(axes, one, lowest, highest)
    for axes in above[len(found) :]:
        axes.set_axis_off()
    _by_layer(below[0], found, "CKA of two local models", _alike)
    _by_layer(below[1], found, "‖θ_i − mean‖ / ‖mean‖", _divergence)
    _ways(below[2], found)
    for axes in below[3:]:
        axes.set_axis_off()
    return ["one round of one seed", "open marks are projected onto the plane", "lines: means over local models"]


def _alike(one: Analysis) -> list[float]:
    return [float(one.pairs(matrix, one.compared).mean()) for matrix in one.similarity.values()]


def _divergence(one: Analysis) -> list[float]:
    """Of the weights that have two axes or more: those of the layers that CKA compares."""
    rows = one.divergence.items()
    return [float(values.mean()) for name, values in rows if name.removesuffix(".weight") in one.similarity]


def _by_layer(
    axes: Axes, found: dict[str, Analysis], label: str, values: Callable[[Analysis], Sequence[float]]
) -> None:
    """A line for each method over the layers, from the input on."""
    from matplotlib.ticker import MaxNLocator

    for number, (name, one) in enumerate(found.items()):
        drawn = values(one)
        axes.plot(range(1, len(drawn) + 1), drawn, marker="o", markersize=3, label=name, **line(number))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("layer, from the input")
    axes.set_ylabel(label)
    axes.legend(frameon=False, fontsize=8)
    tidy(axes)


def _ways(axes: Axes, found: dict[str, Analysis]) -> None:
    """The loss along θ → φ → θ_i, a line for each local model, in the colour of its method."""
    for number, (name, one) in enumerate(found.items()):
        for at, way in enumerate(one.paths.values()):
            axes.plot(way.distance, way.loss, alpha=0.8, linewidth=1, label=name if at == 0 else None, **line(number))
    axes.set_xlabel("distance from θ, by way of φ")
    axes.set_ylabel("loss on held-out samples")
    axes.legend(frameon=False, fontsize=8)
    tidy(axes)
