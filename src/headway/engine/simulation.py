"""The simulation loop, as an iterator of round records."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import cast

from headway.engine import server
from headway.engine.evaluation import Scores, evaluate
from headway.engine.executor import Attended, Executor, RemoteExecutor
from headway.engine.experiment import Experiment, check_rate
from headway.engine.ranks import ALONE, Ranks
from headway.engine.round import ClientStore, RoundOutcome, run_round
from headway.engine.server import GlobalState
from headway.engine.spread import Spread
from headway.engine.states import ClientStates
from headway.engine.updates import ClientUpdates
from headway.errors import UserError
from headway.measure.curves import Smoothed, reaches
from headway.measure.headline import ACCURACY
from headway.records import Diagnostics, MetricRecord, OverClients, RoundRecord
from headway.tasks.metrics import METRICS, record_of
from headway.tasks.task import Task
from headway.trees import copied


@dataclass(frozen=True)
class Progress:
    """Where a simulation stands after `round` rounds: with the client store, all that a resume needs."""

    round: int
    model: GlobalState
    bytes_down: int = 0
    bytes_up: int = 0
    steps: int = 0
    smoothed: Smoothed = field(default_factory=Smoothed)
    """The smoothed headline metric of the rounds that were evaluated."""
    best: GlobalState | None = None
    """The iterate of least global loss, where the method's output is that one."""
    best_loss: float | None = None
    updates: ClientUpdates | None = None
    """How far the clients of the last round went, where that is watched: a resume has no need of it."""

    def output(self, experiment: Experiment) -> GlobalState:
        """What the run hands over: the last model, or the best of those whose loss is known."""
        if self.best is not None and self.best_loss is not None:
            return self.best
        return server.handed_over(experiment.method, self.model)


_TAKEN = {
    *("round", "bytes_down_total", "bytes_up_total", "seconds_training", "seconds_evaluation"),
    *("measured_on", "metrics", "chain", "epsilon"),
    *(part.name for kind in (RoundOutcome, Scores) for part in fields(kind)),
    *OverClients.__annotations__,
    *Diagnostics.__annotations__,
    *(f"{name}{ending}" for name in METRICS for ending in ("", "_smoothed")),
    *(f"received_{name}" for name in ("loss", *METRICS)),
}
"""Names in a record that are Headway's own."""


def begin(experiment: Experiment) -> Progress:
    """Where a simulation stands before its first round."""
    model = server.initial_state(experiment)
    return Progress(0, model, best=_own(model) if experiment.method.keeps_best else None)


def _own(model: GlobalState) -> GlobalState:
    """A model's numbers as a copy, without the server's state."""
    return GlobalState(copied(model.theta), copied(model.buffers), {})


def finished(experiment: Experiment, progress: Progress) -> bool:
    """Whether every round was played, or the target was reached in a run that stops there."""
    scenario = experiment.scenario
    return progress.round >= scenario.rounds or (scenario.stop_at_target and _is_at_target(experiment, progress))


def _is_at_target(experiment: Experiment, progress: Progress) -> bool:
    """Whether the smoothed headline has reached the target."""
    target, level = experiment.scenario.target, progress.smoothed
    if target is None or not level.weight:
        return False
    return reaches(level.level, target, experiment.task.headline.higher_is_better)


def _with_best(experiment: Experiment, progress: Progress, loss: float | None) -> Progress:
    """The progress with its best iterate, where one is kept and this one is it."""
    if progress.best is None or loss is None or (progress.best_loss is not None and loss >= progress.best_loss):
        return progress
    return replace(progress, best=_own(server.handed_over(experiment.method, progress.model)), best_loss=loss)


def _finite(measures: dict[str, float], task: Task) -> dict[str, float]:
    """What slots measured, without what is not a finite number."""
    for name in measures.keys() & (_TAKEN | {metric.name for metric in task.metrics}):
        raise UserError(f"a slot measures '{name}', which is a name of Headway's own; call it otherwise")
    return {name: value for name, value in measures.items() if math.isfinite(value)}


def spread_over(ranks: Ranks, experiment: Experiment, store: ClientStore) -> Spread | None:
    """The clients of a run over ranks; None for one process by itself."""
    if ranks.size == 1:
        return None
    assert isinstance(store, ClientStates), "ranks hand client states to each other"
    return Spread(experiment, ranks, store)


def simulate(
    experiment: Experiment,
    executor: Executor,
    store: ClientStore,
    progress: Progress,
    *,
    watched: bool = False,
    remote: RemoteExecutor | None = None,
    spread: Spread | None = None,
) -> Iterator[tuple[RoundRecord, Progress]]:
    """Every round from `progress` on: its record, and where the simulation then stands.

    `watched`: the clients' updates are measured in every round. `remote` is the executor where the clients are at
    other places: it says who takes part, and how the model does there. `spread`: this is one rank of several.
    """
    while not finished(experiment, progress):
        began = time.perf_counter()
        number = progress.round + 1
        check_rate(experiment.scenario, number, experiment.dtype)
        with experiment.arithmetic():
            found = _attended(experiment, remote, number, progress.model)
            state, outcome = run_round(
                experiment, progress.model, store, executor, found.cohort, number, watched=watched, spread=spread
            )
            progress = _trained(progress, state, outcome)
            trained = time.perf_counter()
            scores: dict[str, object] = {}
            if number % experiment.scenario.eval_every == 0 or number == experiment.scenario.rounds:
                if remote is None:
                    judged = _scores(experiment, executor, store, progress, spread)
                else:
                    judged = remote.judge(number, progress.model)
                scores, progress = _evaluated(experiment, judged, progress)
        ended = time.perf_counter()
        seconds = {"seconds_training": trained - began, "seconds_evaluation": ended - trained}
        # Measures of slots are further keys, which a TypedDict cannot name: `records.value_of` reads them.
        record = {
            **_numbers(experiment, progress, outcome),
            **scores,
            **_metrics(experiment, number),
            **found.notes,
            **seconds,
        }
        yield cast(RoundRecord, record), progress


def _attended(experiment: Experiment, remote: RemoteExecutor | None, round: int, state: GlobalState) -> Attended:
    """Who takes part in a round: whom the scenario draws, or who answered."""
    return Attended(experiment.client_rounds.cohort(round), {}) if remote is None else remote.attend(round, state)


def _metrics(experiment: Experiment, round: int) -> dict[str, list[MetricRecord]]:
    """How the metrics are read: said in the first round's record, where they are not the accuracy alone."""
    metrics = [record_of(metric) for metric in experiment.task.metrics]
    return {"metrics": metrics} if round == 1 and metrics != [ACCURACY] else {}


def _trained(progress: Progress, state: GlobalState, outcome: RoundOutcome) -> Progress:
    """Where the simulation stands after one more round, before that is evaluated."""
    return replace(
        progress,
        round=progress.round + 1,
        model=state,
        bytes_down=progress.bytes_down + outcome.bytes_down,
        bytes_up=progress.bytes_up + outcome.bytes_up,
        steps=progress.steps + outcome.steps,
        updates=outcome.updates,
    )


def _numbers(experiment: Experiment, progress: Progress, outcome: RoundOutcome) -> dict[str, object]:
    """What the record of the round that `progress` has reached says of its training, in the order of the file."""
    known = {
        name: value
        for name, value in vars(outcome).items()
        if value is not None and name not in ("measures", "diagnostics", "updates")
    }
    totals = {"bytes_down_total": progress.bytes_down, "bytes_up_total": progress.bytes_up}
    numbers = {**_finite(outcome.measures, experiment.task), **known, **outcome.diagnostics}
    return {"round": progress.round, **numbers, **totals}


def _scores(
    experiment: Experiment, executor: Executor, store: ClientStore, progress: Progress, spread: Spread | None
) -> Scores:
    """The scores of the model that the simulation has reached; several ranks ask together."""
    ranks, state_of = (ALONE, store.get) if spread is None else (spread.ranks, spread.anywhere)
    return evaluate(experiment, progress.model, executor, progress.round, state_of, ranks)


def _evaluated(experiment: Experiment, scores: Scores, progress: Progress) -> tuple[dict[str, object], Progress]:
    """The scores of the model that the simulation has reached, and the progress that takes them into account."""
    scenario, number = experiment.scenario, progress.round
    progress = _with_best(experiment, progress, scores.global_loss)
    found, headline = scores.numbers(), experiment.task.headline.name
    if headline in found:
        smoothed = progress.smoothed.then(found[headline], scenario.smoothing)
        found[f"{headline}_smoothed"] = smoothed.level
        if number % scenario.eval_every == 0:  # a run of more rounds has no evaluation at an odd last one
            progress = replace(progress, smoothed=smoothed)
    by_class = {"accuracy_by_class": scores.by_class} if scores.by_class else {}
    return {**found, **by_class, **scores.over_clients}, progress
