"""A method's iterates in float64, over cohorts in which clients of unequal size return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from conftest import SMALL, experiment, norm_free, unequal_clients
from headway.data.cohort import Cohort
from headway.engine.building import build
from headway.engine.experiment import Experiment
from headway.engine.round import run_round
from headway.engine.serial import Serial
from headway.engine.server import initial_state
from headway.engine.states import ClientStates
from headway.methods.spelling import method
from headway.random import built


def _cohorts(chosen: Experiment) -> list[Sequence[int]]:
    """Everybody, or three of six in turn."""
    if chosen.population < 6 or chosen.scenario.participation == 1.0:
        return [range(chosen.population)] * chosen.scenario.rounds
    return [[number % 6, (number + 2) % 6, (number + 3) % 6] for number in range(1, chosen.scenario.rounds + 1)]


def single(spelled: Any, **settings: Any) -> Experiment:
    """An experiment of one client."""
    module = built(norm_free, 7, "test")
    return build(SMALL.changed(**settings), method(spelled), model=module, **unequal_clients((24,)))


def iterates(
    spelled: Any, sent: bool = False, cohorts: Sequence[Sequence[int]] | None = None, **settings: Any
) -> list[torch.Tensor]:
    """θ after each round, of three clients in turn unless cohorts are given.

    With `sent` it is φ, the model of the message that follows. A centralised method has one client.
    """
    clients = settings.pop("clients", None)
    chosen = single(spelled, **settings) if clients == 1 else experiment(spelled, **settings)
    model, hand, store = initial_state(chosen), Serial(chosen), ClientStates()
    found = []
    with chosen.arithmetic():
        for number, cohort in enumerate(cohorts if cohorts and chosen.population > 1 else _cohorts(chosen), 1):
            model, _ = run_round(chosen, model, store, hand, Cohort(tuple(cohort)), number)
            at = chosen.method.message(model.theta, model.server)["model"] if sent else model.theta
            found.append(at.flat())
    return found


def gap(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> float:
    """The largest difference of two sequences."""
    return max(float((one - other).abs().max()) for one, other in zip(left, right, strict=True))
