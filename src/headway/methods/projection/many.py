"""Many rows, the server: non-negative least squares on the Gram matrix where the rows that matter are far from
dependent, a dual active-set method on orthogonalised rows where they are nearly parallel or opposite
(docs/decisions/0007).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from scipy.linalg import qr
from scipy.optimize import nnls
from torch import Tensor

from headway.methods.projection.rows import FLOOR, RANK
from headway.trees import leaves_of
from headway.vectors import Vector

ACCEPTED = 1e-10
"""Largest relative residual of the Gram route; beyond it the rows are orthogonalised."""
TOUCHING = 1e-8
"""A constraint with less room than this is one that matters: what is found may be held by it."""
APART = 1e-4
"""Least eigenvalue of the Gram matrix of unit rows that are far from dependent."""
MODERATE = 10.0
"""Sum of the multipliers of unit rows, relative to ‖p‖, beyond which the rounding of products counts."""
ROUNDING = 4 * float(np.finfo(np.float64).eps)
"""What is left of a unit column by rounding."""
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
    z, touching = _by_gram(unit_gram, unit_products)
    if touching is not None:
        return _by_rotation(p, memory, used, scale, size, z, touching)
    factors = np.zeros(count)
    factors[used] = z * size / scale
    return _combined(p, memory, factors)


def _pieces(p: Vector, memory: Vector, count: int, chosen: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor]]:
    """(rows, p) of some coordinates at a time, shapes (count, k) and (k,), in float64; of all rows or those chosen."""
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
        z: np.ndarray = nnls(rows.T, -target, maxiter=max(30 * rows.shape[0], 300))[0]
    except (RuntimeError, ValueError) as fault:
        raise RuntimeError(
            f"the non-negative least squares of GradMA's {rows.shape[0]} rows failed: {fault}"
        ) from fault
    return z


def _by_gram(gram: np.ndarray, products: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """z from the unit rows' Gram matrix, and None, or which rows are to be looked at themselves.

    What is found is exact for right sides that differ from 0 by its residual, so it is as near to the true point as
    that is small against the distance of a row from the span of others. A row at the angle a from opposite to another
    shows in products of the order of a only, and its multipliers are of the order of 1/a. So nothing more is asked
    where multipliers are moderate and the residual is rounding. Otherwise a residual that is small is enough where the
    rows that touch what is found are far from dependent; else these are looked at, or all where it is not small.
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
    """p̃ from the rows themselves: of those that touch it first, and of any that what is found then breaks."""
    while True:
        rows, lengths = used[touching], scale[touching]
        triangle = _triangle(p, memory, rows, np.append(lengths, size))
        held = rows[_held(triangle[:, :-1], triangle[:, -1], np.flatnonzero(z[touching] > 0))]
        found = _orthogonal_to(p, memory, held)
        products = _products(found, memory, int(used.max()) + 1)[used] / (scale * size)
        broken = ~touching & (products < 0)
        if not broken.any():
            return Vector({name: leaf.to(p.leaves[name].dtype) for name, leaf in found.leaves.items()})
        touching = touching | broken


def _triangle(p: Vector, memory: Vector, rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The triangular factor of the unit rows and p as columns, found piece by piece by reflections."""
    divisors = torch.as_tensor(lengths, device=leaves_of(p)[0].device)
    chosen = torch.as_tensor(rows, device=divisors.device)
    factor = torch.zeros(0, len(divisors), dtype=torch.float64, device=divisors.device)
    for some, part in _pieces(p, memory, int(rows.max()) + 1, chosen):
        columns = torch.cat([some, part[None]]).T / divisors
        factor = torch.linalg.qr(torch.cat([factor, columns]), mode="r").R
    triangle: np.ndarray = factor.cpu().numpy()
    return triangle


def _held(columns: np.ndarray, target: np.ndarray, guess: np.ndarray) -> np.ndarray:
    """Which unit columns the point of {⟨·, c_i⟩ ≥ 0} closest to `target` holds at equality: the dual method of
    Goldfarb and Idnani (1983).

    From the point that a guess holds, the most violated column is taken in, and those whose multiplier would turn
    negative on the way are let go. Held columns are always independent, so neither opposite nor balanced columns, whose
    multipliers have no bound, disturb it; a column nearer than the rank tolerance to the span of the held is kept with
    them. A violation counts if rounding does not explain it, as it may be all that shows of a thin cone.
    """
    size, count = np.linalg.norm(target), columns.shape[1]
    rounding = ROUNDING * (1 + np.sqrt(len(columns)))
    held, multipliers = _begun(columns, target, guess)
    least, best = np.inf, held
    for _ in range(100 + 20 * count):
        basis, triangle = np.linalg.qr(columns[:, held])
        point = _rest(target, basis)
        products = np.where(_free(columns, basis, triangle), columns.T @ point, 0.0) / size
        taken = int(np.argmin(products))
        if -products[taken] < least:
            least, best = -products[taken], held
        if products[taken] >= -rounding:
            return np.array(held, dtype=int)
        held, multipliers = _taken(columns, held, multipliers, taken, point)
    if least > 4 * RANK:
        raise RuntimeError(f"GradMA's quadratic program over {count} rows did not come to an end")
    return np.array(best, dtype=int)


def _begun(columns: np.ndarray, target: np.ndarray, guess: np.ndarray) -> tuple[list[int], np.ndarray]:
    """Independent columns of a guess whose multipliers are not negative, and these."""
    held: list[int] = []
    if len(guess):
        triangle, order = qr(columns[:, guess], mode="r", pivoting=True)
        there = np.abs(np.diagonal(triangle)) > RANK
        held = sorted(int(guess[place]) for place in order[: len(there)][there])
    multipliers = _multipliers(columns, held, target)
    while len(held) and multipliers.min() < 0:
        held.pop(int(np.argmin(multipliers)))
        multipliers = _multipliers(columns, held, target)
    return held, multipliers


def _free(columns: np.ndarray, basis: np.ndarray, triangle: np.ndarray) -> np.ndarray:
    """Which columns are not in the span of those held, as far as that is known: a column is Σ parts · held + rest, and
    rounding in a held column counts as often as its part.
    """
    parts = np.linalg.solve(triangle, basis.T @ columns)
    unknown = 4 * ROUNDING * (1 + np.abs(parts).sum(0))
    free: np.ndarray = np.linalg.norm(_rest(columns, basis), axis=0) > np.maximum(RANK, unknown)
    return free


def _multipliers(columns: np.ndarray, held: list[int], target: np.ndarray) -> np.ndarray:
    """z of target + Σ z_i c_i, which is orthogonal to all held columns."""
    basis, triangle = np.linalg.qr(columns[:, held])
    return -np.linalg.solve(triangle, basis.T @ target)


def _taken(
    columns: np.ndarray, held: list[int], multipliers: np.ndarray, taken: int, point: np.ndarray
) -> tuple[list[int], np.ndarray]:
    """The held columns with one more and without those whose multiplier would turn negative, and the multipliers."""
    held, multiplier = list(held), 0.0
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
            return [*held, taken], np.append(multipliers, multiplier).clip(min=0)
        let_go = int(falling[np.argmin(limits)])
        held.pop(let_go)
        multipliers = np.delete(multipliers, let_go)


def _rest(vector: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """The part of a vector, or of each column, orthogonal to orthonormal columns, taken twice against rounding."""
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


def _orthogonal_to(p: Vector, memory: Vector, held: np.ndarray) -> Vector:
    """p in float64 without its part in the span of the rows held at equality. Only these rows are copied.

    For nearly parallel rows the multipliers are huge and p + Mᵀz cancels; orthonormal directions do not.
    """
    wide = p.to(torch.float64)
    if not len(held):
        return wide
    flat = wide.flat()
    chosen = torch.as_tensor(held, device=flat.device)
    rows = torch.cat([leaf[chosen].reshape(len(held), -1).double() for leaf in leaves_of(memory)], 1)
    rows /= rows.abs().amax(1, keepdim=True)  # so that no square under- or overflows
    rows /= rows.norm(dim=1, keepdim=True)
    basis = torch.linalg.qr(rows.T).Q
    for _ in range(2):  # taken away twice against rounding
        flat = flat - basis @ (basis.T @ flat)
    return wide.unflat(flat)
