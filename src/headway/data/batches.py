"""The order in which a client reads its samples."""

from __future__ import annotations

from collections.abc import Sequence
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


def planned(scenario: Scenario, samples: int) -> int:
    """K: the local steps in a round of a client with so many samples."""
    in_epoch = -(-samples // min(scenario.batch_size, samples))
    return scenario.steps if scenario.steps is not None else scenario.epochs * in_epoch


def plan(scenario: Scenario, rows: np.ndarray, seed: int, round: int, client: int, cursor: int, visit: int = 0) -> Plan:
    """The batches of one client in one round. A last partial batch is kept: no sample is dropped.

    `reshuffled`: a new order for each epoch of each round, and of each visit where a client comes twice in a round.
    `continued`: one endless stream for each client; `cursor` is how many of its batches were read before.
    """
    size = min(scenario.batch_size, len(rows))
    in_epoch = -(-len(rows) // size)
    wanted = planned(scenario, len(rows))
    start = cursor if scenario.batches == "continued" else 0
    epochs = np.arange(start, start + wanted) // in_epoch - start // in_epoch
    batches: list[np.ndarray] = []
    for position in range(start, start + wanted):
        epoch, place = divmod(position, in_epoch)
        if not batches or place == 0:
            moment = () if scenario.batches == "continued" else (round, visit) if visit else (round,)
            order = rows[generator(seed, f"batches/{scenario.batches}", client, epoch, *moment).permutation(len(rows))]
        batches.append(order[place * size : (place + 1) * size])
    return _padded(batches, size, epochs)


def _padded(batches: list[np.ndarray], size: int, epochs: np.ndarray) -> Plan:
    counts = np.array([len(batch) for batch in batches])
    if (counts == size).all():
        return Plan(np.concatenate(batches).reshape(-1, size), counts, epochs)
    table = np.stack([np.concatenate([batch, np.full(size - len(batch), batch[0])]) for batch in batches])
    return Plan(table, counts, epochs)


class Planner:
    """Every client's batches. Those of the next round can be made while a device is busy with this one."""

    def __init__(self, scenario: Scenario, clients: Sequence[np.ndarray]) -> None:
        self._scenario, self._clients = scenario, clients
        self._round = 0
        self._ready: dict[int, Plan] = {}

    def plan(self, client: int, round: int, cursor: int, visit: int) -> Plan:
        if round == self._round and not visit and client in self._ready:
            return self._ready.pop(client)
        return plan(self._scenario, self._clients[client], self._scenario.seed, round, client, cursor, visit)

    def prepare(self, round: int, clients: Sequence[int]) -> None:
        """Batches of a round to come. One stream across rounds has none before its turn."""
        if self._scenario.batches == "continued" or round == self._round:
            return
        self._ready = {client: self.plan(client, round, 0, 0) for client in clients}
        self._round = round
