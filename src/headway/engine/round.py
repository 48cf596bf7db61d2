"""One communication round: broadcast → local training → aggregate → update. Every executor runs inside `run_round`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

from headway.data.cohort import Cohort
from headway.engine import server
from headway.engine.aggregate import Aggregator
from headway.engine.client_rounds import ClientState
from headway.engine.diagnostics import MeanUpdate, asks_for, diagnostics
from headway.engine.executor import Executor, RoundInput
from headway.engine.experiment import Experiment
from headway.engine.forgetting import Forgetting
from headway.engine.server import GlobalState, ServerMessage, ServerUpdate
from headway.engine.spread import Spread
from headway.engine.updates import ClientUpdates
from headway.errors import ServerDiverged
from headway.methods.slots import Message
from headway.records import Diagnostics, FailedClient
from headway.trees import nbytes


class ClientStore(Protocol):
    """Client states by id. What is put in is the store's own: nobody else keeps it."""

    def get(self, client: int) -> ClientState | None: ...
    def put(self, client: int, state: ClientState) -> None: ...


@dataclass(frozen=True)
class RoundOutcome:
    """What happened in a round, besides the new global state."""

    clients: tuple[int, ...]
    """The clients whose upload counts."""
    lost: int
    """Clients that dropped out and sent nothing."""
    late: int
    """Clients invited beyond the cohort, whose work was not needed."""
    partial: int
    """Clients among `clients` that dropped out and sent what they had done."""
    client_steps: list[int] | None
    """K_i of each of `clients`; None where all did all their steps."""
    failed: int | None
    """Clients that failed or diverged and were skipped; None where nobody is skipped."""
    failures: list[FailedClient] | None
    """Which these were, and why; None where there were none."""
    rate: float
    train_loss: float | None
    """None where nothing arrived, or nobody may see it."""
    update_norm: float
    """‖θ_{t+1} − θ_t‖."""
    steps: int
    """Local steps whose work reached the server."""
    samples: int
    """Samples in these steps."""
    padding: float
    """Share of the samples computed that only filled a shape."""
    bytes_down: int
    bytes_up: int
    measures: dict[str, float]
    """What the method's slots measured."""
    diagnostics: Diagnostics
    """How far and how alike the clients went."""
    updates: ClientUpdates | None
    """Norms and cosines of the clients' updates, where they are watched and some arrived."""


def run_round(
    experiment: Experiment,
    state: GlobalState,
    store: ClientStore,
    executor: Executor,
    cohort: Cohort,
    round: int,
    *,
    watched: bool = False,
    spread: Spread | None = None,
) -> tuple[GlobalState, RoundOutcome]:
    """θ_t, server state → θ_{t+1}, server state. The one place where a round happens.

    Where nothing arrives, both stay as they are, unless the server adds noise: then that is the round. A round that
    fails leaves every client as it was. `watched`: each client's update is kept until the end of the round, and
    measured. `spread`: other ranks run the same round, and each trains its part of the cohort.
    """
    sent = server.broadcast(experiment, state, round)
    outcome = _before(experiment, sent, cohort, round)
    if not cohort.clients and not experiment.method.guards:
        return state, outcome
    given = RoundInput(round, server.received(experiment.method, sent, state.theta), sent.buffers)
    held = store.get if spread is None else spread.held
    forgetting = Forgetting(experiment, given) if asks_for(experiment.scenario, "forgetting") else None
    watched = watched or asks_for(experiment.scenario, "cosines")
    uploads = Aggregator(experiment, cohort, round, held, watched=watched, spread=spread, forgetting=forgetting)
    for rounds in uploads.turns():
        for group in executor.run(given, rounds) if len(rounds) else ():
            uploads.add(group)
    mean = MeanUpdate.of(uploads, state)  # before the server's step, which may change its momentum in place
    update = _updated(experiment, state, given.message, uploads, executor)
    state, outcome = _after(experiment, update, uploads, cohort, outcome)
    outcome = replace(outcome, diagnostics=diagnostics(uploads, mean))
    for client in dict.fromkeys(cohort.clients):
        if client in uploads.states:
            store.put(client, uploads.states[client])
    if spread is not None:
        spread.settle(cohort.clients)
    return state, outcome


def _updated(
    experiment: Experiment, state: GlobalState, message: Message, uploads: Aggregator, executor: Executor
) -> ServerUpdate:
    """The server's step.

    A GPU goes on with it before the clients' reports are read, but what a slot changes in place must not see the
    failure of a client.
    """
    waits = experiment.device.type == "cpu" or bool(experiment.method.owned)
    if waits:
        _prefetch(executor, uploads)
        uploads.read()
    try:
        update = server.update(experiment, state, uploads.uploads(message), uploads.round)
    except Exception:
        uploads.read()  # a client that diverged is the better reason
        raise
    if not waits:
        _prefetch(executor, uploads)  # everything that the device has to do is under way
        uploads.read()
    if not math.isfinite(float(update.norm)):
        raise ServerDiverged(f"round {uploads.round}: the server's step is not a finite number; {experiment.advice}")
    return update


def _prefetch(executor: Executor, uploads: Aggregator) -> None:
    """Have the next round prepared; among ranks nobody knows yet whom this one trains then."""
    if uploads.spread is None:
        executor.prefetch(uploads.round + 1)


def _before(experiment: Experiment, sent: ServerMessage, cohort: Cohort, round: int) -> RoundOutcome:
    """What is known of a round before anything arrives."""
    return RoundOutcome(
        clients=cohort.clients,
        lost=cohort.lost,
        late=cohort.late,
        partial=len(cohort.truncated),
        client_steps=None,
        failed=0 if experiment.scenario.on_failure == "skip" else None,
        failures=None,
        rate=experiment.rate(round),
        train_loss=None,
        update_norm=0.0,
        steps=0,
        samples=0,
        padding=0.0,
        bytes_down=0 if experiment.method.pooled else sent.nbytes * cohort.invited,
        bytes_up=0,
        measures={},
        diagnostics={},
        updates=None,
    )


def _after(
    experiment: Experiment, update: ServerUpdate, uploads: Aggregator, cohort: Cohort, outcome: RoundOutcome
) -> tuple[GlobalState, RoundOutcome]:
    """The next global state, with the clients' mean buffers, and what happened in the round.

    What clients measured, their loss among it, is left out where the server adds noise: it has none.
    """
    state = update.state
    told = {} if experiment.method.guards or not len(uploads.places) else uploads.mean["measures"]
    outcome = replace(
        outcome,
        update_norm=float(update.norm),
        measures={name: float(value) for name, value in (told | update.measures).items()},
    )
    if not len(uploads.places):
        return state, outcome
    clients = tuple(cohort.clients[place] for place in uploads.places)
    travelling = 0
    if experiment.scenario.buffers != "keep-local":
        travelling = nbytes(state.buffers) * len(clients)
        state = replace(state, buffers=server.averaged(uploads.mean["buffers"], state.buffers))
    return state, replace(
        outcome,
        clients=clients,
        partial=len(cohort.truncated.keys() & set(uploads.places)),
        client_steps=[uploads.client_steps[place] for place in uploads.places] if cohort.truncated else None,
        failed=None if outcome.failed is None else len(uploads.failures),
        failures=uploads.failures.as_rows(),
        train_loss=None if experiment.method.guards else uploads.loss,
        steps=uploads.steps,
        samples=uploads.samples,
        padding=1 - uploads.samples / uploads.computed,
        bytes_up=0 if experiment.method.pooled else uploads.bytes_up + travelling,
        updates=uploads.updates() if uploads.watched else None,
    )
