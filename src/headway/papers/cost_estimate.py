"""What a run would cost, for a dry run: its bytes from the method's traffic and the model's size, its time by trial."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import torch

from headway.data.participation import invited
from headway.engine.cost import Cost, cost
from headway.methods.spelling import method
from headway.models.networks import network
from headway.papers.plan import Run
from headway.runs.observer import Observer
from headway.runs.start import simulate
from headway.scenario import Scenario

_SAMPLES: dict[str, tuple[tuple[int, ...], int]] = {
    "mnist": ((1, 28, 28), 10),
    "cifar10": ((3, 32, 32), 10),
    "cifar100": ((3, 32, 32), 100),
    "tiny-imagenet": ((3, 64, 64), 200),
    "femnist": ((1, 28, 28), 62),
    "celeba": ((3, 84, 84), 2),
    "shakespeare": ((80,), 80),
}
"""(Shape of a sample, number of classes) of the papers' data: an estimate works without the data."""
TRIAL_ROUNDS = 3


def _sample(data: str) -> tuple[tuple[int, ...], int]:
    """The shape of a sample and the number of classes; of a text in blocks its name has the length."""
    name, _, length = data.partition(":")
    return ((int(length or 80),), 80) if name == "shakespeare-text" else _SAMPLES[data]


@dataclass(frozen=True)
class ModelBytes:
    """Bytes of a model: its parameters, and the buffers sent beside them (BatchNorm statistics)."""

    parameters: int
    buffers: int


@cache
def model_bytes(model: str, data: str) -> ModelBytes:
    """Bytes of parameters and buffers of a named model for named data, counted without taking memory for it."""
    with torch.device("meta"):
        module = network(model, *_sample(data))
    parameters, buffers = (
        sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        for tensors in (module.parameters(), module.buffers())
    )
    return ModelBytes(parameters, buffers)


@cache
def method_cost(spelled: str) -> Cost:
    """Traffic and passes of a method, relative to FedAvg's."""
    return cost(method(spelled))


def run_bytes(run: Run) -> int | None:
    """Bytes down and up of a whole run; None where only the data say how many clients there are."""
    scenario = run.scenario
    built = method(run.method)
    if built.pooled:
        return 0
    if scenario.clients == 0 and scenario.cohort_size is None:
        return None
    size, per = model_bytes(scenario.model, scenario.data), method_cost(run.method)
    each = (per.down + per.up) * size.parameters + 2 * size.buffers
    return round(each * invited(scenario) * scenario.rounds)


Seconds = Callable[[Run], float | None]
"""How long a run would take; None where that is unknown."""


def unknown_time(run: Run) -> float | None:
    """The time of a run where no trial was made."""
    return None


def time_by_trial(observer: Observer) -> Seconds:
    """Times from a few rounds of FedAvg in each scenario on this machine, multiplied by the method's passes.

    The first round is left out, and evaluation is not multiplied. A centralised method trains one client per round.
    """
    measured: dict[Scenario, tuple[float, float]] = {}

    def seconds(run: Run) -> float:
        rounds = run.scenario.rounds
        short = replace(run.scenario, method=None, seed=0, schedule="constant", rate_decay=1.0, rounds=TRIAL_ROUNDS)
        if short not in measured:
            records = simulate("fedavg", short, observer=observer).records[1:]
            training = sum(record["seconds_training"] for record in records) / len(records)
            evaluation = sum(record["seconds_evaluation"] for record in records) / len(records)
            measured[short] = training, evaluation
        training, evaluation = measured[short]
        passes = method_cost(run.method).passes / (invited(run.scenario) if method(run.method).pooled else 1)
        return rounds * (training * passes + evaluation)

    return seconds
