"""Draws the methods that are one iteration: `docs/same-as.png`, from the relations that the tests play.

A node is a method, and a line joins two that are the same: whole where that is always so, with the arguments that the
table has, dashed where it needs conditions, dotted where one is the other with a piece after a +.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.optimize import minimize
from scipy.sparse.csgraph import connected_components, shortest_path

from headway.methods.relatives import RELATIONS, Relation
from headway.report.figures import blank

PICTURE = Path(__file__).parents[1] / "same-as.png"
ORANGE, GREY, BLUE = "#cc6611", "#555555", "#3366aa"


def fingerprint() -> str:
    """What the picture's file says of the relations that it was drawn from."""
    return hashlib.sha256(repr(RELATIONS).encode()).hexdigest()[:16]


def _ends(relation: Relation) -> tuple[str, str, str]:
    """The two methods, and the pieces after a + that the other one has."""
    base, *pieces = relation.other.split("+")
    return (
        relation.one.partition(":")[0],
        base.partition(":")[0],
        "".join(f"+{one.partition(':')[0]}" for one in pieces),
    )


def _edges() -> dict[tuple[str, str], tuple[Relation, str]]:
    """One line for each pair of methods: the relation with the fewest conditions."""
    found: dict[tuple[str, str], tuple[Relation, str]] = {}
    for relation in sorted(RELATIONS, key=lambda one: (bool(one.where), "+" in one.other)):
        one, other, pieces = _ends(relation)
        if (other, one) not in found:
            found.setdefault((one, other), (relation, pieces))
    return found


def _places(distances: np.ndarray) -> np.ndarray:
    """Points whose distances are as near as can be to those given: stress, least squares, from a circle."""
    count = len(distances)
    angle = np.linspace(0, 2 * np.pi, count, endpoint=False)
    wanted = distances + np.eye(count)

    def stress(flat: np.ndarray) -> float:
        at = flat.reshape(count, 2)
        apart = np.sqrt(((at[:, None] - at[None]) ** 2).sum(-1) + 1e-9)
        return float((((apart - distances) / wanted) ** 2).sum())

    found = minimize(stress, np.stack([1.6 * np.cos(angle), np.sin(angle)], 1).ravel(), method="L-BFGS-B").x
    at = found.reshape(count, 2)
    at -= at.mean(0)
    return at @ np.linalg.svd(at)[2].T  # the longer side lies flat


def _draw(axes: Axes, names: list[str], at: np.ndarray, edges: dict[tuple[str, str], tuple[Relation, str]]) -> None:
    where = dict(zip(names, at, strict=True))
    for (one, other), (relation, pieces) in edges.items():
        if one not in where:
            continue
        ends = np.stack([where[one], where[other]])
        shifted = relation.iterates != ("θ", "θ")
        style = ":" if pieces else "--" if relation.where else "-"
        axes.plot(*ends.T, style, color=ORANGE if shifted else GREY, linewidth=1.4, zorder=1)
        label = " ".join(filter(None, [pieces, "φ = θ" if shifted else ""]))
        if label:
            axes.text(*ends.mean(0), label, fontsize=7, ha="center", va="center", color=ORANGE if shifted else GREY,
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6}, zorder=2)  # fmt: skip
    for name, place in where.items():
        axes.text(*place, name, fontsize=9, ha="center", va="center", zorder=3,
                  bbox={"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": BLUE})  # fmt: skip
    axes.margins(0.14)
    axes.axis("off")


def picture() -> Figure:
    """All connected groups of methods, the longest chain first."""
    edges = _edges()
    names = sorted({name for pair in edges for name in pair})
    number = {name: at for at, name in enumerate(names)}
    joined = np.zeros((len(names), len(names)))
    for one, other in edges:
        joined[number[one], number[other]] = joined[number[other], number[one]] = 1
    _, group = connected_components(joined)
    groups = [np.flatnonzero(group == one) for one in range(max(group) + 1)]
    groups.sort(
        key=lambda members: -shortest_path(joined[np.ix_(members, members)], unweighted=True).max()
    )  # the long one
    figure = blank(10, 7.6)
    above, below = figure.add_gridspec(2, 1, height_ratios=(1, 1.25))
    left, right = below.subgridspec(1, 2, width_ratios=(2.2, 1))
    beside = right.subgridspec(len(groups) - 2, 1)
    parts = [above, left, *(beside[at] for at in range(len(groups) - 2))]
    for part, members in zip(parts, groups, strict=True):
        apart = shortest_path(joined[np.ix_(members, members)], unweighted=True)
        _draw(figure.add_subplot(part), [names[at] for at in members], _places(apart), edges)
    figure.suptitle("Methods that are one iteration", fontsize=12, x=0.01, ha="left")
    note = (
        "whole: always; dashed: on conditions; dotted: with the piece that the line names; each line with its own "
        "arguments\nφ = θ: what clients of one receive is the model of the other; all other lines join two models θ"
    )
    figure.supxlabel(note, fontsize=8, x=0.01, ha="left", color="#555555")
    return figure


if __name__ == "__main__":
    picture().savefig(PICTURE, dpi=100, metadata={"Description": fingerprint()})
    print(PICTURE)
