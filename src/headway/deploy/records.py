"""`Record`: one message between the server and a site, and how trees of tensors become arrays of bytes in it.

A field is one flat array, the bytes of its tensors one after another. Names, types and shapes do not travel: both
sides know them, and a digest of them (`form_digest`) shows that they know the same.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from headway.deploy.codes import Code, Refused
from headway.engine.states import from_row, row_bytes
from headway.errors import shown
from headway.trees import Tree, leaves_of, moved, nbytes
from headway.vectors import Vector

SCHEMA = 1
"""Of the messages: a site and a server of different schemas refuse each other."""
LONGEST = 1 << 20
"""Characters of a text in a message."""

Scalar = str | int | float | bool


@dataclass(frozen=True)
class Record:
    """A message: its kind, named scalars, and named arrays of bytes. Anything else is refused."""

    kind: str
    values: Mapping[str, Scalar] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or not isinstance(self.values, Mapping):
            raise Refused(Code.BAD_MESSAGE, "a message has a kind and named values")
        for name, value in self.values.items():
            if not isinstance(name, str) or type(value) not in (str, int, float, bool):
                raise Refused(Code.BAD_MESSAGE, f"the value {shown(name)} of a message is no text and no number")
            if isinstance(value, str) and len(value) > LONGEST:
                raise Refused(Code.BAD_MESSAGE, f"the text {shown(name)} of a message is longer than {LONGEST}")
        for name, array in self.arrays.items():
            if not isinstance(name, str) or not isinstance(array, np.ndarray):
                raise Refused(Code.BAD_MESSAGE, f"the array {shown(name)} of a message is no array")
            if array.dtype != np.uint8 or array.ndim != 1:
                raise Refused(Code.BAD_MESSAGE, f"the array {shown(name)} of a message does not hold plain bytes")

    @property
    def nbytes(self) -> int:
        """The bytes of its arrays."""
        return sum(array.nbytes for array in self.arrays.values())


# ── trees ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def leaf_forms(tree: object, path: str = "") -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Path, type and shape of each tensor of a tree, in the order in which they are written."""
    if isinstance(tree, Tensor):
        yield path, str(tree.dtype).removeprefix("torch."), tuple(tree.shape)
        return
    children = tree.leaves if isinstance(tree, Vector) else tree
    if isinstance(children, list | tuple):
        children = dict(enumerate(children))
    assert isinstance(children, Mapping), f"{path}: a message holds tensors, not {type(tree).__name__}"
    for name, child in children.items():
        yield from leaf_forms(child, f"{path}/{name}")


def form_digest(tree: object) -> str:
    """A digest of the names, types and shapes of a tree, and of how numbers lie in bytes here."""
    lines = "\n".join(f"{path} {kind} {shape}" for path, kind, shape in leaf_forms(tree))
    return hashlib.sha256(f"{sys.byteorder}\n{lines}".encode()).hexdigest()


def flat(tree: object) -> np.ndarray:
    """A tree as one array of bytes."""
    return np.frombuffer(row_bytes(tree), np.uint8)


def tree_of(array: np.ndarray | None, like: Tree, name: str, code: Code = Code.BAD_MESSAGE) -> Tree:
    """The reverse of `flat`: a tree of the form of another, on its device. An array of another length is refused."""
    if array is None or array.nbytes != nbytes(like):
        held = "is not there" if array is None else f"has {array.nbytes} bytes"
        raise Refused(code, f"the field '{name}' {held}; this model's has {nbytes(like)}")
    leaves = leaves_of(like)
    return moved(from_row(array.tobytes(), like), leaves[0].device) if leaves else like
