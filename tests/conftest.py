"""Small worlds for every test: unequal clients, few samples, float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from headway.engine.batched import Batched
from headway.engine.pool import Pool
from headway.engine.serial import Serial
from headway.engine.simulation import begin, simulate
from headway.engine.states import ClientStates
from headway.engine.world import World, build
from headway.methods.spelling import method
from headway.models.networks import Staged
from headway.random import built
from headway.scenario import Scenario

SIZES = (3, 17, 8, 24, 5, 11)


def unequal_clients(
    sizes: tuple[int, ...] = SIZES, features: int = 6, classes: int = 3, seed: int = 0
) -> dict[str, Any]:
    """Clients of unequal size with their own class mixes, and a test set: keyword arguments of `build`."""
    draw = np.random.default_rng(seed)
    centres = draw.normal(size=(classes, features))

    def samples(count: int, mix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        y = draw.choice(classes, count, p=mix)
        return centres[y] + 0.5 * draw.normal(size=(count, features)), y

    return {
        "clients": [samples(size, draw.dirichlet(np.ones(classes))) for size in sizes],
        "test": samples(40, np.ones(classes) / classes),
    }


def norm_free() -> nn.Module:
    return Staged(nn.Sequential(nn.Linear(6, 5), nn.Tanh()), nn.Linear(5, 3))


def group_norm() -> nn.Module:
    return Staged(nn.Sequential(nn.Linear(6, 8), nn.GroupNorm(2, 8), nn.ReLU()), nn.Linear(8, 3))


def batch_norm_dropout() -> nn.Module:
    return Staged(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.4)), nn.Linear(8, 3))


NETWORKS = {"norm_free": norm_free, "group_norm": group_norm, "batch_norm_dropout": batch_norm_dropout}

SMALL = Scenario(
    rounds=4, participation=0.5, epochs=2, batch_size=4, rate=0.1, precision="fp64", device="cpu", smoothing=0.5
)


def world(spelled: Any, network: str = "norm_free", **settings: Any) -> World:
    """A small world of unequal clients; six of them, three a round."""
    module = built(NETWORKS[network], 7, "test")
    return build(SMALL.changed(**settings), method(spelled), model=module, **unequal_clients())


EXECUTORS = {
    "serial": lambda rules: Serial(rules),
    "batched": lambda rules: Batched(rules),
    "pool": lambda rules: Pool(rules, deterministic=False, processes=2),
}


def played(
    chosen: World, executor: str = "serial", store: ClientStates | None = None
) -> tuple[list[dict[str, Any]], Any]:
    """Every record of a run in memory, and where it ended."""
    hand = EXECUTORS[executor](chosen.rules)
    progress = begin(chosen)
    records = []
    try:
        for record, progress in simulate(chosen, hand, store or ClientStates(), progress):  # noqa: B007, B020
            records.append(record)
    finally:
        hand.close()
    return records, progress


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
