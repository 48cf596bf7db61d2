"""The arrays of clients that train at the same time on a GPU, which travel there in one copy."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from headway.engine.client_arrays import ClientArrays, DeviceArrays, HostArrays
from headway.engine.client_rounds import CohortRounds, Turn
from headway.engine.cuda_graphs import aligned
from headway.engine.padding import NAMES, Shapes, grown


class PinnedArrays:
    """Every client's arrays, the weights and the round, at fixed places on the device.

    They are made on the host in memory that the device can read by itself: in one of two places, so that the next ones
    can be made while the last ones still travel.
    """

    def __init__(self, example: HostArrays, shapes: Shapes, count: int, device: torch.device) -> None:
        ones = {
            name: torch.from_numpy(
                np.zeros(shapes.get(name, getattr(example, name).shape), getattr(example, name).dtype)
            )
            for name in NAMES
        }
        ones["weights"] = torch.zeros((), dtype=torch.float64)
        ones["round"] = torch.zeros((), dtype=torch.int64)
        sizes = {name: count * aligned(one) * one.element_size() for name, one in ones.items()}
        *starts, total = itertools.accumulate(sizes.values(), initial=0)

        def parts(memory: Tensor) -> dict[str, Tensor]:
            found = {}
            for (name, one), start in zip(ones.items(), starts, strict=True):
                part = memory[start : start + sizes[name]].view(one.dtype)
                form = (count, *one.shape), (aligned(one), *one.stride())
                found[name] = part.as_strided(*form, part.storage_offset())
            return found

        self._hosts = [torch.zeros(total, dtype=torch.uint8).pin_memory() for _ in range(2)]
        self._arrays = [{name: part.numpy() for name, part in parts(host).items()} for host in self._hosts]
        self._arrived = [torch.cuda.Event() for _ in self._hosts]  # type: ignore[no-untyped-call]
        self._device = torch.zeros(total, dtype=torch.uint8, device=device)
        self._host = 0
        self._expected: Turn | None = None
        tensors = parts(self._device)
        self.weights, self.round = tensors["weights"], tensors["round"][0]
        self.clients: DeviceArrays = ClientArrays(**{name: tensors[name] for name in NAMES})
        """Leaves have a leading axis of clients."""

    def load(self, rounds: CohortRounds, positions: Sequence[int]) -> None:
        """Send the arrays of the clients at these positions, unless they were expected and are on the host already."""
        if not rounds.turn.same_as(self._expected):
            chosen = rounds.at(positions)
            arrays = {name: [getattr(client.arrays, name) for client in chosen] for name in NAMES}
            self._write(arrays, [client.weight for client in chosen])
        self._expected = None
        self._host = 1 - self._host
        self._arrays[self._host]["round"][:] = rounds.turn.round
        self._device.copy_(self._hosts[self._host], non_blocking=True)
        self._arrived[self._host].record()

    def expect(self, turn: Turn, arrays: HostArrays) -> None:
        """Write what the next load will send, if it is of this turn: all its clients, those with fewer steps first."""
        order = np.argsort(arrays.steps, kind="stable")
        self._write({name: getattr(arrays, name)[order] for name in NAMES}, turn.weights[order])
        self._expected = turn

    def _write(self, arrays: Mapping[str, np.ndarray | list[np.ndarray]], weights: np.ndarray | list[float]) -> None:
        """Arrays on the host, stacked or one by one. Places without a client repeat the first, with weight 0."""
        host, count = 1 - self._host, len(weights)
        self._arrived[host].synchronize()
        into = self._arrays[host]
        into["weights"][:count], into["weights"][count:] = weights, 0
        for name, parts in arrays.items():
            whole = into[name]
            shape = whole.shape[1:]
            if not isinstance(parts, np.ndarray):
                parts = [part if part.shape == shape else grown(part, shape) for part in parts]
            whole[:count] = parts
            whole[count:] = whole[0]
