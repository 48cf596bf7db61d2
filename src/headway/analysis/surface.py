"""The loss on the plane through three local models, and along the way θ → φ → θ_i of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headway.analysis.divergence import mixed
from headway.analysis.local_models import Model
from headway.vectors import Vector

Loss = Callable[[Model], float]
"""The loss of a model on the samples of an analysis; may be infinite, or not a number, far away."""
MARGIN = 0.35
"""Of the extent of the points that are shown, how much room is around them."""


@dataclass(frozen=True)
class Plane:
    """The plane through three points w₀, w₁, w₂: w₀ + a·u + b·v, with u and v of length 1 and at right angles."""

    corners: tuple[Model, Model, Model]
    u: Vector
    v: Vector
    places: np.ndarray
    """Shape (3, 2): (a, b) of the corners."""

    @classmethod
    def through(cls, corners: Sequence[Model]) -> Plane | None:
        """The plane of three models; None where they lie on one line."""
        first, second, third = corners
        along, across = second.w - first.w, third.w - first.w
        length = float(along.norm())
        if not length:
            return None
        u = along / length
        a = float(across.dot(u))
        rest = across.plus(-a, u)
        height = float(rest.norm())
        if height <= 1e-6 * max(length, abs(a)):
            return None
        places = np.array([[0.0, 0.0], [length, 0.0], [a, height]])
        return cls((first, second, third), u, rest / height, places)

    def project(self, w: Vector) -> tuple[float, float, float]:
        """(a, b) of the nearest point of the plane, and how far the point is from it."""
        away = w - self.corners[0].w
        a, b = float(away.dot(self.u)), float(away.dot(self.v))
        return a, b, float(away.plus(-a, self.u).plus(-b, self.v).norm())

    def shares(self, a: float, b: float) -> np.ndarray:
        """What each corner has in the point (a, b), Σ = 1: barycentric coordinates; negative outside the triangle."""
        system = np.vstack([self.places.T, np.ones(3)])
        solved: np.ndarray = np.linalg.solve(system, np.array([a, b, 1.0]))
        return solved

    def at(self, a: float, b: float) -> Model:
        """The model at (a, b). Its buffers are the corners' mixture, outside the triangle that of the nearest shares.

        At a corner it is the corner itself.
        """
        shares = self.shares(a, b)
        corner = int(shares.argmax())
        if np.abs(np.delete(shares, corner)).max() < 1e-9:
            return self.corners[corner]
        w = self.corners[0].w.plus(a, self.u).plus(b, self.v)
        within = np.clip(shares, 0, None)
        return Model(w, mixed((within / within.sum()).tolist(), self.corners))


@dataclass(frozen=True)
class Surface:
    """The loss on a grid of the plane, and the points that are marked on it."""

    a: np.ndarray
    """Shape (grid,)."""
    b: np.ndarray
    loss: np.ndarray
    """Shape (grid of b, grid of a)."""
    points: dict[str, tuple[float, float, float, float]]
    """By name: a, b, distance from the plane, and the loss of the point itself (not of its projection)."""


def surface(plane: Plane, marked: Mapping[str, Model], loss: Loss, grid: int) -> Surface:
    """The loss on a grid that shows the corners and the projections of all marked points."""
    points = {name: (*plane.project(model.w), loss(model)) for name, model in marked.items()}
    shown = np.vstack([plane.places, [point[:2] for point in points.values()]])
    low, high = shown.min(0), shown.max(0)
    extent = float((high - low).max())
    middle = (low + high) / 2
    half = extent * (0.5 + MARGIN)
    a, b = (np.linspace(one - half, one + half, grid) for one in middle)
    return Surface(a, b, np.array([[loss(plane.at(float(x), float(y))) for x in a] for y in b]), points)


@dataclass(frozen=True)
class Path:
    """The loss along θ → φ → θ_i, by the distance that is gone."""

    distance: np.ndarray
    loss: np.ndarray
    received: float
    """The distance at which φ is."""


def path(start: Model, received: Model, end: Model, loss: Loss, steps: int) -> Path:
    """The loss at so many places of each of both stretches; a stretch of no length has none of its own."""
    places, losses, done = [0.0], [loss(start)], 0.0
    for one, other in ((start, received), (received, end)):
        way = other.w - one.w
        length = float(way.norm())
        if not length:
            continue
        for share in np.linspace(0, 1, steps + 1)[1:]:
            buffers = mixed([1 - float(share), float(share)], (one, other))
            at = other if share == 1 else Model(one.w.plus(float(share), way), buffers)
            places.append(done + float(share) * length)
            losses.append(loss(at))
        done += length
    return Path(np.array(places), np.array(losses), float((received.w - start.w).norm()))
