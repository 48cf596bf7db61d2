"""`Vector`: a point in parameter space, kept as named tensors, with the arithmetic the papers write.

    theta + lam * momentum          local - received          delta.dot(row)          gradient.norm()

A vector is a value: no operation changes its operands. It is a pytree, so `torch.func.vmap` and `torch.func.grad`
pass through it; inside `vmap` a vector is one client's, outside its leaves may carry a leading client axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from headway.eager import at_hand, traced, transformed
from headway.errors import UserError

Scalar = float | int | Tensor


class Vector:
    """Named leaves θ = (θ_1, …, θ_L), in a fixed order."""

    __slots__ = ("leaves",)

    def __init__(self, leaves: Mapping[str, Tensor]) -> None:
        self.leaves: dict[str, Tensor] = dict(leaves)

    def map(self, function: Callable[[Tensor], Tensor]) -> Vector:
        return Vector({name: function(leaf) for name, leaf in self.leaves.items()})

    def zip(self, other: Vector, function: Callable[[Tensor, Tensor], Tensor]) -> Vector:
        """`function` on each pair of leaves."""
        assert self.leaves.keys() == other.leaves.keys(), "vectors over different parameters"
        return Vector({name: function(leaf, other.leaves[name]) for name, leaf in self.leaves.items()})

    def __add__(self, other: Vector) -> Vector:
        return self._together(torch._foreach_add, other) if not transformed() else self.zip(other, torch.add)

    def __sub__(self, other: Vector) -> Vector:
        return self._together(torch._foreach_sub, other) if not transformed() else self.zip(other, torch.sub)

    def __mul__(self, factor: Scalar) -> Vector:
        if not transformed():
            return _unflatten(torch._foreach_mul(list(self.leaves.values()), factor), tuple(self.leaves))
        return self.map(lambda leaf: leaf * factor)

    def plus(self, factor: Scalar, other: Vector) -> Vector:
        """self + factor · other, in one pass where the factor is known or vectors are transformed."""
        number = known(factor)
        if transformed():
            if isinstance(factor, Tensor):
                return self.zip(other, lambda leaf, step: torch.addcmul(leaf, step, factor.to(leaf.dtype)))
            return self.zip(other, lambda leaf, step: torch.add(leaf, step, alpha=number))
        if number is None:
            return self + factor * other
        others = [other.leaves[name] for name in self.leaves]
        return _unflatten(torch._foreach_add(list(self.leaves.values()), others, alpha=number), tuple(self.leaves))

    def _together(self, operation: Any, other: Vector) -> Vector:
        """One operation over all leaves: one call, and on a GPU one kernel."""
        assert self.leaves.keys() == other.leaves.keys(), "vectors over different parameters"
        others = [other.leaves[name] for name in self.leaves]
        return _unflatten(operation(list(self.leaves.values()), others), tuple(self.leaves))

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
        return self.dot(self) if transformed() else self.norm().square()

    def norm(self, dtype: torch.dtype | None = None) -> Tensor:
        """‖self‖₂ over all leaves; `dtype` is the type it is computed in, where that is not their own."""
        if transformed():
            wide = self if dtype is None else self.to(dtype)
            return wide.dot(wide).sqrt()
        leaves = list(self.leaves.values())
        return _norm_op(leaves) if traced() and dtype is None else _norm(leaves, dtype)

    def zeros(self) -> Vector:
        return self.map(torch.zeros_like)

    def copy(self) -> Vector:
        return self.map(lambda leaf: leaf.detach().clone())

    def to(self, *args: Any) -> Vector:
        return self.map(lambda leaf: leaf.to(*args))

    def __len__(self) -> int:
        """The number of coordinates d."""
        return sum(leaf.numel() for leaf in self.leaves.values())

    def flat(self) -> Tensor:
        """One tensor of shape (d,): for files, the wire and Gram matrices only."""
        return torch.cat([leaf.reshape(-1) for leaf in self.leaves.values()])

    def unflat(self, flat: Tensor) -> Vector:
        """A vector of this one's shapes from a tensor of shape (d,)."""
        pieces = torch.split(flat, [math.prod(leaf.shape) for leaf in self.leaves.values()])
        named = zip(self.leaves.items(), pieces, strict=True)
        return Vector({name: piece.reshape(leaf.shape) for (name, leaf), piece in named})

    def __repr__(self) -> str:
        return f"Vector({len(self.leaves)} leaves, {len(self)} coordinates)"


def known(scalar: Scalar) -> float | None:
    """A number that can be had without waiting for a device, and not while a program is being traced."""
    return float(scalar) if not isinstance(scalar, Tensor) or at_hand(scalar) else None


def _norm(leaves: list[Tensor], dtype: torch.dtype | None) -> Tensor:
    lengths = torch._foreach_norm(leaves, 2, dtype)
    return torch.linalg.vector_norm(torch.stack(list(lengths)))  # type: ignore[no-any-return]


@torch.library.custom_op("headway::norm", mutates_args=())
def _norm_op(leaves: list[Tensor]) -> Tensor:
    """The norm as one operation of a traced program: a compiler would take the list of lengths apart."""
    return _norm(leaves, None)


@_norm_op.register_fake
def _(leaves: list[Tensor]) -> Tensor:
    return leaves[0].new_empty(())


def _flatten(vector: Vector) -> tuple[list[Tensor], tuple[str, ...]]:
    return list(vector.leaves.values()), tuple(vector.leaves)


def _unflatten(leaves: Iterable[Any], names: tuple[str, ...]) -> Vector:
    vector = object.__new__(Vector)
    vector.leaves = dict(zip(names, leaves, strict=True))
    return vector


pytree.register_pytree_node(Vector, _flatten, _unflatten, serialized_type_name="headway.Vector")


# Trees: nested dictionaries of vectors and tensors, as slots keep them.


def tree_map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """`function` on every tensor of equally shaped trees, as `pytree` has it, and faster."""
    if isinstance(tree, Tensor):
        return function(tree, *others)
    if isinstance(tree, Vector):
        parts = ((leaf, *(other.leaves[name] for other in others)) for name, leaf in tree.leaves.items())
        return _unflatten([function(*part) for part in parts], tuple(tree.leaves))
    if type(tree) is dict:
        assert all(other.keys() == tree.keys() for other in others), "trees of different names"
        return {name: tree_map(function, child, *(other[name] for other in others)) for name, child in tree.items()}
    return pytree.tree_map(function, tree, *others)


def leaves_of(tree: Any) -> list[Tensor]:
    """Its tensors in the order of `pytree`, which is slower at what trees are mostly made of."""
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, Vector):
        return list(tree.leaves.values())
    if type(tree) is dict:
        return [leaf for child in tree.values() for leaf in leaves_of(child)]
    return list(pytree.tree_leaves(tree))


def leaves_like(tree: Any, form: Any) -> list[Tensor]:
    """Its tensors in the order of another tree of the same names, whatever the order of its own."""
    if isinstance(form, Vector):
        return [tree.leaves[name] for name in form.leaves]
    if type(form) is dict:
        assert tree.keys() == form.keys(), "trees of different names"
        return [leaf for name, child in form.items() for leaf in leaves_like(tree[name], child)]
    if isinstance(form, tuple | list):
        return [leaf for part, child in zip(tree, form, strict=True) for leaf in leaves_like(part, child)]
    return leaves_of(tree)


def named_leaves(tree: Any) -> dict[str, Tensor]:
    """The tensors of a tree under their paths, such as `server/momentum/fc.weight`."""
    found: dict[str, Tensor] = {}

    def walk(node: Any, path: str) -> None:
        children = node.leaves if isinstance(node, Vector) else node
        if isinstance(children, Mapping):
            for name, child in children.items():
                walk(child, f"{path}/{name}" if path else str(name))
        else:
            assert isinstance(node, Tensor), f"{path}: state holds tensors and vectors, not {type(node).__name__}"
            found[path] = node

    walk(tree, "")
    return found


def conformed(tree: Any, like: Any, owner: str) -> Any:
    """The tree in the order of another one of the same names, shapes and types; a slot's state must keep them."""
    held, wanted = named_leaves(tree), named_leaves(like)
    if held.keys() != wanted.keys():
        odd = sorted(held.keys() ^ wanted.keys())[0]
        raise UserError(f"{owner} changed its names: '{odd}' is not there both before and after")
    for name, leaf in wanted.items():
        if held[name].shape != leaf.shape or held[name].dtype != leaf.dtype:
            raise UserError(f"{owner}: '{name}' was {_form(leaf)} and became {_form(held[name])}")
    return refill(like, [held[name] for name in wanted])


def laid_out(tree: Any, like: Any) -> Any:
    """A copy of a tree whose leaves lie in memory as those of another.

    The order of a sum depends on the layout, so what is kept always has the layout it began with, also after a resume.
    """
    leaves = [leaf.detach() if leaf.requires_grad else leaf for leaf in leaves_of(tree)]
    room = [torch.empty_like(form, device=leaf.device) for leaf, form in zip(leaves, leaves_of(like), strict=True)]
    if room:
        torch._foreach_copy_(room, leaves)
    return refill(tree, room)


def _form(leaf: Tensor) -> str:
    return f"{str(leaf.dtype).removeprefix('torch.')}{tuple(leaf.shape)}"


def refill(tree: Any, tensors: Iterable[Tensor]) -> Any:
    """A tree of this shape with other tensors, in the order of `leaves_of`."""
    left = iter(tensors)
    filled = _refilled(tree, left)
    assert next(left, None) is None, "more tensors than places"
    return filled


def _refilled(tree: Any, tensors: Iterator[Tensor]) -> Any:
    if isinstance(tree, Tensor):
        return next(tensors)
    if isinstance(tree, Vector):
        return _unflatten([next(tensors) for _ in tree.leaves], tuple(tree.leaves))
    if type(tree) is dict:
        return {name: _refilled(child, tensors) for name, child in tree.items()}
    flat, structure = pytree.tree_flatten(tree)
    return pytree.tree_unflatten([next(tensors) for _ in flat], structure)


def stack(trees: list[Any]) -> Any:
    """One tree whose leaves carry a leading axis, one row for each given tree."""
    return tree_map(lambda *leaves: torch.stack(leaves), *trees)


def row(tree: Any, index: int) -> Any:
    return tree_map(lambda leaf: leaf[index], tree)


def copied(tree: Any) -> Any:
    """What is kept is copied: no view of a caller's memory stays behind."""
    return laid_out(tree, tree)


def moved(tree: Any, device: torch.device | str) -> Any:
    return tree_map(lambda leaf: leaf.to(device), tree)


def nbytes(tree: Any) -> int:
    """The bytes its tensors take when written one after another."""
    return sum(leaf.numel() * leaf.element_size() for leaf in leaves_of(tree))
