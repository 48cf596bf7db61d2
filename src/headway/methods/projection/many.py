"""Many rows, the server: non-negative least squares on the Gram matrix where that holds the residual, a dual active-set
method on orthogonalised rows where rows are nearly parallel or opposite (docs/decisions/0007).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from headway.methods.projection.rows import FLOOR, RANK, units, without
from headway.vectors import Vector, leaves_of

ACCEPTED = 1e-10
"""Largest relative residual of the Gram route; beyond it the rows are orthogonalised."""
CHUNK = 1 << 16
"""Coordinates that are handled at once in float64."""


def project_rows(p: Vector, memory: Vector, count: int) -> Vector:
    """p̃ for the first `count` rows of a memory whose leaves are stacked. The memory is read in pieces, never copied."""
    if count == 0:
        return p
    gram, products, size = _gram(p, memory, count)
    if size == 0:
        return p
    norms = np.sqrt(np.diag(gram))
    used = np.flatnonzero((norms > FLOOR * norms.max()) & (norms > 0))
    if not len(used):
        return p
    scale = norms[used]
    unit_gram = gram[np.ix_(used, used)] / np.outer(scale, scale)
    unit_products = products[used] / (scale * size)
    z = _by_gram(unit_gram, unit_products)
    if z is None:
        held = _by_rotation(p, memory, used, scale, size)
        return _orthogonal_to(p, [_row(memory, int(number)) for number in held])
    factors = np.zeros(count)
    factors[used] = z * size / scale
    return _combined(p, memory, factors)


def _pieces(p: Vector, memory: Vector, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """(rows, p) of some coordinates at a time, shapes (count, k) and (k,), in float64."""
    for leaf, row in zip(leaves_of(p), leaves_of(memory), strict=True):
        flat, table = leaf.reshape(-1), row[:count].reshape(count, -1)
        for start in range(0, flat.numel(), CHUNK):
            stop = start + CHUNK
            yield table[:, start:stop].double(), flat[start:stop].double()


def _gram(p: Vector, memory: Vector, count: int) -> tuple[np.ndarray, np.ndarray, float]:
    """MMᵀ, Mp and ‖p‖."""
    device = leaves_of(p)[0].device
    gram = torch.zeros(count, count, dtype=torch.float64, device=device)
    products = torch.zeros(count, dtype=torch.float64, device=device)
    square = torch.zeros((), dtype=torch.float64, device=device)
    for rows, part in _pieces(p, memory, count):
        gram += rows @ rows.T
        products += rows @ part
        square += part @ part
    return gram.cpu().numpy(), products.cpu().numpy(), float(square.sqrt())


def _solve(rows: np.ndarray, target: np.ndarray) -> np.ndarray:
    """argmin_{z ≥ 0} ‖rowsᵀz + target‖ by SciPy's active-set NNLS."""
    try:
        z: np.ndarray = nnls(rows.T, -target, maxiter=max(30 * rows.shape[0], 300))[0]
    except (RuntimeError, ValueError) as fault:
        raise RuntimeError(
            f"the non-negative least squares of GradMA's {rows.shape[0]} rows failed: {fault}"
        ) from fault
    return z


def _by_gram(gram: np.ndarray, products: np.ndarray) -> np.ndarray | None:
    """z from the unit rows' Gram matrix, or None where it does not hold the residual (nearly parallel rows)."""
    values, vectors = np.linalg.eigh(gram)
    kept = values > 1e-13 * values.max()
    roots = np.sqrt(values[kept])
    z = _solve(vectors[:, kept] * roots, (vectors[:, kept].T @ products) / roots)
    slack = products + gram @ z
    return z if max(-slack.min(), np.abs(z * slack).max()) < ACCEPTED else None


def _by_rotation(p: Vector, memory: Vector, used: np.ndarray, scale: np.ndarray, size: float) -> np.ndarray:
    """The rows held at equality, from the triangular factor of unit rows and p, found piece by piece by reflections."""
    lengths = torch.as_tensor(np.append(scale, size), device=leaves_of(p)[0].device)
    chosen = torch.as_tensor(used, device=lengths.device)
    factor = torch.zeros(0, len(lengths), dtype=torch.float64, device=lengths.device)
    for rows, part in _pieces(p, memory, int(used.max()) + 1):
        columns = torch.cat([rows[chosen], part[None]]).T / lengths
        factor = torch.linalg.qr(torch.cat([factor, columns]), mode="r").R
    triangle: Any = factor.cpu().numpy()
    held: np.ndarray = used[np.array(_held(triangle[:, :-1], triangle[:, -1]), dtype=int)]
    return held


def _held(columns: np.ndarray, target: np.ndarray) -> list[int]:
    """Which unit columns the point of {⟨·, c_i⟩ ≥ 0} closest to `target` holds at equality: the dual method of
    Goldfarb and Idnani (1983).

    From the target itself, the most violated column is taken in, and those whose multiplier would turn negative on the
    way are let go. Held columns are always independent, so neither opposite nor balanced columns, whose multipliers
    have no bound, disturb it; a column nearer than the rank tolerance to the span of the held is kept with them.
    """
    size = np.linalg.norm(target)
    held: list[int] = []
    multipliers = np.zeros(0)
    for _ in range(100 + 20 * columns.shape[1]):
        basis = np.linalg.qr(columns[:, held])[0]
        point = _rest(target, basis)
        products = columns.T @ point
        taken = int(np.argmin(products))
        if products[taken] >= -4 * RANK * size:
            return held
        multiplier = 0.0
        while True:
            basis, triangle = np.linalg.qr(columns[:, held])
            rest = _rest(columns[:, taken], basis)
            parts = np.linalg.solve(triangle, basis.T @ columns[:, taken])
            to_equality = -(columns[:, taken] @ point) / (rest @ rest)
            falling = np.flatnonzero(parts > 0)
            limits = multipliers[falling] / parts[falling]
            stride = min([to_equality, *limits])
            point = point + stride * rest
            multipliers, multiplier = multipliers - stride * parts, multiplier + stride
            if stride == to_equality:
                break
            let_go = int(falling[np.argmin(limits)])
            held.pop(let_go)
            multipliers = np.delete(multipliers, let_go)
        held.append(taken)
        multipliers = np.append(multipliers, multiplier).clip(min=0)
    raise RuntimeError(f"GradMA's quadratic program over {columns.shape[1]} rows did not come to an end")


def _rest(vector: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """The part of a vector orthogonal to orthonormal columns, taken twice against rounding."""
    once = vector - basis @ (basis.T @ vector)
    rest: np.ndarray = once - basis @ (basis.T @ once)
    return rest


def _combined(p: Vector, memory: Vector, factors: np.ndarray) -> Vector:
    """p + Mᵀz, leaf by leaf."""
    leaves = {}
    for name, leaf in p.leaves.items():
        table = memory.leaves[name][: len(factors)].reshape(len(factors), -1)
        weights = torch.as_tensor(factors, device=leaf.device)
        moved = leaf.reshape(-1).to(torch.float64, copy=True)
        for start in range(0, moved.numel(), CHUNK):
            moved[start : start + CHUNK] += weights @ table[:, start : start + CHUNK].double()
        leaves[name] = moved.reshape(leaf.shape).to(leaf.dtype)
    return Vector(leaves)


def _row(memory: Vector, number: int) -> Vector:
    return memory.map(lambda leaf: leaf[number])


def _orthogonal_to(p: Vector, rows: list[Vector]) -> Vector:
    """p without its part in the span of the rows held at equality. Only these rows are copied, in float64.

    For nearly parallel rows the multipliers are huge and p + Mᵀz cancels; orthonormal directions do not.
    """
    if not rows:
        return p
    basis: list[Vector] = []
    moved = p.to(torch.float64)
    for unit in units([row.to(torch.float64) for row in rows]):
        rest = without(unit, basis)
        length = rest.norm()
        if length > RANK:
            basis.append(rest / length)
    moved = without(moved, basis)
    return Vector({name: leaf.to(p.leaves[name].dtype) for name, leaf in moved.leaves.items()})
