"""The order in which a client reads its samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from headway.random import Drawing
from headway.scenario import Scenario


@dataclass(frozen=True)
class BatchPlan:
    """One client's batches of one round."""

    rows: np.ndarray
    """Shape (K, batch): rows of the pool; padded with the first row of the batch."""
    counts: np.ndarray
    """Shape (K,): how many of them are samples."""
    epochs: np.ndarray
    """Shape (K,): the local epoch, counted from 0 in this round, that each step belongs to."""

    def __len__(self) -> int:
        return len(self.counts)


def planned_steps(scenario: Scenario, samples: int) -> int:
    """K: the local steps in a round of a client with this many samples."""
    in_epoch = -(-samples // min(scenario.batch_size, samples))
    return scenario.steps if scenario.steps is not None else scenario.epochs * in_epoch


def batch_sizes(scenario: Scenario, samples: int, cursor: int = 0) -> np.ndarray:
    """Shape (K,): the samples in each batch of a client's round, as in its `BatchPlan.counts`."""
    size = min(scenario.batch_size, samples)
    in_epoch = -(-samples // size)
    skipped = cursor % in_epoch if scenario.batches == "continued" else 0
    return _course(skipped, planned_steps(scenario, samples), in_epoch, size, in_epoch * size - samples)[0]


def has_short_batches(scenario: Scenario, sizes: np.ndarray) -> bool:
    """Whether some batch of clients of these sizes has fewer samples than the largest batch."""
    return bool((sizes % min(scenario.batch_size, int(sizes.max()))).any())


def plan(
    scenario: Scenario,
    rows: np.ndarray,
    seed: int,
    round: int,
    client: int,
    cursor: int,
    repeat: int = 0,
    drawing: Drawing | None = None,
) -> BatchPlan:
    """The batches of one client in one round. A last partial batch is kept: no sample is dropped.

    `reshuffled`: a new order for each epoch of each round, and of each turn where a client was drawn twice in a round.
    `continued`: one endless stream for each client; `cursor` is how many of its batches were read before.
    """
    size = min(scenario.batch_size, len(rows))
    in_epoch = -(-len(rows) // size)
    padding = in_epoch * size - len(rows)
    wanted = planned_steps(scenario, len(rows))
    continued = scenario.batches == "continued"
    start = cursor if continued else 0
    moment = () if continued else (round, repeat) if repeat else (round,)
    first, last = start // in_epoch, (start + wanted - 1) // in_epoch
    purpose, drawing = f"batches/{scenario.batches}", drawing or Drawing()
    orders: list[np.ndarray] = []
    for epoch in range(first, last + 1):
        orders.append(drawing.at(seed, purpose, client, epoch, *moment).permutation(rows))
        if padding:
            orders.append(np.full(padding, orders[-1][(in_epoch - 1) * size]))
    skipped = start - first * in_epoch
    table = (np.concatenate(orders) if len(orders) > 1 else orders[0]).reshape(-1, size)[skipped : skipped + wanted]
    return BatchPlan(table, *_course(skipped, wanted, in_epoch, size, padding))


@lru_cache(1024)
def _course(skipped: int, wanted: int, in_epoch: int, size: int, padding: int) -> tuple[np.ndarray, np.ndarray]:
    """(counts, epochs) of a plan: clients of the same size share them, and nobody writes into them."""
    positions = np.arange(skipped, skipped + wanted)
    counts = np.full(wanted, size)
    if padding:
        counts[positions % in_epoch == in_epoch - 1] = size - padding
    return counts, positions // in_epoch


class BatchPlanner:
    """Makes every client's batches. Those of the next round can be made while a device is busy with this one."""

    def __init__(self, scenario: Scenario, clients: Sequence[np.ndarray]) -> None:
        self._scenario, self._clients, self._drawing = scenario, clients, Drawing()
        self._round = 0
        self._ready: dict[int, BatchPlan] = {}

    def plan(self, client: int, round: int, cursor: int, repeat: int) -> BatchPlan:
        if round == self._round and not repeat and client in self._ready:
            return self._ready.pop(client)
        rows, seed = self._clients[client], self._scenario.seed
        return plan(self._scenario, rows, seed, round, client, cursor, repeat, self._drawing)

    def prepare(self, round: int, clients: Sequence[int]) -> None:
        """Make the batches of a coming round now; where one stream goes across rounds, its place is not known yet."""
        if self._scenario.batches == "continued" or round == self._round:
            return
        self._ready = {client: self.plan(client, round, 0, 0) for client in clients}
        self._round = round
