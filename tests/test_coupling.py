"""Networks whose samples change each other: no executor lets rows that only fill a batch reach them."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conftest import NETWORKS, SMALL, distance, unequal_clients, world
from coupled import COUPLED, averaged_by_hand, coupled_world
from demanding import EVERY
from headway.engine import coupling
from headway.engine.batched import alike
from headway.engine.choice import choose, made
from headway.engine.executor import CannotExecute, Executor
from headway.engine.simulation import begin, simulate
from headway.engine.states import ClientStates
from headway.engine.world import World, build
from headway.errors import UserError
from headway.methods.method import Method
from headway.methods.spelling import method

compiling = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs a C++ compiler"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.soak,
]
EAGER = ("serial", "batched", "pool")
COMPILED = tuple(f"{name}:compiled" for name in EAGER)
EXECUTORS = [*EAGER, *(pytest.param(name, marks=compiling) for name in COMPILED)]


def ended(chosen: World, executor: Executor, store: ClientStates | None = None) -> Any:
    try:
        return list(simulate(chosen, executor, store or ClientStates(), begin(chosen)))[-1][1]
    finally:
        executor.close()


def numbers(model: Any) -> dict[str, Tensor]:
    return {**model.theta.leaves, **model.buffers}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("network", list(COUPLED))
def test_a_network_that_couples_samples_ends_as_in_a_plain_loop(network: str, executor: str) -> None:
    chosen = coupled_world(network=network)
    end = ended(chosen, made(executor, chosen))
    by_hand = averaged_by_hand(chosen)
    assert distance({name: by_hand[name] for name in numbers(end.model)}, numbers(end.model)) < 1e-10
    assert by_hand.keys() == numbers(end.model).keys()
