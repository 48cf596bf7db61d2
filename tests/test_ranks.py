"""Several ranks give one process's numbers: its bits in deterministic mode, 1e-10 otherwise."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import headway as hw
from conftest import distance, experiment, made_by
from headway.engine.ranks import Ranks
from headway.engine.shares import blocks, longest_first, waves
from headway.engine.simulation import begin, simulate, spread_over
from headway.engine.states import ClientStates
from headway.errors import ClientError, UserError
from headway.trees import leaves_of
from methods_under_test import EVERY
from ranks_at_work import on_ranks, returned

FEW = ("scaffold", "own median")
"""Methods of the ordinary suite: state on clients with messages of two fields, and a server that needs each upload."""
ALL = [pytest.param(name, marks=() if name in FEW else pytest.mark.soak) for name in EVERY]


def state_of(progress: Any) -> list[Any]:
    best = [] if progress.best is None else [progress.best.theta, progress.best.buffers]
    return [progress.model.theta, progress.model.buffers, progress.model.server, *best]


def told(record: Any) -> str:
    """A record without what depends on the clock."""
    return json.dumps({name: value for name, value in record.items() if "seconds" not in name}, sort_keys=True)


Ended = tuple[list[str], Any, dict[int, Any]]
"""Records, model and server state, and clients' states by client."""


def played(chosen: Any, ranks: Ranks | None = None, executor: str = "serial") -> Ended:
    """A run in memory, by itself or as one rank of several; of several, a rank has the states that it holds."""
    hand, store = made_by(executor, chosen), ClientStates()
    spread = None if ranks is None else spread_over(ranks, chosen, store)
    progress, records = begin(chosen), []
    try:
        for record, progress in simulate(chosen, hand, store, progress, spread=spread):  # noqa: B020
            records.append(told(record))
    finally:
        hand.close()
    return records, state_of(progress), {client: store.get(client) for client in store.clients()}


def apart(chosen: Any, count: int, executor: str = "serial") -> tuple[list[dict[str, Any]], Ended]:
    """What each rank made of a run, beside what one process does."""
    alone = played(chosen)

    def work(ranks: Ranks) -> dict[str, Any]:
        records, state, held = played(chosen, ranks, executor)
        return {
            "same records": records == alone[0],
            "same bits": all(torch.equal(one, other) for one, other in zip(*map(leaves_of, (state, alone[1])))),
            "distance": distance(state, alone[1]),
            "of clients": max((distance(held[client], alone[2][client]) for client in held), default=0.0),
            "clients": sorted(held),
            "arrived": [json.loads(line)["clients"] for line in records]
            == [json.loads(line)["clients"] for line in alone[0]],
        }

    return list(returned(on_ranks(count, work))), alone


def check_equal(chosen: Any, count: int) -> None:
    found, (_, _, states) = apart(chosen, count)
    for one in found:
        assert one["same records"]
        assert one["same bits"]
        assert one["of clients"] == 0
    assert sorted(itertools.chain.from_iterable(one["clients"] for one in found)) == sorted(states)


@pytest.mark.parametrize("network", ["norm_free", pytest.param("batch_norm_dropout", marks=pytest.mark.soak)])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("name", ALL)
def test_deterministic_ranks_have_the_bits_of_one_process(name: str, count: int, network: str) -> None:
    """Model, server state, records, and each client's state, which one rank holds."""
    check_equal(experiment(EVERY[name], network, deterministic=True), count)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("name", ALL)
def test_ranks_agree_with_one_process(name: str, count: int) -> None:
    found, (_, _, states) = apart(experiment(EVERY[name], "batch_norm_dropout"), count)
    for one in found:
        assert one["arrived"]
        assert one["distance"] < 1e-10
        assert one["of clients"] < 1e-10
    assert sorted(itertools.chain.from_iterable(one["clients"] for one in found)) == sorted(states)


SETTINGS: dict[str, dict[str, Any]] = {
    "drawn twice": {"sampling": "replacement", "participation": 1.0},
    "cut short": {"dropout": 0.4, "stragglers": "partial"},
    "lost": {"dropout": 0.4},
    "invited beyond the cohort": {"over_selection": 0.5, "dropout": 0.3},
    "fewer clients than ranks": {"participation": 1 / 6},
    "one stream across rounds": {"batches": "continued", "steps": 5},
    "statistics of their own": {"buffers": "keep-local"},
    "everybody": {"participation": 1.0},
    "loss on all data": {"global_loss": True},
}


@pytest.mark.parametrize("kind", list(SETTINGS))
def test_every_kind_of_cohort_has_the_bits_of_one_process(kind: str) -> None:
    check_equal(experiment("scaffold", "batch_norm_dropout", deterministic=True, **SETTINGS[kind]), 3)


@pytest.mark.parametrize("executor", ["batched", "pool"])
def test_ranks_have_any_executor(executor: str) -> None:
    found, _ = (
        apart(experiment("fedacg", "batch_norm_dropout", participation=1.0), 2)
        if not executor
        else apart(experiment("fedacg", "batch_norm_dropout", participation=1.0), 2, executor)
    )
    assert max(one["distance"] for one in found) < 1e-10
