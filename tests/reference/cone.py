"""GradMA's quadratic program (Luo et al. 2023, Eq. 2) by trying every set of active constraints."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
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
    """The same program for each parameter tensor alone, as in the authors' program of 2023."""
    found = np.array(p)
    for tensor in tensors:
        found[tensor] = nearest_in_cone(p[tensor], [row[tensor] for row in rows])
    return found


def nearest_in_cone_exactly(p: Sequence[int], rows: Sequence[Sequence[int]]) -> Array:
    """The same point in fractions, for whole numbers: no floor, no tolerance, and rounded once at the end.

    Of a set of rows held at equality, z ≥ 0 and the other rows met say that p + Σ z_i M[i] is the answer.
    """
    for count in range(len(rows) + 1):
        for active in combinations(range(len(rows)), count):
            gram = [[_product(rows[i], rows[j]) for j in active] for i in active]
            z = _solved(gram, [-_product(rows[i], p) for i in active])
            if z is None or any(value < 0 for value in z):
                continue
            pairs = list(zip(z, active, strict=True))
            point = [value + sum(factor * rows[i][place] for factor, i in pairs) for place, value in enumerate(p)]
            if all(_product(row, point) >= 0 for row in rows):
                return np.array([float(value) for value in point])
    raise AssertionError("some set of rows must be the one")


def _product(one: Sequence[int], two: Sequence[int | Fraction]) -> Fraction:
    return sum((Fraction(a) * b for a, b in zip(one, two, strict=True)), Fraction(0))


def _solved(matrix: list[list[Fraction]], right: list[Fraction]) -> list[Fraction] | None:
    """Gauss and Jordan; None where the rows are dependent."""
    table = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i in range(len(table)):
        pivot = next((j for j in range(i, len(table)) if table[j][i]), None)
        if pivot is None:
            return None
        table[i], table[pivot] = table[pivot], table[i]
        table[i] = [value / table[i][i] for value in table[i]]
        for j in range(len(table)):
            if j != i:
                table[j] = [a - table[j][i] * b for a, b in zip(table[j], table[i], strict=True)]
    return [row[-1] for row in table]
