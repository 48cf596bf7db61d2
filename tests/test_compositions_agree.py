"""Compositions that the items play have serial's numbers in every executor and on two ranks, compiled too."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conftest import COMPILED, COMPILING, OTHERS, distance, experiment, made_by, played
from headway.engine.experiment import Experiment
from headway.engine.ranks import Ranks
from headway.engine.simulation import begin, simulate, spread_over
from headway.engine.states import ClientStates
from headway.papers.items import presets
from headway.papers.plan import plan
from methods_under_test import EVERY
from ranks_at_work import on_ranks, returned

PLAYED = sorted(
    {
        run.method.replace("beta2=0.99", "beta2=0.99,eps=0.001") if "adamw" in run.method else run.method
        for paper in ("compositions", "diloco", "fl-simulator")
        for one in presets(paper).values()
        for run in plan(one).runs
        if not run.method.startswith("snoo")
    }
)
"""Every spelling of the three sets of items; AdamW's ε is larger, as in `methods_under_test.FORMS`."""
FEW = {"scaffold+acg:lam=0.85", "fedavg+lookbehind:rho=0.15,lam=0.85", "feddyn:alpha=0.1+sam:rho=0.1"}
ALL = [pytest.param(spelled, marks=() if spelled in FEW else pytest.mark.soak) for spelled in PLAYED]
SETTINGS: dict[str, Any] = {"clipping": "corrected", "clip": 0.5, "score_received": True}


def state_of(progress: Any) -> list[Any]:
    return [progress.model.theta, progress.model.buffers, progress.model.server]


def check(chosen: Experiment, executor: str) -> None:
    mine, theirs = ClientStates(), ClientStates()
    (one, end), (two, other) = played(chosen, "serial", mine), played(chosen, executor, theirs)
    assert distance(state_of(end), state_of(other)) < 1e-10
    assert mine.states.keys() == theirs.states.keys()
    assert all(distance(mine.states[client], theirs.states[client]) < 1e-10 for client in mine.states)
    for name in ("train_loss", "received_loss", "loss"):
        assert [record[name] for record in one] == pytest.approx([record[name] for record in two], abs=1e-10)


@pytest.mark.parametrize("executor", [*OTHERS, *COMPILED])
@pytest.mark.parametrize("spelled", ALL)
def test_a_composition_agrees_in_every_executor(spelled: str, executor: str) -> None:
    check(experiment(spelled, "batch_norm_dropout", **SETTINGS), executor)


COMPILING_SECONDS = 1800.0
"""Each rank compiles by itself, on a busy machine too."""


def over_ranks(chosen: Experiment, executor: str) -> None:
    """Two ranks have the numbers that one process has with serial."""
    records, end = played(chosen)

    def work(ranks: Ranks) -> tuple[float, list[float], list[list[int]]]:
        hand, store, progress = made_by(executor, chosen), ClientStates(), begin(chosen)
        told = []
        try:
            for record, progress in simulate(chosen, hand, store, progress, spread=spread_over(ranks, chosen, store)):  # noqa: B007, B020
                told.append(json.loads(json.dumps(record)))
        finally:
            hand.close()
        losses = [one["received_loss"] for one in told]
        return distance(state_of(progress), state_of(end)), losses, [one["clients"] for one in told]

    for gap, losses, clients in returned(on_ranks(2, work, seconds=COMPILING_SECONDS)):
        assert gap < 1e-10
        assert losses == pytest.approx([record["received_loss"] for record in records], abs=1e-10)
        assert clients == [list(record["clients"]) for record in records]


@pytest.mark.parametrize("spelled", ALL)
def test_a_composition_agrees_on_two_ranks(spelled: str) -> None:
    over_ranks(experiment(spelled, "batch_norm_dropout", **SETTINGS), "serial")


@pytest.mark.parametrize(
    "spelled",
    [
        pytest.param(spelled, marks=[*COMPILING, pytest.mark.soak])
        for spelled in (*PLAYED, *(given for given in EVERY.values() if isinstance(given, str)))
    ],
)
def test_compiled_ranks_agree_with_one_process(spelled: str) -> None:
    over_ranks(experiment(spelled, "norm_free", score_received=True), "serial:compiled")
