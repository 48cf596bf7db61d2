"""Client rounds of unequal steps, batches and sizes in one shape."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from headway.engine.client_arrays import ClientArrays, HostArrays

NAMES = tuple(field.name for field in dataclasses.fields(ClientArrays))
Shapes = Mapping[str, tuple[int, ...]]
"""The least shape of some of the arrays, by name."""


def padded(clients: Sequence[HostArrays], least: Shapes = MappingProxyType({})) -> list[HostArrays]:
    """Arrays of unequal steps, batches and sizes as arrays of equal shape; what is padding has no effect."""
    equal: list[dict[str, np.ndarray]] = [{} for _ in clients]
    for name in NAMES:
        arrays = [getattr(client, name) for client in clients]
        shapes = {array.shape for array in arrays} | {least.get(name, arrays[0].shape)}
        shape = tuple(max(lengths) for lengths in zip(*shapes, strict=True))
        for one, array in zip(equal, arrays, strict=True):
            one[name] = array if array.shape == shape else grown(array, shape)
    return [ClientArrays(**one) for one in equal]


def grown(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The array with zeros after its end along every axis: row 0 of the samples, count 0, rate 0."""
    longer = np.zeros(shape, array.dtype)
    longer[tuple(slice(0, length) for length in array.shape)] = array
    return longer


def stacked(clients: Sequence[HostArrays], least: Shapes = MappingProxyType({})) -> HostArrays:
    """Arrays of several clients as one, padded, with a leading axis of clients."""
    equal = padded(clients, least)
    return ClientArrays(**{name: np.stack([getattr(one, name) for one in equal]) for name in NAMES})
