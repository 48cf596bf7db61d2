"""Memory that two processes see, for arrays that would take long through a pipe."""

from __future__ import annotations

import mmap
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from headway.trees import tree_map

START_METHOD = "fork" if sys.platform == "linux" else "spawn"
"""How worker processes are started."""
_ALIGNED = 64
"""Bytes: arrays begin at multiples of it."""


@dataclass(frozen=True)
class SharedArray:
    """Where an array lies in shared memory."""

    start: int
    dtype: str
    shape: tuple[int, ...]


class SharedMemory:
    """Memory that two processes see, for arrays that would take long through a pipe. What does not fit is sent.

    It takes room only where something was written. One side writes, then tells the other; what is read without a copy
    must be done with before the next writing.
    """

    def __init__(self, size: int) -> None:
        self.memory = mmap.mmap(-1, size) if START_METHOD == "fork" else None

    def write(self, tree: object) -> object:
        """The tree with a `SharedArray` in place of each tensor that was written, and arrays for what did not fit."""
        end = 0

        def placed(leaf: torch.Tensor) -> SharedArray | np.ndarray:
            nonlocal end
            array = leaf.detach().cpu().numpy()
            start = -(-end // _ALIGNED) * _ALIGNED
            if self.memory is None or not array.size or start + array.nbytes > len(self.memory):
                return array
            end = start + array.nbytes
            where = SharedArray(start, array.dtype.str, array.shape)
            self._array(where)[...] = array
            return where

        return tree_map(placed, tree)

    def read(self, tree: object, *, copied: bool) -> Any:
        """The reverse of `write`: a tree of tensors."""

        def found(leaf: SharedArray | np.ndarray) -> torch.Tensor:
            array = self._array(leaf) if isinstance(leaf, SharedArray) else leaf
            return torch.from_numpy(array.copy() if copied else array)

        return tree_map(found, tree)

    def _array(self, where: SharedArray) -> np.ndarray:
        assert self.memory is not None
        return np.ndarray(where.shape, where.dtype, self.memory, where.start)
