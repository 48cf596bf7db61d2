"""GradMA's quadratic program (004, Eq. 2) by trying every set of active constraints."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from reference.problem import Array

ROW_FLOOR = 1e-30
"""Rows this much shorter than the longest are dropped."""
RANK_TOLERANCE = 1e-10
"""Singular values this much smaller than the largest count as 0."""
SLACK = 1e-12
"""A constraint violated by less than this, relative to ‖p‖ and a row of unit length, counts as met."""


def nearest_in_cone(p: Array, rows: Sequence[Array]) -> Array:
    """argmin ½‖p − p̃‖² over all p̃ with ⟨p̃, M[i]⟩ ≥ 0 for every row.

    At the optimum some set A of constraints holds with equality, and p̃ is then the orthogonal projection of p on the
    complement of span{M[i], i ∈ A}. So among these 2^C projections the closest one that is feasible is the answer.
    """
    units = _unit_rows(rows, len(p))
    size = float(np.linalg.norm(p))
    best, distance = np.zeros_like(p), size
    for count in range(len(units) + 1):
        for active in combinations(range(len(units)), count):
            candidate = _without(p, units[list(active)])
            feasible = bool(np.all(units @ candidate >= -SLACK * size))
            apart = float(np.linalg.norm(p - candidate))
            if feasible and apart < distance:
                best, distance = candidate, apart
    return best


def _unit_rows(rows: Sequence[Array], width: int) -> Array:
    """Rows scaled to unit length, those under the floor left out."""
    lengths = [float(np.linalg.norm(row)) for row in rows]
    floor = ROW_FLOOR * max(lengths, default=0.0)
    kept = [row / length for row, length in zip(rows, lengths, strict=True) if length > floor]
    return np.array(kept).reshape(-1, width)


def _without(p: Array, rows: Array) -> Array:
    """p without its part in the span of the rows."""
    if not len(rows):
        return p
    _, values, directions = np.linalg.svd(rows, full_matrices=False)
    basis = directions[values > RANK_TOLERANCE * values[0]]
    return p - basis.T @ (basis @ p)


def nearest_by_tensor(p: Array, rows: Sequence[Array], tensors: Sequence[slice]) -> Array:
    """The same program for each parameter tensor alone, as in the authors' program (reference-facts B3.1, B3.3)."""
    found = np.array(p)
    for tensor in tensors:
        found[tensor] = nearest_in_cone(p[tensor], [row[tensor] for row in rows])
    return found
