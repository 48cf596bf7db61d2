"""Sums over ranks: as one process would have added them up, bit for bit, or as fast as it goes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headway.engine.aggregate import Averaged
from headway.engine.ranks import Ranks
from headway.engine.sum_form import Flat, SumForm, fill, flattened

CHUNK = 1 << 20
"""Numbers that are sent at once along the chain: the next rank adds to them while this one adds to those after them."""


class ChainedSum:
    """Σ over all clients in the order of the cohort: the running sum goes from rank to rank, and each adds its own.

    Every number is added in serial's order, so the sum has serial's bits, whatever the number of ranks.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._running: Flat | None = None
        """What lies at the last rank between two waves."""

    def add(self, parts: Sequence[Averaged], form: SumForm, device: torch.device) -> None:
        """Add the clients of a wave: those of rank 0, then those of rank 1, …; `parts` are this rank's."""
        flats = [flattened(part) for part in parts]
        like = flattened(form.room(device))
        ranks, last = self._ranks, self._ranks.size - 1
        running = self._running or {kind: torch.full_like(room, -0.0) for kind, room in like.items()}  # −0 + x is x
        first_wave = self._running is None
        waiting = []
        for kind, total in running.items():
            own = [flat[kind] for flat in flats]
            for chunk, start in _chunks(total):
                if ranks.rank == last and not first_wave:
                    waiting.append(ranks.send(chunk.clone(), 0))
                if ranks.rank > 0:
                    ranks.receive(chunk, ranks.rank - 1)
                elif not first_wave:
                    ranks.receive(chunk, last)
                for one in own:
                    chunk += one[start : start + len(chunk)]
                if ranks.rank < last:
                    waiting.append(ranks.send(chunk, ranks.rank + 1))
        for wait in waiting:
            wait()
        self._running = running

    def total(self, form: SumForm, device: torch.device) -> Averaged:
        """The sum of all waves, on every rank."""
        assert self._running is not None, "nothing was added"
        for flat in self._running.values():
            self._ranks.spread(flat, self._ranks.size - 1)
        room = form.room(device)
        fill(room, self._running)
        return room


def _chunks(flat: Tensor) -> list[tuple[Tensor, int]]:
    return [(flat[start : start + CHUNK], start) for start in range(0, len(flat), CHUNK)]


def reduced(ranks: Ranks, own: Averaged | None, form: SumForm, device: torch.device) -> Averaged:
    """Σ over all ranks in float64, in one exchange; `own` is None for a rank without a client."""
    room = form.room(device)
    kinds = {kind: len(flat) for kind, flat in flattened(room).items()}
    count = sum(kinds.values())
    if own is None:
        flat = torch.zeros(count, dtype=torch.float64, device=device)
    else:
        flat = torch.cat([part.double() for part in flattened(own).values()])
    ranks.add_up(flat)
    parts = torch.split(flat, list(kinds.values()))
    fill(room, {kind: part.to(kind) for kind, part in zip(kinds, parts, strict=True)})
    return room
