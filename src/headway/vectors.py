"""`Vector`: named tensors as one point in parameter space, with the arithmetic that the papers write.

    theta + lam * momentum          local - received          delta.dot(row)          gradient.norm()

A vector is a value: no operation changes its operands. It is a pytree, so `torch.func.vmap` and `torch.func.grad`
pass through it; inside `vmap` a vector is one client's, outside its leaves may carry a leading client axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from headway.tracing import is_concrete, is_tracing, is_transformed

Scalar = float | int | Tensor
_OnPairs = Callable[[list[Tensor], list[Tensor]], Sequence[Tensor]]


class Vector:
    """Named leaves θ = (θ_1, …, θ_L), in a fixed order."""

    __slots__ = ("leaves",)

    def __init__(self, leaves: Mapping[str, Tensor]) -> None:
        self.leaves: dict[str, Tensor] = dict(leaves)

    def map(self, function: Callable[[Tensor], Tensor]) -> Vector:
        return Vector({name: function(leaf) for name, leaf in self.leaves.items()})

    def zip(self, other: Vector, function: Callable[[Tensor, Tensor], Tensor]) -> Vector:
        """The vector of `function(leaf, other leaf)` for each name."""
        assert self.leaves.keys() == other.leaves.keys(), "vectors over different parameters"
        return Vector({name: function(leaf, other.leaves[name]) for name, leaf in self.leaves.items()})

    def __add__(self, other: Vector) -> Vector:
        return self._together(torch._foreach_add, other) if not is_transformed() else self.zip(other, torch.add)

    def __sub__(self, other: Vector) -> Vector:
        return self._together(torch._foreach_sub, other) if not is_transformed() else self.zip(other, torch.sub)

    def __mul__(self, factor: Scalar) -> Vector:
        if not is_transformed():
            return self.with_leaves(torch._foreach_mul(list(self.leaves.values()), factor))
        return self.map(lambda leaf: leaf * factor)

    def plus(self, factor: Scalar, other: Vector) -> Vector:
        """self + factor · other, in one pass where the factor is a number or the vectors are inside `torch.func`."""
        number = known(factor)
        if is_transformed():
            if isinstance(factor, Tensor):
                return self.zip(other, lambda leaf, step: torch.addcmul(leaf, step, factor.to(leaf.dtype)))
            return self.zip(other, lambda leaf, step: torch.add(leaf, step, alpha=number))
        if number is None:
            return self + factor * other
        others = [other.leaves[name] for name in self.leaves]
        return self.with_leaves(torch._foreach_add(list(self.leaves.values()), others, alpha=number))

    def _together(self, operation: _OnPairs, other: Vector) -> Vector:
        """An operation on all pairs of leaves in one call, which on a GPU is one kernel."""
        assert self.leaves.keys() == other.leaves.keys(), "vectors over different parameters"
        others = [other.leaves[name] for name in self.leaves]
        return self.with_leaves(operation(list(self.leaves.values()), others))

    __rmul__ = __mul__

    def __truediv__(self, divisor: Scalar) -> Vector:
        return self.map(lambda leaf: leaf / divisor)

    def __neg__(self) -> Vector:
        return self.map(torch.neg)

    def dot(self, other: Vector) -> Tensor:
        """⟨self, other⟩ over all leaves."""
        assert self.leaves.keys() == other.leaves.keys(), "vectors over different parameters"
        products = [(leaf * other.leaves[name]).sum() for name, leaf in self.leaves.items()]
        return torch.stack(products).sum()

    def square(self) -> Tensor:
        """‖self‖² over all leaves."""
        return self.dot(self) if is_transformed() else self.norm().square()

    def norm(self, dtype: torch.dtype | None = None) -> Tensor:
        """‖self‖₂ over all leaves, computed in `dtype` where one is given."""
        if is_transformed():
            wide = self if dtype is None else self.to(dtype)
            return wide.dot(wide).sqrt()
        leaves = list(self.leaves.values())
        return _norm_op(leaves) if is_tracing() and dtype is None else _norm(leaves, dtype)

    def zeros(self) -> Vector:
        return self.map(torch.zeros_like)

    def copy(self) -> Vector:
        return self.map(lambda leaf: leaf.detach().clone())

    def to(self, *args: Any) -> Vector:
        """The vector with `torch.Tensor.to(*args)` applied to every leaf."""
        return self.map(lambda leaf: leaf.to(*args))

    def with_leaves(self, leaves: Iterable[Tensor]) -> Vector:
        """A vector with these names and other tensors, in the same order."""
        return _unflatten(leaves, tuple(self.leaves))

    def __len__(self) -> int:
        """The number d of coordinates."""
        return sum(leaf.numel() for leaf in self.leaves.values())

    def flat(self) -> Tensor:
        """All coordinates in one tensor of shape (d,): a copy, for files, the wire and Gram matrices only."""
        return torch.cat([leaf.reshape(-1) for leaf in self.leaves.values()])

    def unflat(self, flat: Tensor) -> Vector:
        """The reverse of `flat`: a vector of this one's names and shapes from a tensor of shape (d,)."""
        pieces = torch.split(flat, [math.prod(leaf.shape) for leaf in self.leaves.values()])
        named = zip(self.leaves.items(), pieces, strict=True)
        return Vector({name: piece.reshape(leaf.shape) for (name, leaf), piece in named})

    def __repr__(self) -> str:
        return f"Vector({len(self.leaves)} leaves, {len(self)} coordinates)"


def known(scalar: Scalar) -> float | None:
    """The scalar as a Python number where that needs no wait for a device and no tracing is going on; else None."""
    return float(scalar) if not isinstance(scalar, Tensor) or is_concrete(scalar) else None


def _norm(leaves: list[Tensor], dtype: torch.dtype | None) -> Tensor:
    lengths = torch._foreach_norm(leaves, 2, dtype)
    return torch.linalg.vector_norm(torch.stack(list(lengths)))  # type: ignore[no-any-return]


@torch.library.custom_op("headway::norm", mutates_args=())
def _norm_op(leaves: list[Tensor]) -> Tensor:
    """The norm as one operation of a traced program: a compiler would split it into one for each leaf."""
    return _norm(leaves, None)


@_norm_op.register_fake
def _(leaves: list[Tensor]) -> Tensor:
    return leaves[0].new_empty(())


def _flatten(vector: Vector) -> tuple[list[Tensor], tuple[str, ...]]:
    return list(vector.leaves.values()), tuple(vector.leaves)


def _unflatten(leaves: Iterable[Tensor], names: tuple[str, ...]) -> Vector:
    vector = object.__new__(Vector)
    vector.leaves = dict(zip(names, leaves, strict=True))
    return vector


pytree.register_pytree_node(Vector, _flatten, _unflatten, serialized_type_name="headway.Vector")
