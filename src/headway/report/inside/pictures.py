"""Pictures of an analysis: the loss surface, the ways, similarity, divergence, accuracies and curvature."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headway.analysis.inside import Analysis
from headway.errors import UserError
from headway.report.figures import COLOURS, blank, save, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEVELS = 14
"""Contours of a loss surface."""
_MARKS = {"θ": "o", "φ": "s", "mean": "D", "θ next": "P"}
_MAP = "GnBu"


def draw_surface(axes: Axes, found: Analysis, lowest: float | None = None, highest: float | None = None) -> None:
    """Contours of the loss on the plane of three local models; filled marks lie on it, open ones are projections."""
    plane = found.surface
    assert plane is not None
    finite = plane.loss[np.isfinite(plane.loss)]
    low = float(finite.min()) if lowest is None else lowest
    high = float(np.quantile(finite, 0.95)) if highest is None else highest
    levels = np.linspace(low, max(high, low + 1e-9), LEVELS)
    shown = np.where(np.isfinite(plane.loss), plane.loss, levels[-1])
    filled = axes.contourf(plane.a, plane.b, shown, levels=levels, cmap="viridis", alpha=0.85, extend="max")
    axes.contour(plane.a, plane.b, shown, levels=levels, colors="#333333", linewidths=0.4)
    colours = iter(COLOURS)
    for name, (a, b, away, loss) in plane.points.items():
        on = name.startswith("client")
        colour = next(colours) if on else "#333333"
        axes.plot(
            a, b, _MARKS.get(name, "^"), markersize=9, color=colour if on else "#fdfdfd", markeredgecolor="#222222",
            label=f"{name}: {loss:.3f}" if on else f"{name}: {loss:.3f} ({away:.2g} away)",
        )  # fmt: skip
    figure = axes.get_figure()
    assert figure is not None
    figure.colorbar(filled, ax=axes, label="loss on held-out samples", shrink=0.8)
    axes.set_aspect("equal")
    axes.set_xlabel("distance from the first of the three")
    axes.set_ylabel("distance from the line of the first two")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2, fontsize=8, frameon=False)


def draw_paths(axes: Axes, found: Analysis) -> None:
    """The loss along θ → φ → θ_i, a line for each client."""
    for number, (name, way) in enumerate(found.paths.items()):
        axes.plot(way.distance, way.loss, color=COLOURS[number % len(COLOURS)], label=name)
    received = next(iter(found.paths.values())).received
    if received:
        axes.axvline(received, color="#888888", linestyle=":", linewidth=1.2, label="φ")
    axes.set_xlabel("distance from θ, by way of φ" if received else "distance from θ, which is φ")
    axes.set_ylabel("loss on held-out samples")
    axes.legend(fontsize=8, frameon=False)
    tidy(axes)


def draw_similarity(axes: Axes, found: Analysis) -> None:
    """CKA by layer: of two local models, and of a local model with the server's."""
    layers, names = list(found.similarity), list(found.compared)
    server, own = names.index("θ"), [names.index(name) for name in found.names]
    lines: dict[str, list[np.ndarray]] = {}
    if len(own) > 1:
        lines["two local models"] = [found.pairs(found.similarity[layer], names) for layer in layers]
    lines["local model and θ"] = [found.similarity[layer][own, server] for layer in layers]
    places = np.arange(len(layers))
    for number, (label, values) in enumerate(lines.items()):
        middle = [float(one.mean()) for one in values]
        axes.plot(places, middle, "o-", markersize=4, color=COLOURS[number], label=label)
        low, high = [float(one.min()) for one in values], [float(one.max()) for one in values]
        axes.fill_between(places, low, high, color=COLOURS[number], alpha=0.15, linewidth=0)
    _name_layers(axes, layers)
    axes.set_ylabel("linear CKA: mean, least to most")
    axes.legend(fontsize=8, frameon=False)
    tidy(axes)


def _name_layers(axes: Axes, layers: Sequence[str]) -> None:
    """Layers below the axis; of many, every second, third, …"""
    step = -(-len(layers) // 20)
    places = np.arange(len(layers))[::step]
    axes.set_xticks(places, [layers[at] for at in places], rotation=90, fontsize=7)


def draw_divergence(axes: Axes, found: Analysis) -> None:
    """Weight divergence from the mean of the local models, by parameter."""
    layers = list(found.divergence)
    values = [found.divergence[layer] for layer in layers]
    places, middle = np.arange(len(layers)), np.array([float(one.mean()) for one in values])
    reach = np.array([[float(one.mean() - one.min()), float(one.max() - one.mean())] for one in values]).T
    axes.bar(places, middle, color=COLOURS[0], width=0.7)
    axes.errorbar(places, middle, yerr=reach, fmt="none", ecolor="#888888", linewidth=1, capsize=2)
    _name_layers(axes, layers)
    axes.set_ylabel("‖θ_i − mean‖ / ‖mean‖: mean, least to most")
    tidy(axes)


def draw_map(axes: Axes, values: np.ndarray, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Accuracies in percent as a map, with the numbers in it where there is room."""
    from matplotlib import colormaps

    few = colormaps[_MAP].resampled(20)  # few enough that no part becomes an image, which the page would not show
    places = [np.arange(length + 1) - 0.5 for length in reversed(values.shape)]
    image = axes.pcolormesh(*places, values * 100, cmap=few, vmin=0, vmax=100)
    axes.invert_yaxis()
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    step = -(-len(columns) // 30)
    axes.set_xticks(range(0, len(columns), step), columns[::step], fontsize=8, rotation=90 if len(columns) > 12 else 0)
    if values.size <= 250:
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                colour = "#fdfdfd" if value > 0.6 else "#222222"
                axes.text(column, row, f"{value * 100:.0f}", ha="center", va="center", fontsize=7, color=colour)
    figure = axes.get_figure()
    assert figure is not None
    figure.colorbar(image, ax=axes, label="accuracy, %")


def _classes(axes: Axes, found: Analysis) -> None:
    """Which classes each model knows."""
    assert found.by_class is not None
    draw_map(axes, found.by_class, found.points, [str(number) for number in range(found.by_class.shape[1])])
    axes.set_xlabel("class of held-out samples")


def _clients(axes: Axes, found: Analysis) -> None:
    """Whose samples each model knows."""
    assert found.by_client is not None
    draw_map(axes, found.by_client, found.points, [str(one) for one in found.clients])
    axes.set_xlabel("client whose training samples are judged")


def _curvature(axes: Axes, found: Analysis) -> None:
    """The largest eigenvalues of the Hessian."""
    for number, (name, values) in enumerate(found.eigenvalues.items()):
        axes.plot(range(1, len(values) + 1), values, "o-", color=COLOURS[number], label=name)
    axes.set_xticks(range(1, max(map(len, found.eigenvalues.values())) + 1))
    axes.set_xlabel("eigenvalue, from the largest")
    axes.set_ylabel("of the loss's Hessian")
    axes.legend(fontsize=8, frameon=False)
    tidy(axes)


def _on_one(draw: Callable[[Axes, Analysis], None]) -> Callable[[Figure, Analysis], None]:
    return lambda figure, found: draw(figure.subplots(), found)


def pictures(found: Analysis) -> dict[str, Figure]:
    """Every picture of what was measured, by the name of its file."""
    wanted: dict[str, tuple[bool, tuple[float, float], Callable[[Figure, Analysis], None]]] = {
        "surface": (found.surface is not None, (6.4, 6.2), _on_one(draw_surface)),
        "path": (bool(found.paths), (6.4, 4.2), _on_one(draw_paths)),
        "similarity": (bool(found.similarity), (6.4, 4.6), _on_one(draw_similarity)),
        "divergence": (True, (6.4, 4.6), _on_one(draw_divergence)),
        "eigenvalues": (any(found.eigenvalues.values()), (6.4, 4.2), _on_one(_curvature)),
        "classes": (found.by_class is not None, (6.4, 0.32 * len(found.points) + 1.6), _on_one(_classes)),
        "clients": (found.by_client is not None, (6.4, 0.32 * len(found.points) + 1.6), _on_one(_clients)),
    }
    drawn = {}
    for name, (there, size, draw) in wanted.items():
        if there:
            figure = blank(*size)
            draw(figure, found)
            drawn[name] = figure
    return drawn


def save_all(found: Analysis, folder: Path) -> list[Path]:
    """Every picture as PNG and as SVG."""
    files = []
    for name, figure in pictures(found).items():
        files += [save(figure, folder / f"{name}.png"), save(figure, folder / f"{name}.svg")]
    return files


def as_svg(figure: Figure, salt: str) -> str:
    """A picture as an element of a page: text stays text, and what is black takes the page's colour."""
    from matplotlib import rc_context

    out = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": salt}):
        try:
            figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
        except (OSError, ValueError) as fault:
            raise UserError(f"a picture of {salt} cannot be drawn: {fault}") from None
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<style[^>]*>.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r'^<svg [^>]*?viewBox="([^"]*)"[^>]*>', r'<svg class="picture" viewBox="\1" role="img">', text)
    return text.replace("#000000", "currentColor")
