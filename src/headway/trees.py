"""Trees: nested dictionaries and records of vectors and tensors, such as the state that a slot keeps between rounds.

A tree is a pytree of `torch.utils._pytree`, so `torch.func.vmap` and `make_fx` take trees as arguments. The functions
here do what the pytree functions of the same names do, and faster for what trees mostly are: tensors, vectors,
dictionaries and the records that were registered by `register_record`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from headway.errors import UserError
from headway.vectors import Vector

Tree = TypeVar("Tree")
Record = TypeVar("Record")

_RECORDS: dict[type, tuple[str, ...]] = {}
"""The names of the fields of each registered record."""


def register_record(cls: type[Record]) -> type[Record]:
    """Makes a dataclass a tree: its fields are trees themselves, and a field that is None holds no tensors.

    To be written above `@dataclass(frozen=True)`. Instances then pass through `torch.func.vmap` and `make_fx`.
    """
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    assert all(field.init for field in fields), f"every field of {cls.__name__} must be an argument"
    pytree.register_dataclass(cls)
    _RECORDS[cls] = tuple(field.name for field in fields)
    return cls


def _fields(record: object) -> dict[str, object]:
    """The fields of a registered record, without those that are None."""
    named = ((name, getattr(record, name)) for name in _RECORDS[type(record)])
    return {name: child for name, child in named if child is not None}


def _record_of(kind: type, fields: Mapping[str, object]) -> object:
    """The reverse of `_fields`."""
    return kind(**{name: fields.get(name) for name in _RECORDS[kind]})


def tree_map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """`function` of every tensor of the tree, with the tensors at the same places of other trees of the same form."""
    if isinstance(tree, Tensor):
        return function(tree, *others)
    if isinstance(tree, Vector):
        further = ([other.leaves[name] for name in tree.leaves] for other in others)
        return tree.with_leaves(map(function, tree.leaves.values(), *further))
    if type(tree) is dict:
        return _map_named(function, tree, others)
    if type(tree) in _RECORDS:
        assert all(type(other) is type(tree) for other in others), "records of different types"
        return _record_of(type(tree), _map_named(function, _fields(tree), [_fields(other) for other in others]))
    return pytree.tree_map(function, tree, *others)


def _map_named(
    function: Callable[..., Any], trees: Mapping[str, object], others: Sequence[Mapping[str, object]]
) -> dict[str, object]:
    """`tree_map` of each of several named trees, with the trees of the same names."""
    assert all(other.keys() == trees.keys() for other in others), "trees of different names"
    return {name: tree_map(function, child, *(other[name] for other in others)) for name, child in trees.items()}


def leaves_of(tree: object) -> list[Tensor]:
    """All tensors of the tree, in the order of `pytree.tree_leaves`."""
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, Vector):
        return list(tree.leaves.values())
    if type(tree) is dict:
        return [leaf for child in tree.values() for leaf in leaves_of(child)]
    if type(tree) in _RECORDS:
        return leaves_of(_fields(tree))
    return list(pytree.tree_leaves(tree))


def leaves_like(tree: Any, form: Any) -> list[Tensor]:
    """All tensors of the tree, in the order that `form` has: a tree of the same names, perhaps in another order."""
    if isinstance(form, Vector):
        return [tree.leaves[name] for name in form.leaves]
    if type(form) is dict:
        assert tree.keys() == form.keys(), "trees of different names"
        return leaves_like([tree[name] for name in form], list(form.values()))
    if isinstance(form, tuple | list):
        assert len(tree) == len(form), "trees of different lengths"
        return list(chain.from_iterable(map(leaves_like, tree, form)))
    if type(form) in _RECORDS:
        return leaves_like(_fields(tree), _fields(form))
    return leaves_of(tree)


def named_leaves(tree: object) -> dict[str, Tensor]:
    """The tensors of a tree under their paths, such as `server/momentum/fc.weight`."""
    found: dict[str, Tensor] = {}

    def walk(node: object, path: str) -> None:
        children = node.leaves if isinstance(node, Vector) else _fields(node) if type(node) in _RECORDS else node
        if isinstance(children, Mapping):
            for name, child in children.items():
                walk(child, f"{path}/{name}" if path else str(name))
        else:
            assert isinstance(node, Tensor), f"{path}: state holds tensors and vectors, not {type(node).__name__}"
            found[path] = node

    walk(tree, "")
    return found


def conformed(tree: Tree, like: Tree, owner: str) -> Tree:
    """The tree in the order of `like`; a `UserError` if it has not the names, shapes and types of `like`.

    A slot's state must keep them from round to round. `owner` is how the error calls the slot.
    """
    held, wanted = named_leaves(tree), named_leaves(like)
    if held.keys() != wanted.keys():
        odd = sorted(held.keys() ^ wanted.keys())[0]
        raise UserError(f"{owner} changed its names: '{odd}' is not there both before and after")
    for name, leaf in wanted.items():
        if held[name].shape != leaf.shape or held[name].dtype != leaf.dtype:
            raise UserError(f"{owner}: '{name}' was {_form(leaf)} and became {_form(held[name])}")
    return refill(like, [held[name] for name in wanted])


def laid_out(tree: Tree, like: object) -> Tree:
    """A copy of the tree, each tensor with the strides of the tensor at its place in `like`.

    The order of a sum depends on the layout in memory, so a state keeps the layout it began with, also after a resume.
    """
    leaves = [leaf.detach() if leaf.requires_grad else leaf for leaf in leaves_of(tree)]
    room = [torch.empty_like(form, device=leaf.device) for leaf, form in zip(leaves, leaves_of(like), strict=True)]
    if room:
        torch._foreach_copy_(room, leaves)
    return refill(tree, room)


def _form(leaf: Tensor) -> str:
    return f"{str(leaf.dtype).removeprefix('torch.')}{tuple(leaf.shape)}"


def refill(tree: Tree, tensors: Iterable[Tensor]) -> Tree:
    """A tree of the same form with other tensors, given in the order of `leaves_of`."""
    left = iter(tensors)
    filled: Tree = _refilled(tree, left)
    assert next(left, None) is None, "more tensors than places"
    return filled


def _refilled(tree: Any, tensors: Iterator[Tensor]) -> Any:
    if isinstance(tree, Tensor):
        return next(tensors)
    if isinstance(tree, Vector):
        return tree.with_leaves([next(tensors) for _ in tree.leaves])
    if type(tree) is dict:
        return {name: _refilled(child, tensors) for name, child in tree.items()}
    if type(tree) in _RECORDS:
        return _record_of(type(tree), _refilled(_fields(tree), tensors))
    flat, structure = pytree.tree_flatten(tree)
    return pytree.tree_unflatten([next(tensors) for _ in flat], structure)


def stack(trees: Sequence[Tree]) -> Tree:
    """One tree whose tensors have a leading axis: row i holds the tensors of tree i."""
    stacked: Tree = tree_map(lambda *leaves: torch.stack(leaves), *trees)
    return stacked


def row(tree: Tree, index: int) -> Tree:
    """The tree at one place of a stack of trees: the reverse of `stack`."""
    return refill(tree, [leaf[index] for leaf in leaves_of(tree)])


def copied(tree: Tree) -> Tree:
    """A copy of the tree that shares no memory with it and holds no gradients."""
    return laid_out(tree, tree)


def moved(tree: Tree, device: torch.device | str) -> Tree:
    """The tree with its tensors on a device; tensors that are on it already are not copied."""
    return refill(tree, [leaf.to(device) for leaf in leaves_of(tree)])


def nbytes(tree: object) -> int:
    """The bytes that the tensors of the tree take when they are written one after another."""
    return sum(leaf.numel() * leaf.element_size() for leaf in leaves_of(tree))
