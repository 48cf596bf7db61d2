"""How far and how alike a round's clients went, from running sums: no upload is kept for it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headway.engine.aggregate import Aggregator
from headway.engine.experiment import Experiment
from headway.engine.server import GlobalState, heading
from headway.engine.updates import ClientUpdates
from headway.errors import UserError
from headway.methods.needs import replaces_delta
from headway.records import Diagnostics
from headway.scenario import Scenario


@dataclass(frozen=True)
class MeanUpdate:
    """Numbers of Δ = Σω_i Δ_i and of the momentum m that the server held before the round; they stay on the device."""

    numbers: Tensor
    """‖Δ‖ and, where the server has a momentum, ⟨Δ, m⟩ and ‖m‖."""

    @classmethod
    def of(cls, uploads: Aggregator, state: GlobalState) -> MeanUpdate | None:
        """Of a round whose clients have arrived; `state` is what the server held before. None where nothing is told."""
        method = uploads.experiment.method
        if method.guards or not len(uploads.places) or "delta" not in uploads.mean["fields"]:
            return None
        delta, momentum = uploads.mean["fields"]["delta"], heading(uploads.experiment, state, uploads.round)
        numbers = [delta.norm(torch.float64)]
        if momentum is not None:
            numbers += [delta.dot(momentum).double(), momentum.norm(torch.float64)]
        return cls(torch.stack(numbers))


def asks_for(scenario: Scenario, kind: str) -> bool:
    """Whether `diagnose` asks for `cosines`, or for `forgetting`."""
    return scenario.diagnose in (kind, "all")


def check(experiment: Experiment) -> None:
    """Refuse what `diagnose` asks for where this experiment cannot tell it."""
    method, scenario = experiment.method, experiment.scenario
    if scenario.diagnose is None:
        return
    given = f"diagnose is '{scenario.diagnose}'"
    if method.guards:
        raise UserError(f"{given}, which looks at the clients one by one; with +dp leave it out")
    if replaces_delta(method.parts()):
        raise UserError(
            f"{given}, but clients of {method.name} send something else in place of their updates; leave it out, or "
            "use another method, such as fedavg"
        )
    if not asks_for(scenario, "forgetting"):
        return
    if not experiment.federation.is_labelled:
        raise UserError(
            f"{given}, but the targets of this data are not one class a sample, so that no class can be forgotten; use "
            "--diagnose cosines"
        )
    if scenario.buffers == "keep-local" and experiment.network.buffers:
        raise UserError(
            f"{given}, but with buffers 'keep-local' the received model has no statistics to be judged with; use "
            "--buffers average, or --diagnose cosines"
        )


def diagnostics(uploads: Aggregator, mean: MeanUpdate | None) -> Diagnostics:
    """The round's diagnostics, once the clients' reports are read."""
    experiment = uploads.experiment
    if experiment.method.guards or not len(uploads.places):
        return {}
    found: Diagnostics = {}
    if mean is not None:
        found = _of_updates(uploads, mean.numbers.tolist())
    if experiment.scenario.clip and uploads.steps:
        found["clipped_share"] = uploads.clipped / uploads.steps
    if asks_for(experiment.scenario, "cosines"):
        found |= _agreement(uploads.updates())
    if uploads.forgetting is not None:
        found |= uploads.forgetting.found(uploads.clients, uploads.places)
    return found


def _agreement(updates: ClientUpdates) -> Diagnostics:
    """Cosines of the updates with their mean and with each other, where these are defined for all clients."""
    found: Diagnostics = {}
    if not any(map(math.isnan, updates.cosines)):
        found["update_cosines"] = list(updates.cosines)
    if not math.isnan(updates.pairwise):
        found["pair_cosine_mean"], found["pair_cosine_least"] = updates.pairwise, updates.least
    return found


def _of_updates(uploads: Aggregator, mean: list[float]) -> Diagnostics:
    """Norms of the Δ_i and what follows from them and ‖Δ‖, with the cosine of Δ and the server's momentum."""
    places = list(uploads.places)
    norms = np.array([uploads.update_norms[place] for place in places])
    found: Diagnostics = {"update_norm_mean": float(norms.mean())}
    norm = mean[0]
    if len(norms) > 1:
        square = float(uploads.weights[places] @ norms**2)
        found["update_norm_std"] = float(norms.std())
        if norm > 0:
            found["diversity"] = square / norm**2
        found["drift"] = math.sqrt(max(square - norm**2, 0.0))
    if len(mean) > 1 and norm > 0 and mean[2] > 0:
        found["cosine_momentum"] = mean[1] / (norm * mean[2])
    return found
