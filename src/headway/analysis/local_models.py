"""The local models of a round, trained again from what the run kept before it, with the run's own batches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headway.engine.aggregate import Group
from headway.engine.client_rounds import CohortRounds
from headway.engine.executor import RoundInput
from headway.engine.experiment import Experiment
from headway.engine.network import Buffers
from headway.engine.round import RoundOutcome, run_round
from headway.engine.serial import Serial
from headway.engine.states import ClientStates
from headway.errors import UserError
from headway.methods.needs import replaces_delta
from headway.records import RoundRecord
from headway.runs import kept
from headway.trees import copied, row
from headway.vectors import Vector

TOLERANCE = 0.05
"""How far a number of the round trained again may be from the recorded one, as a share of it: executors round."""


@dataclass(frozen=True)
class Model:
    """Parameters with the buffers that belong to them."""

    w: Vector
    buffers: Buffers


@dataclass(frozen=True)
class LocalModels:
    """A round as it was trained again: where it began, its first local models, and where it led."""

    round: int
    """The round that is trained again; what was kept is of the one before."""
    server: Model
    """θ: the server's model before the round."""
    received: Model
    """φ: what the clients were sent."""
    clients: tuple[int, ...]
    """Whose models are here, in the order of the cohort."""
    local: tuple[Model, ...]
    """θ_i of each of `clients`."""
    after: Model
    """θ after the round."""
    cohort: int
    """How many clients the round has."""


@dataclass
class _Keeping:
    """`serial`, which keeps the first local models of a round on their way."""

    inner: Serial
    most: int
    name: str = "serial"
    received: Model | None = None
    local: dict[int, Model] = field(default_factory=dict)
    """By place in the first turn of the cohort."""

    def run(self, given: RoundInput, rounds: CohortRounds) -> Iterator[Group]:
        phi = given.message["model"]
        self.received = Model(copied(phi), copied(given.buffers))
        for group in self.inner.run(given, rounds):
            for at, position in enumerate(group.positions):
                if rounds.turn.repeat == 0 and position < self.most:
                    delta, buffers = group.trained["fields"]["delta"], group.trained["buffers"]
                    self.local[position] = copied_model(phi + row(delta, at), row(buffers, at))
            yield group

    def prefetch(self, round: int) -> None:
        pass

    def close(self) -> None:
        self.inner.close()


def copied_model(w: Vector, buffers: Buffers) -> Model:
    """A model that shares no memory with others."""
    return Model(copied(w), copied(buffers))


def check(experiment: Experiment) -> None:
    """Refuse a run whose local models cannot be looked at."""
    method = experiment.method
    if replaces_delta(method.parts()):
        raise UserError(
            f"clients of {method.name} send something else in place of their updates, so that their models are not "
            "known; analyse a run of another method, such as fedavg"
        )
    if experiment.network.joint:
        raise UserError(
            "buffers is 'keep-local': each client has its own BatchNorm statistics, so that models on a line between "
            "two have none; analyse a run with --buffers average, or with a network without BatchNorm"
        )
    if experiment.method.pooled:
        raise UserError(f"{method.name} has no clients; analyse a run of another method, such as fedavg")


def trained_again(experiment: Experiment, folder: Path, after: int, most: int) -> tuple[LocalModels, RoundOutcome]:
    """Round `after` + 1 of a run, trained again; of its local models the first `most` are kept."""
    check(experiment)
    found = kept.load(folder, experiment, after)
    cohort = experiment.client_rounds.cohort(after + 1)
    if not cohort.clients:
        raise UserError(f"in round {after + 1} nobody arrived, so that it has no local models; give another --round")
    store = ClientStates()
    for client, held in found.states.items():
        store.put(client, held)
    keeping = _Keeping(Serial(experiment), most)
    with experiment.arithmetic():
        before = copied_model(found.model.theta, found.model.buffers)
        state, outcome = run_round(experiment, found.model, store, keeping, cohort, after + 1)
    assert keeping.received is not None
    places = sorted(keeping.local)
    models = LocalModels(
        round=after + 1,
        server=before,
        received=keeping.received,
        clients=tuple(cohort.clients[cohort.turns[0][place]] for place in places),
        local=tuple(keeping.local[place] for place in places),
        after=copied_model(state.theta, state.buffers),
        cohort=len(cohort.clients),
    )
    return models, outcome


def differences(outcome: RoundOutcome, records: Sequence[RoundRecord], round: int) -> list[str]:
    """Numbers in which the round trained again is not the recorded one, each in words; empty where all agree."""
    record = next((one for one in records if one["round"] == round), None)
    if record is None:
        return []
    found = []
    now: dict[str, float | None] = {"train_loss": outcome.train_loss, "update_norm": outcome.update_norm}
    now |= {name: outcome.diagnostics.get(name) for name in ("update_norm_mean", "drift")}  # type: ignore[misc]
    for name, value in now.items():
        before = record.get(name)
        if isinstance(before, float) and value is not None and not math.isclose(value, before, rel_tol=TOLERANCE):
            found.append(f"{name} is {value:.6g} and was {before:.6g}")
    return found
