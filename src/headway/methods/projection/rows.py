"""What both programmes share: rows of length 1, parts of a vector, and one vector for each tensor."""

from __future__ import annotations

import torch
from torch import Tensor

from headway.vectors import Vector

FLOOR = 1e-30
"""Rows at most this long, relative to the longest, are dropped."""
RANK = 1e-10
"""A unit row nearer than this to the span of others is in it."""


def units(rows: list[Vector]) -> list[Vector]:
    """Rows of length 1; those under the floor are zero."""
    largest = [torch.stack([_largest(leaf) for leaf in row.leaves.values()]).max() for row in rows]
    safe = [torch.where(high > 0, high, 1.0) for high in largest]
    shrunk = [row / high for row, high in zip(rows, safe, strict=True)]  # so that no square under- or overflows
    norms = [row.norm() * high for row, high in zip(shrunk, safe, strict=True)]
    limit = FLOOR * torch.stack(norms).max()
    return [
        row * torch.where((norm > limit) & (norm > 0), high / torch.where(norm > 0, norm, 1.0), 0.0)
        for row, norm, high in zip(shrunk, norms, safe, strict=True)
    ]


def _largest(leaf: Tensor) -> Tensor:
    return leaf.abs().max() if leaf.numel() else leaf.sum()


def without(vector: Vector, basis: list[Vector]) -> Vector:
    """The vector less its parts along orthonormal directions, taken away twice against rounding."""
    for _ in range(2):
        for direction in basis:
            vector = vector - direction * vector.dot(direction)
    return vector


def by_tensor(vector: Vector) -> list[Vector]:
    """One vector for each parameter tensor: the scope of the authors' program."""
    return [Vector({name: leaf}) for name, leaf in vector.leaves.items()]


def joined(vectors: list[Vector]) -> Vector:
    return Vector({name: leaf for vector in vectors for name, leaf in vector.leaves.items()})
