"""GradMA's quadratic program: the vector closest to p that has no negative product with any row of M.

    p̃ = argmin ½ ‖p̃ − p‖²  s.t.  ⟨p̃, M[i]⟩ ≥ 0 for every i          (004 Eq. 2)
    z = argmin_{z ≥ 0} ½ zᵀMMᵀz + (Mp)ᵀz ,  p̃ = p + Mᵀz             (its dual, 004 Eq. 4)

Rows are scaled to unit length first; a row no longer than 1e-30 of the longest is dropped, and a direction that adds
less than 1e-10 to the rows before it is no direction. Residuals are relative to ‖p‖.

`project_three` is the clients' problem: all eight sets of active rows are tried in tensor operations, so it stacks,
compiles and captures; for numbers of 32 bits from their products alone, which takes two passes over them.
`project_rows` is the server's: non-negative least squares on the Gram matrix where that holds the residual, a dual
active-set method on orthogonalised rows where rows are nearly parallel or opposite.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from headway.vectors import Vector, leaves_of

FLOOR = 1e-30
"""Rows at most this long, relative to the longest, are dropped."""
RANK = 1e-10
"""A unit row nearer than this to the span of others is in it."""
ACCEPTED = 1e-10
"""Largest relative residual of the Gram route; beyond it the rows are orthogonalised."""
CHUNK = 1 << 16
"""Coordinates that are handled at once in float64."""
PIECE = 1 << 13
"""Coordinates of one product of matrices whose sum must not round."""


# ── three rows, one client ───────────────────────────────────────────────────────────────────────────────────────────


Three = tuple[Vector, Vector, Vector]


def project_three(p: Vector, rows: Three) -> Vector:
    """p̃ for three rows, in tensor operations only."""
    if not _short(p):
        return _project_exactly(p, rows)
    groups = _groups(p, rows)
    weights = _weights(torch.stack([group.products() for group in groups]).sum(0))
    return Vector({name: group.mixed(weights) for name, group in zip(p.leaves, groups, strict=True)})


def project_three_by_tensor(p: Vector, rows: Three) -> Vector:
    """A program for each parameter tensor: the scope of the authors' program."""
    if not _short(p):
        pieces = zip(by_tensor(p), *(by_tensor(row) for row in rows), strict=True)
        return joined([_project_exactly(one, (first, second, third)) for one, first, second, third in pieces])
    groups = _groups(p, rows)
    weights = _weights(torch.stack([group.products() for group in groups]))
    named = zip(p.leaves, groups, strict=True)
    return Vector({name: group.mixed(weights[number]) for number, (name, group) in enumerate(named)})


def _short(p: Vector) -> bool:
    """Whether numbers have at most 32 bits: their products in float64 then say more of the rows than they hold.

    A unit row at the angle a to another is known to 6e-8/a in float32, its part across the other by the products to
    about 1e-15/a², which is less for every angle above 1e-7.
    """
    return all(leaf.dtype != torch.float64 for leaf in p.leaves.values())


class _Stacked:
    """The same tensor of p and its rows as one table in float64: what a CPU reads and multiplies fastest."""

    def __init__(self, leaves: list[Tensor]) -> None:
        self.like = leaves[0]
        self.table = torch.stack([leaf.reshape(-1) for leaf in leaves]).double()

    def products(self) -> Tensor:
        """All products with each other, (4, 4): sums of short sums, as one long one rounds more."""
        return torch.stack([piece @ piece.T for piece in torch.split(self.table, PIECE, 1)]).sum(0)

    def mixed(self, weights: Tensor) -> Tensor:
        """p's tensor plus the rows' times their weights."""
        return (self.table[0] + weights @ self.table[1:]).reshape(self.like.shape).to(self.like.dtype)


class _Apart:
    """The same one by one: a compiler makes one pass of it on a GPU, where a product of such matrices would crawl."""

    def __init__(self, leaves: list[Tensor]) -> None:
        self.leaves = leaves

    def products(self) -> Tensor:
        wide = [leaf.double() for leaf in self.leaves]
        return torch.stack([torch.stack([(one * other).sum() for other in wide]) for one in wide])

    def mixed(self, weights: Tensor) -> Tensor:
        moved = self.leaves[0].double()
        for number, leaf in enumerate(self.leaves[1:]):
            moved = moved + leaf.double() * weights[number]
        return moved.to(self.leaves[0].dtype)


def _groups(p: Vector, rows: Three) -> Sequence[_Stacked | _Apart]:
    leaves = [[one.leaves[name] for one in (p, *rows)] for name in p.leaves]
    if leaves[0][0].device.type == "cpu":
        return [_Stacked(group) for group in leaves]
    return [_Apart(group) for group in leaves]


_DIRECTION = 1e-7
"""A unit row of 32-bit numbers nearer than this to the span of others is in it."""


def _weights(products: Tensor) -> Tensor:
    """z of p̃ = p + Σ z_i M[i], shape (…, 3), from the products of (p, M[0], M[1], M[2]) with each other, (…, 4, 4).

    All eight sets of active rows are solved side by side, by elimination with unit rows; the least violation wins.
    """
    norms = products.diagonal(dim1=-2, dim2=-1).sqrt()
    size, lengths = norms[..., 0], norms[..., 1:]
    there = (lengths > FLOOR * lengths.amax(-1, keepdim=True)) & (lengths > 0)
    scale = torch.where(there, 1 / torch.where(there, lengths, 1.0), 0.0)
    gram = products[..., 1:, 1:] * scale[..., :, None] * scale[..., None, :]
    along = products[..., 1:, 0] * scale / size.clamp(min=torch.finfo(size.dtype).tiny)[..., None]
    sets = torch.arange(8, device=products.device)
    held = [((sets >> row) & 1).to(products.dtype) * there[..., row, None] for row in range(3)]
    one, two, three = (-along[..., row, None] * held[row] for row in range(3))
    low = gram[..., 0, 1, None] * held[0] * held[1]
    far = gram[..., 0, 2, None] * held[0] * held[2]
    second, apart = _pivot(1 - low * low)
    mid = (gram[..., 1, 2, None] * held[1] * held[2] - far * low) / second
    third, free = _pivot(1 - far * far - mid * mid)
    two = (two - low * one) / second
    last = (three - far * one - mid * two) / third / third
    two = (two - mid * last) / second
    one = one - low * two - far * last
    z = torch.stack([one, two, last], -1)  # (…, 8, 3)
    # The distance of each held row from the others: one over the root of the inverse's diagonal.
    back = -low / second
    over, under = (-far - mid * back) / third, -mid / second / third
    inverse = torch.stack([1 + back**2 + over**2, second**-2 + under**2, third**-2], -1)
    slack = along[..., None, :] + z @ gram
    broken = torch.maximum(-slack * there[..., None, :], -z / inverse.sqrt()).amax(-1).clamp(min=0)
    independent = apart & free & (inverse.amax(-1) < _DIRECTION**-2)
    best = torch.where(independent, broken, torch.inf).argmin(-1)
    chosen = torch.gather(z, -2, best[..., None, None].expand(*best.shape, 1, 3))[..., 0, :]
    return chosen * size[..., None] * scale


def _pivot(square: Tensor) -> tuple[Tensor, Tensor]:
    """Its root, and whether it is one: 1 where the row is in the span of those before it."""
    whether = square > _DIRECTION**2
    return torch.where(whether, square, 1.0).sqrt(), whether


def _project_exactly(p: Vector, rows: Three) -> Vector:
    """p̃ by rows made orthogonal to each other, to 1e-9 also where they are nearly parallel."""
    wide, size = p.to(torch.float64), p.to(torch.float64).norm()
    units = _units([row.to(torch.float64) for row in rows])
    basis, coordinates = _orthonormal(units)
    target = torch.stack([wide.dot(direction) for direction in basis]) / size.clamp(min=torch.finfo(size.dtype).tiny)
    change = (_closest(target, coordinates) - target) * size
    moved = wide
    for number, direction in enumerate(basis):
        moved = moved + direction * change[number]
    return Vector({name: leaf.to(p.leaves[name].dtype) for name, leaf in moved.leaves.items()})


def _units(rows: list[Vector]) -> list[Vector]:
    """Rows of length 1; those under the floor are zero."""
    largest = [torch.stack([leaf.abs().max() for leaf in row.leaves.values()]).max() for row in rows]
    safe = [torch.where(high > 0, high, 1.0) for high in largest]
    shrunk = [row / high for row, high in zip(rows, safe, strict=True)]  # so that no square under- or overflows
    norms = [row.norm() * high for row, high in zip(shrunk, safe, strict=True)]
    limit = FLOOR * torch.stack(norms).max()
    return [
        row * torch.where((norm > limit) & (norm > 0), high / torch.where(norm > 0, norm, 1.0), 0.0)
        for row, norm, high in zip(shrunk, norms, safe, strict=True)
    ]


def _orthonormal(units: list[Vector]) -> tuple[list[Vector], Tensor]:
    """Gram–Schmidt, each row twice: directions q_j (zero where a row adds none) and c_ij = ⟨u_i, q_j⟩."""
    basis: list[Vector] = []
    table: list[list[Tensor]] = []
    for unit in units:
        rest, found = unit, [torch.zeros_like(unit.norm()) for _ in units]
        for _ in range(2):
            for number, direction in enumerate(basis):
                part = rest.dot(direction)
                found[number] = found[number] + part
                rest = rest - direction * part
        length = rest.norm()
        adds = length > RANK
        found[len(basis)] = torch.where(adds, length, 0.0)
        basis.append(rest * torch.where(adds, 1.0 / torch.where(adds, length, 1.0), 0.0))
        table.append(found)
    return basis, torch.stack([torch.stack(found) for found in table])


_SETS = ((), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2))


def _closest(target: Tensor, rows: Tensor) -> Tensor:
    """The point of {⟨·, c_i⟩ ≥ 0} closest to `target`, all in the rows' own three coordinates.

    For each set of rows held at equality the candidate is the target's part orthogonal to them; it is the answer if
    its multipliers are not negative and it keeps the other rows. The least violation wins.
    """
    candidates, violations = [], []
    for held in _SETS:
        point, multipliers, independent = _orthogonal_part(target, [rows[number] for number in held])
        broken = (-(rows @ point)).clamp(min=0).max()
        for multiplier in multipliers:
            broken = torch.maximum(broken, (-multiplier).clamp(min=0))
        candidates.append(point)
        violations.append(torch.where(independent, broken, torch.inf))
    best = torch.stack(violations).argmin()
    return torch.stack(candidates).index_select(0, best.reshape(1))[0]


def _orthogonal_part(target: Tensor, held: list[Tensor]) -> tuple[Tensor, list[Tensor], Tensor]:
    """(target less its part in span(held), multipliers times their row's own length, whether the rows are independent).

    The multiplier of a row is read off with that row taken last: −⟨target, e⟩ with e its part orthogonal to the others.
    """
    independent = torch.ones((), dtype=torch.bool, device=target.device)
    multipliers = []
    point = target
    for last in range(len(held)):
        order = [row for number, row in enumerate(held) if number != last] + [held[last]]
        directions: list[Tensor] = []
        for row in order:
            rest = row
            for _ in range(2):
                for direction in directions:
                    rest = rest - direction * (direction @ rest)
            length = rest.norm()
            independent = independent & (length > RANK)
            directions.append(rest / torch.where(length > RANK, length, 1.0))
        multipliers.append(-(directions[-1] @ target))
        point = target
        for _ in range(2):
            for direction in directions:
                point = point - direction * (direction @ point)
    return point, multipliers, independent


# ── many rows, the server ────────────────────────────────────────────────────────────────────────────────────────────


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
    for unit in _units([row.to(torch.float64) for row in rows]):
        rest = _without(unit, basis)
        length = rest.norm()
        if length > RANK:
            basis.append(rest / length)
    moved = _without(moved, basis)
    return Vector({name: leaf.to(p.leaves[name].dtype) for name, leaf in moved.leaves.items()})


def _without(vector: Vector, basis: list[Vector]) -> Vector:
    """The vector less its parts along orthonormal directions, taken away twice against rounding."""
    for _ in range(2):
        for direction in basis:
            vector = vector - direction * vector.dot(direction)
    return vector


# ── scope ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def by_tensor(vector: Vector) -> list[Vector]:
    """One vector for each parameter tensor: the scope of the authors' program."""
    return [Vector({name: leaf}) for name, leaf in vector.leaves.items()]


def joined(vectors: list[Vector]) -> Vector:
    return Vector({name: leaf for vector in vectors for name, leaf in vector.leaves.items()})
