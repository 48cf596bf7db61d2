"""The order in which a client reads its samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headway.random import generator
from headway.scenario import Scenario


@dataclass(frozen=True)
class Plan:
    """One client's batches of one round."""

    rows: np.ndarray
    """Shape (K, batch): rows of the pool; padded with the first row of the batch."""
    counts: np.ndarray
    """Shape (K,): how many of them are samples."""
    epochs: np.ndarray
    """Shape (K,): the local epoch, counted from 0 in this round, that each step belongs to."""

    def __len__(self) -> int:
        return len(self.counts)


def plan(scenario: Scenario, rows: np.ndarray, seed: int, round: int, client: int, cursor: int) -> Plan:
    """The batches of one client in one round. A last partial batch is kept: no sample is dropped.

    `reshuffled`: a new order for each epoch of each round. `continued`: one endless stream for each client; `cursor`
    is how many of its batches were read before.
    """
    size = min(scenario.batch_size, len(rows))
    in_epoch = -(-len(rows) // size)
    wanted = scenario.steps if scenario.steps is not None else scenario.epochs * in_epoch
    start = cursor if scenario.batches == "continued" else 0
    batches: list[np.ndarray] = []
    for position in range(start, start + wanted):
        epoch, place = divmod(position, in_epoch)
        if not batches or place == 0:
            coordinates = (client, epoch) if scenario.batches == "continued" else (client, epoch, round)
            order = rows[generator(seed, f"batches/{scenario.batches}", *coordinates).permutation(len(rows))]
        batches.append(order[place * size : (place + 1) * size])
    epochs = np.array([position // in_epoch - start // in_epoch for position in range(start, start + wanted)])
    return _padded(batches, size, epochs)


def _padded(batches: list[np.ndarray], size: int, epochs: np.ndarray) -> Plan:
    table = np.stack([np.concatenate([batch, np.full(size - len(batch), batch[0])]) for batch in batches])
    return Plan(table, np.array([len(batch) for batch in batches]), epochs)
