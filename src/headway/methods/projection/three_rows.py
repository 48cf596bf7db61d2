"""Three rows, for one client of GradMA-W: tensor operations only, so that it works under vmap and in CUDA graphs.

All eight sets of active rows are solved, and the best is chosen. For 32-bit numbers the products of the rows are
enough, which takes two passes over them (docs/decisions/0009).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from headway.methods.projection.rows import FLOOR, RANK, by_tensor, joined, units
from headway.tracing import is_tracing, is_transformed
from headway.vectors import Vector

PIECE = 1 << 13
"""Coordinates of one partial sum: few enough to round little, and for a batch of clients to fit a CPU's cache."""

Three = tuple[Vector, Vector, Vector]


def project_three(p: Vector, rows: Three) -> Vector:
    """p̃ for three rows over the whole model."""
    if not _short(p):
        return _project_exactly(p, rows)
    groups = _groups(p, rows)
    weights = _weights(torch.stack([group.products() for group in groups]).sum(0))
    return Vector({name: group.mixed(weights) for name, group in zip(p.leaves, groups, strict=True)})


def project_three_by_tensor(p: Vector, rows: Three) -> Vector:
    """p̃ of one problem for each parameter tensor, as the authors' program does it."""
    if not _short(p):
        pieces = zip(by_tensor(p), *(by_tensor(row) for row in rows), strict=True)
        return joined([_project_exactly(one, (first, second, third)) for one, first, second, third in pieces])
    groups = _groups(p, rows)
    weights = _weights(torch.stack([group.products() for group in groups]))
    named = zip(p.leaves, groups, strict=True)
    return Vector({name: group.mixed(weights[number]) for number, (name, group) in enumerate(named)})


def _short(p: Vector) -> bool:
    """Whether all numbers have at most 32 bits; products in float64 then lose nothing that the rows hold.

    In float32 the part of a unit row across another one at the angle a is known to 6e-8/a. The products in float64 give
    it to about 1e-15/a², which is more exact for every angle above 1e-7.
    """
    return all(leaf.dtype != torch.float64 for leaf in p.leaves.values())


class _Table:
    """One parameter tensor of p and of the three rows as a (4, d) table in float64, the fastest form on a CPU."""

    def __init__(self, leaves: list[Tensor]) -> None:
        self.like = leaves[0]
        self.table = torch.stack([leaf.reshape(-1) for leaf in leaves]).double()

    def products(self) -> Tensor:
        """All inner products, shape (4, 4), as sums of partial sums: one long sum would round more."""
        return torch.stack([piece @ piece.T for piece in torch.split(self.table, PIECE, 1)]).sum(0)

    def mixed(self, weights: Tensor) -> Tensor:
        """p's tensor plus each row's tensor times its weight; `weights` has shape (3,)."""
        return _mixed(self.table, weights).reshape(self.like.shape).to(self.like.dtype)


class _Pieces:
    """The same table, made twice and piece by piece: for a batch of clients the whole would not fit a CPU's cache."""

    def __init__(self, leaves: list[Tensor]) -> None:
        self.like = leaves[0]
        self.flat = [leaf.reshape(-1) for leaf in leaves]

    def _tables(self) -> Iterator[Tensor]:
        for pieces in zip(*(torch.split(flat, PIECE) for flat in self.flat), strict=True):
            yield torch.stack(pieces).double()

    def products(self) -> Tensor:
        return torch.stack([table @ table.T for table in self._tables()]).sum(0)

    def mixed(self, weights: Tensor) -> Tensor:
        moved = [_mixed(table, weights).to(self.like.dtype) for table in self._tables()]
        return torch.cat(moved).reshape(self.like.shape)


def _mixed(table: Tensor, weights: Tensor) -> Tensor:
    return table[0] + weights @ table[1:]


class _Separate:
    """The four tensors without a table: a compiler makes one pass of it, and on a GPU thin matrix products are slow."""

    def __init__(self, leaves: list[Tensor]) -> None:
        self.leaves = leaves

    def products(self) -> Tensor:
        wide = [leaf.double() for leaf in self.leaves]
        return torch.stack([torch.stack([_sum(one * other) for other in wide]) for one in wide])

    def mixed(self, weights: Tensor) -> Tensor:
        moved = self.leaves[0].double()
        for number, leaf in enumerate(self.leaves[1:]):
            moved = moved + leaf.double() * weights[number]
        return moved.to(self.leaves[0].dtype)


def _sum(values: Tensor) -> Tensor:
    """The sum of all values; on a CPU of partial sums, as compiled code adds one by one, where a GPU adds in a tree."""
    if values.device.type != "cpu":
        return values.sum()
    flat = values.reshape(-1)
    whole = flat.numel() // PIECE * PIECE
    return flat[:whole].reshape(-1, PIECE).sum(1).sum() + flat[whole:].sum()


def _groups(p: Vector, rows: Three) -> Sequence[_Table | _Pieces | _Separate]:
    """The tensors of p and the rows, grouped by parameter, in the form that is fastest where this runs."""
    leaves = [[one.leaves[name] for one in (p, *rows)] for name in p.leaves]
    if leaves[0][0].device.type != "cpu" or is_tracing():
        return [_Separate(group) for group in leaves]
    return [_Pieces(group) if is_transformed() else _Table(group) for group in leaves]


_DIRECTION = 1e-7
"""A unit row of 32-bit numbers at most this far from the span of others counts as lying in it."""


def _weights(products: Tensor) -> Tensor:
    """z of p̃ = p + Σ z_i M[i], shape (…, 3), from the inner products of (p, M[0], M[1], M[2]), shape (…, 4, 4).

    All eight sets of active rows are solved side by side, by elimination with unit rows; the set with the least
    violation is taken.
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
    """The root of a pivot, and whether it counts; a row in the span of those before it has the pivot 1 and False."""
    whether = square > _DIRECTION**2
    return torch.where(whether, square, 1.0).sqrt(), whether


def _project_exactly(p: Vector, rows: Three) -> Vector:
    """p̃ from orthogonalised rows, exact to 1e-9 even where they are nearly parallel."""
    wide, size = p.to(torch.float64), p.to(torch.float64).norm()
    unit_rows = units([row.to(torch.float64) for row in rows])
    basis, coordinates = _orthonormal(unit_rows)
    target = torch.stack([wide.dot(direction) for direction in basis]) / size.clamp(min=torch.finfo(size.dtype).tiny)
    change = (_closest(target, coordinates) - target) * size
    moved = wide
    for number, direction in enumerate(basis):
        moved = moved + direction * change[number]
    return Vector({name: leaf.to(p.leaves[name].dtype) for name, leaf in moved.leaves.items()})


def _orthonormal(rows: list[Vector]) -> tuple[list[Vector], Tensor]:
    """Gram–Schmidt, each row twice: directions q_j (zero where a row adds none) and c_ij = ⟨u_i, q_j⟩."""
    basis: list[Vector] = []
    table: list[list[Tensor]] = []
    for unit in rows:
        rest, found = unit, [torch.zeros_like(unit.norm()) for _ in rows]
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
    """The point of {⟨·, c_i⟩ ≥ 0} closest to `target`; both in the three coordinates of the orthonormal directions.

    For each set of active rows the candidate is the target's part orthogonal to them. It is the answer if its
    multipliers are not negative and the other rows' constraints hold; the candidate with the least violation is taken.
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
    """(Target minus its part in span(held), multipliers times the rows' lengths, whether the rows are independent).

    The multiplier of a row is −⟨target, e⟩, with e the unit direction of its part orthogonal to the other rows, which
    is why each row is orthogonalised last once.
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
