"""What runs would cost: bytes from the method's traffic and the model's size, and time where it was measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import torch

from headway.data.participation import asked
from headway.engine.cost import Cost, cost
from headway.methods.spelling import method
from headway.models.networks import network
from headway.papers.plan import Run
from headway.runs.observer import Observer
from headway.runs.start import simulate
from headway.scenario import Scenario

_SHAPES: dict[str, tuple[tuple[int, ...], int]] = {
    "mnist": ((1, 28, 28), 10),
    "cifar10": ((3, 32, 32), 10),
    "cifar100": ((3, 32, 32), 100),
    "tiny-imagenet": ((3, 64, 64), 200),
    "femnist": ((1, 28, 28), 62),
    "celeba": ((3, 84, 84), 2),
    "shakespeare": ((80,), 80),
}
"""Shape of a sample and number of classes of the papers' data: an estimate must not need the data."""
TRIAL_ROUNDS = 3


@dataclass(frozen=True)
class Size:
    """Bytes of a model: its parameters, and what travels beside them (BatchNorm statistics)."""

    parameters: int
    buffers: int


@cache
def model_size(model: str, data: str) -> Size:
    with torch.device("meta"):
        module = network(model, *_SHAPES[data])
    parameters, buffers = (
        sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        for tensors in (module.parameters(), module.buffers())
    )
    return Size(parameters, buffers)


@cache
def price(spelled: str) -> Cost:
    return cost(method(spelled))


def traffic(run: Run) -> int | None:
    """Bytes down and up of a whole run; None where the number of clients is known to the data only."""
    scenario = run.scenario
    built = method(run.method)
    if built.pooled:
        return 0
    if scenario.clients == 0 and scenario.cohort_size is None:
        return None
    size, per = model_size(scenario.model, scenario.data), price(run.method)
    each = (per.down + per.up) * size.parameters + 2 * size.buffers
    return round(each * asked(scenario) * scenario.rounds)


Seconds = Callable[[Run], float | None]


def unknown(run: Run) -> float | None:
    """Nothing was measured."""
    return None


def trials(observer: Observer) -> Seconds:
    """Time from a short FedAvg trial of each scenario on this machine, times the method's passes.

    The first round is left out; evaluation is not multiplied. A pooled method trains one client in place of a cohort.
    """
    measured: dict[Scenario, tuple[float, float]] = {}

    def seconds(run: Run) -> float:
        rounds = run.scenario.rounds
        short = replace(run.scenario, method=None, seed=0, rate_decay=1.0, rounds=TRIAL_ROUNDS)
        if short not in measured:
            records = simulate("fedavg", short, observer=observer).records[1:]
            training = sum(record["seconds_training"] for record in records) / len(records)
            evaluation = sum(record["seconds_evaluation"] for record in records) / len(records)
            measured[short] = training, evaluation
        training, evaluation = measured[short]
        passes = price(run.method).passes / (asked(run.scenario) if method(run.method).pooled else 1)
        return rounds * (training * passes + evaluation)

    return seconds
