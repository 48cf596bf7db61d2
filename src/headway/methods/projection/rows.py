"""What `three_rows` and `many_rows` share: rows of unit length, and a vector taken apart into its tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from headway.vectors import Vector

FLOOR = 1e-30
"""Rows at most this long, relative to the longest one, are dropped."""
RANK = 1e-10
"""A unit row whose distance to the span of others is at most this counts as lying in it."""


def units(rows: list[Vector]) -> list[Vector]:
    """The rows scaled to length 1; those below the floor become zero."""
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
    """The vector minus its parts along orthonormal directions, subtracted twice against rounding."""
    for _ in range(2):
        for direction in basis:
            vector = vector - direction * vector.dot(direction)
    return vector


def by_tensor(vector: Vector) -> list[Vector]:
    """A vector for each parameter tensor: the authors' program solves one problem for each."""
    return [Vector({name: leaf}) for name, leaf in vector.leaves.items()]


def joined(vectors: list[Vector]) -> Vector:
    """One vector of the tensors of several: the inverse of `by_tensor`."""
    return Vector({name: leaf for vector in vectors for name, leaf in vector.leaves.items()})
