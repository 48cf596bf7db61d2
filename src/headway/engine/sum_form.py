"""The form of what is averaged in a round, and its tensors as flat ones: what ranks send each other.

A rank that has had no client yet does not know which fields a method uploads, so the form travels as JSON.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypedDict

import torch
from torch import Tensor

from headway.engine.aggregate import Averaged
from headway.trees import leaves_of
from headway.vectors import Vector


class _Leaf(TypedDict):
    """Type, shape and strides of a tensor: the order of later sums depends on how it lies in memory."""

    type: str
    shape: list[int]
    strides: list[int]


class _Written(TypedDict):
    """A form as JSON has it."""

    fields: dict[str, dict[str, _Leaf]]
    buffers: dict[str, _Leaf]
    measures: dict[str, _Leaf]


def _leaf(tensor: Tensor) -> _Leaf:
    kind = str(tensor.dtype).removeprefix("torch.")
    return {"type": kind, "shape": list(tensor.shape), "strides": list(torch.empty_like(tensor).stride())}


def _room(leaf: _Leaf, device: torch.device) -> Tensor:
    kind = getattr(torch, leaf["type"])
    return torch.empty_strided(leaf["shape"], leaf["strides"], dtype=kind, device=device)


@dataclass(frozen=True)
class SumForm:
    """Names, types, shapes and layouts of an `Averaged`."""

    written: str
    """As JSON."""

    @classmethod
    def of(cls, sum: Averaged) -> SumForm:
        written: _Written = {
            "fields": {
                name: {path: _leaf(leaf) for path, leaf in vector.leaves.items()}
                for name, vector in sum["fields"].items()
            },
            "buffers": {name: _leaf(leaf) for name, leaf in sum["buffers"].items()},
            "measures": {name: _leaf(leaf) for name, leaf in sum["measures"].items()},
        }
        return cls(json.dumps(written))

    @cached_property
    def digest(self) -> str:
        """Of names, types and shapes: what all ranks must have alike."""

        def bare(node: object) -> object:
            if not isinstance(node, dict):
                return node
            return {name: bare(child) for name, child in node.items() if name != "strides"}

        return hashlib.sha256(json.dumps(bare(json.loads(self.written))).encode()).hexdigest()[:16]

    def room(self, device: torch.device) -> Averaged:
        """Tensors of this form, to be filled."""
        written: _Written = json.loads(self.written)
        return {
            "fields": self._fields(written["fields"], device),
            "buffers": {name: _room(leaf, device) for name, leaf in written["buffers"].items()},
            "measures": {name: _room(leaf, device) for name, leaf in written["measures"].items()},
        }

    def _fields(self, fields: Mapping[str, Mapping[str, _Leaf]], device: torch.device) -> dict[str, Vector]:
        return {
            name: Vector({path: _room(leaf, device) for path, leaf in leaves.items()})
            for name, leaves in fields.items()
        }


Flat = dict[torch.dtype, Tensor]
"""All numbers of a tree, one after another, by type."""


def flattened(tree: object) -> Flat:
    """The numbers of a tree's tensors as one tensor for each type; a copy."""
    leaves = leaves_of(tree)
    kinds = sorted({leaf.dtype for leaf in leaves}, key=str)
    return {kind: torch.cat([leaf.reshape(-1) for leaf in leaves if leaf.dtype == kind]) for kind in kinds}


def fill(room: object, flat: Flat) -> None:
    """Write the numbers of `flattened` into the tensors of a tree of the same form."""
    done = dict.fromkeys(flat, 0)
    for leaf in leaves_of(room):
        start = done[leaf.dtype]
        done[leaf.dtype] = start + leaf.numel()
        leaf.copy_(flat[leaf.dtype][start : done[leaf.dtype]].reshape(leaf.shape))
