"""Tasks of unequal steps, batches and sizes in one shape."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from headway.engine.local import Task
from headway.trees import tree_map


def padded(tasks: Sequence[Task], least: Mapping[str, tuple[int, ...]] = MappingProxyType({})) -> list[Task]:
    """Tasks of unequal steps, batches and sizes as tasks of equal shape; what is padding has no effect."""
    equal: list[dict[str, Any]] = [{} for _ in tasks]
    for field in dataclasses.fields(Task):
        arrays = [getattr(task, field.name) for task in tasks]
        shapes = {array.shape for array in arrays} | {least.get(field.name, arrays[0].shape)}
        shape = tuple(max(lengths) for lengths in zip(*shapes, strict=True))
        for one, array in zip(equal, arrays, strict=True):
            one[field.name] = array if array.shape == shape else grown(array, shape)
    return [Task(**one) for one in equal]


def grown(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The array with zeros after its end along every axis: row 0 of the pool, count 0, rate 0."""
    longer = np.zeros(shape, array.dtype)
    longer[tuple(slice(0, length) for length in array.shape)] = array
    return longer


def stacked(tasks: Sequence[Task], least: Mapping[str, tuple[int, ...]] = MappingProxyType({})) -> Task:
    """Tasks as one, padded, with a leading axis of clients."""
    return tree_map(lambda *arrays: np.stack(arrays), *padded(tasks, least))  # type: ignore[no-any-return]
