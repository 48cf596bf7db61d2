"""Points at which constants are looked at, and courses on convex problems: real runs of the engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from headway.engine.experiment import Experiment
from headway.methods.method import Method
from headway.methods.spelling import method as spelled
from headway.runs.callbacks.run import Run
from headway.runs.observer import Silent
from headway.runs.start import simulate
from headway.theory.convex import ridge
from headway.theory.estimate import Point
from headway.theory.fednag import Steps
from headway.theory.request import Request


def points_of(request: Request, experiment: Experiment) -> list[Point]:
    """The first parameters, and those after rounds that are evenly spread over a short run of the method."""
    network = experiment.network
    found: list[Point] = [(network.parameters.flat(), dict(network.buffers))]
    wanted = np.unique(np.linspace(0, request.trained, request.points).round().astype(int)).tolist()[1:]

    def keep(run: Run) -> None:
        if run.round in wanted:
            named = dict(run.model.named_parameters())
            leaves = [named[name].detach() for name in network.parameters.leaves]
            buffers = dict(run.model.named_buffers())
            after = {name: buffers[name].to(experiment.device) for name in network.buffers}
            flat = torch.cat([leaf.reshape(-1) for leaf in leaves]).to(experiment.device, experiment.dtype)
            found.append((flat, after))

    if wanted:
        request.observer.tell(f"{request.method}: {wanted[-1]} rounds, for constants at {len(wanted) + 1} points")
        scenario = request.scenario.changed(rounds=wanted[-1], eval_every=wanted[-1], seeds=1, target=None)
        simulate(request.method, scenario, callbacks=[keep], observer=Silent(), **request.own)
    return found


def averages_of(request: Request, steps: Steps, strength: float) -> Tensor:
    """FedNAG's or FedAvg's θ after each round of τ full-batch steps by everybody, shape (rounds, d), by the engine."""
    found: list[Tensor] = []

    def keep(run: Run) -> None:
        found.append(torch.cat([leaf.detach().reshape(-1) for leaf in run.model.parameters()]))

    rounds = request.total // steps.tau
    executor = "batched" if request.scenario.executor == "auto" else request.scenario.executor
    simulate(
        with_ridge(steps.gamma, strength),
        request.scenario.with_settings(EXACT).changed(
            rounds=rounds,
            eval_every=rounds,
            steps=steps.tau,
            rate=steps.eta,
            executor=executor,
        ),
        callbacks=[keep],
        observer=Silent(),
        **request.own,
    )
    return torch.stack(found)


EXACT: Mapping[str, object] = {
    "participation": 1.0,
    "batch_size": 10**7,
    "schedule": "constant",
    "rate_decay": 1.0,
    "rate_decay_epoch": 1.0,
    "weight_decay": 0.0,
    "clip": 0.0,
    "precision": "fp64",
    "device": "cpu",
    "seeds": 1,
    "target": None,
    "stop_at_target": False,
    "patience": None,
}
"""Settings with which a run is what the theorems are about: everybody, whole batches, one rate, float64."""


def with_ridge(gamma: float, strength: float) -> Method:
    """FedNAG, or FedAvg for γ = 0, whose clients minimise F_i with its L2 term."""
    plain = spelled(f"fednag:gamma={gamma!r}" if gamma else "fedavg")
    return dataclasses.replace(plain, objective=ridge(strength), name=f"{plain.name}, L2 in the loss")
