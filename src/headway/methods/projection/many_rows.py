"""Any number of rows, for GradMA-S's server.

Where the rows that matter are far from dependent, non-negative least squares on their Gram matrix; where they are
nearly parallel or opposite, a dual active-set method on orthogonalised rows (docs/decisions/0007).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy  # its parts are imported when they are first called: together they take longer than all of Headway
import torch
from torch import Tensor

from headway.methods.projection.rows import FLOOR, RANK
from headway.trees import leaves_of
from headway.vectors import Vector

ACCEPTED = 1e-10
"""The largest relative residual of a solution from the Gram matrix; beyond it the rows are orthogonalised."""
TOUCHING = 1e-8
"""A constraint with less slack than this may be active: its row matters."""
APART = 1e-4
"""Least eigenvalue of the Gram matrix of unit rows that are far from dependent."""
MODERATE = 10.0
"""Sum of the multipliers of unit rows, relative to ‖p‖, beyond which the rounding of products counts."""
ROUNDING = 4 * float(np.finfo(np.float64).eps)
"""The rounding error of a unit column."""
CHUNK = 1 << 16
"""How many coordinates are converted to float64 at a time."""


def project_rows(p: Vector, memory: Vector, count: int) -> Vector:
    """p̃ for the first `count` rows of a memory with leaves of shape (rows, *leaf); it is read in pieces, not copied."""
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
    z, touching = _by_gram(unit_gram, unit_products)
    if touching is not None:
        return _by_rotation(p, memory, used, scale, size, z, touching)
    factors = np.zeros(count)
    factors[used] = z * size / scale
    return _combined(p, memory, factors)


def _pieces(p: Vector, memory: Vector, count: int, chosen: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor]]:
    """(Rows, p) for some coordinates at a time, in float64, shapes (count, k) and (k,); all rows or those chosen."""
    for leaf, row in zip(leaves_of(p), leaves_of(memory), strict=True):
        flat, table = leaf.reshape(-1), row[:count].reshape(count, -1)
        for start in range(0, flat.numel(), CHUNK):
            stop = start + CHUNK
            rows = table[:, start:stop] if chosen is None else table[chosen, start:stop]
            yield rows.double(), flat[start:stop].double()


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


def _products(p: Vector, memory: Vector, count: int) -> np.ndarray:
    """Mp."""
    products = torch.zeros(count, dtype=torch.float64, device=leaves_of(p)[0].device)
    for rows, part in _pieces(p, memory, count):
        products += rows @ part
    found: np.ndarray = products.cpu().numpy()
    return found


def _solve(rows: np.ndarray, target: np.ndarray) -> np.ndarray:
    """argmin_{z ≥ 0} ‖rowsᵀz + target‖ by SciPy's active-set NNLS."""
    try:
        z: np.ndarray = scipy.optimize.nnls(rows.T, -target, maxiter=max(30 * rows.shape[0], 300))[0]
    except (RuntimeError, ValueError) as fault:
        raise RuntimeError(
            f"the non-negative least squares of GradMA's {rows.shape[0]} rows failed: {fault}"
        ) from fault
    return z


def _by_gram(gram: np.ndarray, products: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """z from the Gram matrix of the unit rows, with None where z is exact enough, or else a mask of the rows to rotate.

    z is exact for constraints whose right sides are off by the residual, so its error is the residual divided by the
    distance of a row to the span of the others. Two rows at an angle of π − a show it only in products of order a, and
    their multipliers are of order 1/a. So z is accepted where multipliers are moderate and the residual is rounding. It
    is also accepted where the residual is small and the rows it touches are far from dependent. Otherwise these rows go
    to `_by_rotation`, or all rows where the residual is not small.
    """
    values, vectors = np.linalg.eigh(gram)
    kept = values > 1e-13 * values.max()
    roots = np.sqrt(values[kept])
    z = _solve(vectors[:, kept] * roots, (vectors[:, kept].T @ products) / roots)
    slack = products + gram @ z
    residual, sum_of_z = max(-slack.min(), np.abs(z * slack).max()), float(z.sum())
    if sum_of_z < MODERATE and residual < ROUNDING * (1 + np.sqrt(len(z))) * (1 + sum_of_z):
        return z, None
    if residual >= ACCEPTED:
        return z, np.ones(len(z), dtype=bool)
    touching = (z > 0) | (slack < TOUCHING)
    apart = (np.linalg.eigvalsh(gram[np.ix_(touching, touching)]) > APART).all()
    return z, None if apart else touching


def _by_rotation(
    p: Vector, memory: Vector, used: np.ndarray, scale: np.ndarray, size: float, z: np.ndarray, touching: np.ndarray
) -> Vector:
    """p̃ from the rows themselves: those that `touching` marks, then also any whose constraint the result breaks."""
    while True:
        rows, lengths = used[touching], scale[touching]
        triangle = _triangle(p, memory, rows, np.append(lengths, size))
        active = rows[_active_set(triangle[:, :-1], triangle[:, -1], np.flatnonzero(z[touching] > 0))]
        found = _orthogonal_to(p, memory, active)
        products = _products(found, memory, int(used.max()) + 1)[used] / (scale * size)
        broken = ~touching & (products < 0)
        if not broken.any():
            return Vector({name: leaf.to(p.leaves[name].dtype) for name, leaf in found.leaves.items()})
        touching = touching | broken


def _triangle(p: Vector, memory: Vector, rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """R of the QR factorisation of the unit rows and p as columns, computed piece by piece."""
    divisors = torch.as_tensor(lengths, device=leaves_of(p)[0].device)
    chosen = torch.as_tensor(rows, device=divisors.device)
    factor = torch.zeros(0, len(divisors), dtype=torch.float64, device=divisors.device)
    for some, part in _pieces(p, memory, int(rows.max()) + 1, chosen):
        columns = torch.cat([some, part[None]]).T / divisors
        factor = torch.linalg.qr(torch.cat([factor, columns]), mode="r").R
    triangle: np.ndarray = factor.cpu().numpy()
    return triangle


def _active_set(columns: np.ndarray, target: np.ndarray, guess: np.ndarray) -> np.ndarray:
    """The constraints ⟨·, c_i⟩ ≥ 0 that are active at the feasible point closest to `target`; c_i are unit columns.

    The dual method of Goldfarb and Idnani (1983): from the point that the guessed constraints give, the most violated
    one is added, and those whose multiplier would become negative on the way are dropped. Active columns are always
    independent, so opposite or balanced columns, whose multipliers have no bound, do no harm; a column within the rank
    tolerance of their span counts as satisfied. Every violation counts that rounding does not explain: it may be all
    that shows of a thin cone.
    """
    size, count = np.linalg.norm(target), columns.shape[1]
    rounding = ROUNDING * (1 + np.sqrt(len(columns)))
    active, multipliers = _feasible_guess(columns, target, guess)
    least, best = np.inf, active
    for _ in range(100 + 20 * count):
        basis, triangle = np.linalg.qr(columns[:, active])
        point = _orthogonal_part(target, basis)
        products = np.where(_independent(columns, basis, triangle), columns.T @ point, 0.0) / size
        taken = int(np.argmin(products))
        if -products[taken] < least:
            least, best = -products[taken], active
        if products[taken] >= -rounding:
            return np.array(active, dtype=int)
        active, multipliers = _exchanged(columns, active, multipliers, taken, point)
    if least > 4 * RANK:
        raise RuntimeError(f"GradMA's quadratic program over {count} rows did not come to an end")
    return np.array(best, dtype=int)


def _feasible_guess(columns: np.ndarray, target: np.ndarray, guess: np.ndarray) -> tuple[list[int], np.ndarray]:
    """Independent columns of the guess whose multipliers are not negative, and these multipliers."""
    active: list[int] = []
    if len(guess):
        triangle, order = scipy.linalg.qr(columns[:, guess], mode="r", pivoting=True)
        there = np.abs(np.diagonal(triangle)) > RANK
        active = sorted(int(guess[place]) for place in order[: len(there)][there])
    multipliers = _multipliers(columns, active, target)
    while len(active) and multipliers.min() < 0:
        active.pop(int(np.argmin(multipliers)))
        multipliers = _multipliers(columns, active, target)
    return active, multipliers


def _independent(columns: np.ndarray, basis: np.ndarray, triangle: np.ndarray) -> np.ndarray:
    """Which columns are outside the span of the active ones, beyond doubt by rounding.

    A column is Σ_j part_j · active_j + rest, so rounding in an active column counts as often as its part.
    """
    parts = np.linalg.solve(triangle, basis.T @ columns)
    unknown = 4 * ROUNDING * (1 + np.abs(parts).sum(0))
    free: np.ndarray = np.linalg.norm(_orthogonal_part(columns, basis), axis=0) > np.maximum(RANK, unknown)
    return free


def _multipliers(columns: np.ndarray, active: list[int], target: np.ndarray) -> np.ndarray:
    """z such that target + Σ z_i c_i is orthogonal to all active columns."""
    basis, triangle = np.linalg.qr(columns[:, active])
    return -np.linalg.solve(triangle, basis.T @ target)


def _exchanged(
    columns: np.ndarray, active: list[int], multipliers: np.ndarray, taken: int, point: np.ndarray
) -> tuple[list[int], np.ndarray]:
    """Add a column to the active ones and drop those whose multiplier would become negative; also their multipliers."""
    active, multiplier = list(active), 0.0
    while True:
        basis, triangle = np.linalg.qr(columns[:, active])
        rest = _orthogonal_part(columns[:, taken], basis)
        parts = np.linalg.solve(triangle, basis.T @ columns[:, taken])
        to_equality = -(columns[:, taken] @ point) / (rest @ rest)
        falling = np.flatnonzero(parts > 0)
        limits = multipliers[falling] / parts[falling]
        stride = min([to_equality, *limits])
        point = point + stride * rest
        multipliers, multiplier = multipliers - stride * parts, multiplier + stride
        if stride == to_equality:
            return [*active, taken], np.append(multipliers, multiplier).clip(min=0)
        dropped = int(falling[np.argmin(limits)])
        active.pop(dropped)
        multipliers = np.delete(multipliers, dropped)


def _orthogonal_part(vector: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """The part of a vector, or of each column, orthogonal to orthonormal columns; computed twice against rounding."""
    once = vector - basis @ (basis.T @ vector)
    rest: np.ndarray = once - basis @ (basis.T @ once)
    return rest


def _combined(p: Vector, memory: Vector, factors: np.ndarray) -> Vector:
    """p + Mᵀz leaf by leaf; `factors` is z, of shape (rows,)."""
    leaves = {}
    for name, leaf in p.leaves.items():
        table = memory.leaves[name][: len(factors)].reshape(len(factors), -1)
        weights = torch.as_tensor(factors, device=leaf.device)
        moved = leaf.reshape(-1).to(torch.float64, copy=True)
        for start in range(0, moved.numel(), CHUNK):
            moved[start : start + CHUNK] += weights @ table[:, start : start + CHUNK].double()
        leaves[name] = moved.reshape(leaf.shape).to(leaf.dtype)
    return Vector(leaves)


def _orthogonal_to(p: Vector, memory: Vector, active: np.ndarray) -> Vector:
    """p in float64 without its part in the span of the active rows, which are the only ones copied.

    For nearly parallel rows the multipliers are huge and p + Mᵀz cancels; orthonormal directions avoid that.
    """
    wide = p.to(torch.float64)
    if not len(active):
        return wide
    flat = wide.flat()
    chosen = torch.as_tensor(active, device=flat.device)
    rows = torch.cat([leaf[chosen].reshape(len(active), -1).double() for leaf in leaves_of(memory)], 1)
    rows /= rows.abs().amax(1, keepdim=True)  # so that no square under- or overflows
    rows /= rows.norm(dim=1, keepdim=True)
    basis = torch.linalg.qr(rows.T).Q
    for _ in range(2):  # twice against rounding
        flat = flat - basis @ (basis.T @ flat)
    return wide.unflat(flat)
