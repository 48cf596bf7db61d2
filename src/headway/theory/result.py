"""What `bounds` finds: constants, limits of step sizes beside the scenario's own, rates, and curves to draw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

import numpy as np

from headway.errors import UserError
from headway.runs.files import ensure_folder

NETWORKS = (
    "For networks these step sizes are orders of magnitude smaller than those that work in practice: they say how a "
    "step size should change with the local steps, the curvature and the momentum, not which one to use."
)

PRACTICE = 6
"""The colour of what the scenario has."""


class LimitNumbers(TypedDict):
    """A limit in JSON."""

    name: str
    allowed: float | None
    practice: float
    holds: bool


@dataclass(frozen=True)
class Limit:
    """What a theorem allows of a step size or of a momentum, beside what the scenario has."""

    name: str
    allowed: float | None
    """None where it allows no value."""
    practice: float

    @property
    def holds(self) -> bool:
        return self.allowed is not None and self.practice <= self.allowed

    @property
    def words(self) -> str:
        """How practice stands to it."""
        if self.allowed is None:
            return "no value is allowed"
        if self.holds:
            return "holds"
        return f"{self.practice / self.allowed:.3g} times too large" if self.allowed > 0 else "too large"

    def as_dict(self) -> LimitNumbers:
        return {"name": self.name, "allowed": self.allowed, "practice": self.practice, "holds": self.holds}


@dataclass(frozen=True)
class Curve:
    """A line of a panel: points, or a level where there is one x."""

    name: str
    x: np.ndarray
    y: np.ndarray
    colour: int
    dashed: bool = False


@dataclass(frozen=True)
class Panel:
    """One axes of the picture."""

    title: str
    x: str
    y: str
    curves: tuple[Curve, ...]
    log_x: bool = False


class GapNumbers(TypedDict):
    """FedNAG at one τ: measured gaps after T steps, their bounds, and where FedNAG's bound is the smaller one."""

    tau: int
    gap: float
    bound: float
    fedavg_gap: float
    fedavg_bound: float
    difference: float
    """f₁ − f₂ with the same constants, those of FedNAG's course, as Theorem 4 compares them."""
    threshold: float
    """η̄(T): f₁ < f₂ for every step size below it."""


class BoundsNumbers(TypedDict):
    """What was found, in bounds.json."""

    method: str
    problem: str
    origin: str
    eta: float | None
    constants: dict[str, float]
    limits: list[LimitNumbers]
    rates: dict[str, float]
    gaps: list[GapNumbers]
    notes: list[str]


@dataclass(frozen=True)
class Bounds:
    """What a paper's theorems say of a method on a problem."""

    method: str
    problem: str
    """The problem in words."""
    origin: str
    """Where the constants are from: `given`, `estimated` at some points, or `measured` on a convex problem."""
    constants: Mapping[str, float]
    limits: tuple[Limit, ...]
    rates: Mapping[str, float]
    """The terms of the rate, and what they sum to where the theorem gives their factors."""
    panels: tuple[Panel, ...] = field(repr=False)
    gaps: tuple[GapNumbers, ...] = ()
    """Of FedNAG on a convex problem: one entry for each τ."""
    eta: float | None = None
    """The step size that gaps and bounds are of; None where the limits are all there is."""
    notes: tuple[str, ...] = ()

    def as_dict(self) -> BoundsNumbers:
        """The numbers as bounds.json has them."""
        return {
            "method": self.method,
            "problem": self.problem,
            "origin": self.origin,
            "eta": self.eta,
            "constants": dict(self.constants),
            "limits": [limit.as_dict() for limit in self.limits],
            "rates": dict(self.rates),
            "gaps": list(self.gaps),
            "notes": list(self.notes),
        }

    def write(self, folder: str | Path) -> Path:
        """bounds.json, bounds.csv with every point of every curve, bounds.png and bounds.svg in a folder."""
        from headway.runs.files import as_path, write_json
        from headway.theory.picture import draw

        place = as_path("out", folder)
        ensure_folder(place)
        write_json(place / "bounds.json", self.as_dict())
        lines = ["panel,curve,x,y"]
        for panel in self.panels:
            for curve in panel.curves:
                points = zip(curve.x.tolist(), curve.y.tolist(), strict=True)
                lines += [f'"{panel.title}","{curve.name}",{x!r},{y!r}' for x, y in points]
        try:
            (place / "bounds.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        except OSError as fault:
            raise UserError(f"'{place / 'bounds.csv'}' cannot be written: {fault.strerror or fault}") from None
        draw(self, place / "bounds.png")
        draw(self, place / "bounds.svg")
        return place
