"""A run that goes on: from its last checkpoint, and to more rounds than it had."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from torch import nn

from headway.data.own_samples import Padding
from headway.engine.process_group import joined
from headway.errors import UserError, shown
from headway.methods.method import Method
from headway.runs import packed, roster
from headway.runs.callbacks.hooks import Callbacks, hooked
from headway.runs.driver import drive
from headway.runs.files import as_path, write_atomically
from headway.runs.folder import finished, manifest, sealed
from headway.runs.given import Clients, Metrics, given_again
from headway.runs.job import Job, check_unchanged
from headway.runs.load import experiment_of, loaded, scenario_of_run, warned_if_unchecked
from headway.runs.observer import Observer, as_observer
from headway.runs.ranked import go_on_together, together_to_the_end
from headway.runs.result import Result
from headway.runs.trackers.tracking import trackers
from headway.scenario import Scenario
from headway.schedules import schedule
from headway.tasks.known import OwnTask


def resume(
    run: str | Path,
    *,
    rounds: int | None = None,
    method: Method | None = None,
    model: str | nn.Module | None = None,
    clients: Clients | None = None,
    test: object = None,
    task: str | OwnTask | None = None,
    metrics: Metrics = (),
    padding: Padding = None,
    observer: Observer | None = None,
    callbacks: Callbacks = (),
    track: str | Sequence[str] = (),
    accept_changes: bool = False,
    ranks: int | None = None,
    rank_timeout: float | None = None,
) -> Result:
    """Go on with a run from its last checkpoint; a finished one is loaded. What lies after the checkpoint is redone.

    `rounds` gives the run more rounds than it began with, finished or not; its numbers are those of a run that had them
    from the start. It is refused where the rates follow from the number of rounds.

    A run that a callback stopped is finished: `stopped` of its result says why. Data, model and method must be those
    that the run began with; `accept_changes` goes on with others, and records it. Callbacks are given again. `ranks`
    are as of `simulate`, and may be others than before.
    """
    together = joined(ranks, rank_timeout)
    with together_to_the_end(together):
        folder = as_path("run", run)
        watching, called = trackers(track), hooked(callbacks)
        observer = as_observer(observer)
        _check_goes_on_here(folder)
        own = given_again(
            scenario_of_run(folder),
            model=model,
            clients=clients,
            test=test,
            task=task,
            metrics=metrics,
            padding=padding,
        )
        experiment = experiment_of(folder, method, own)
        if rounds is not None:
            check_may_go_on(folder, rounds)
            if together.size > 1:
                raise UserError(f"rounds is {rounds}; give more rounds in one process, then go on with ranks")
            check_unchanged(folder, experiment, observer, accept_changes)
            lengthen(folder, rounds)
            experiment = experiment_of(folder, method, own)
        if together.size > 1:
            return go_on_together(experiment, folder, observer, called, watching, together, accept_changes)
    if finished(folder):
        check_unchanged(folder, experiment, observer, accept_changes)
        return warned_if_unchecked(loaded(experiment, folder), observer)
    return drive(Job(experiment, folder, observer, called, watching, accept_changes=accept_changes))


def _check_goes_on_here(folder: Path) -> None:
    """Refuse a run that was kept without its checkpoint, and one that goes on over sites."""
    if (folder / packed.NAME).is_file():
        raise UserError(f"{folder} is kept for others to check, without a checkpoint; start the run again with --out")
    if (folder / roster.NAME).is_file() and not finished(folder):
        raise UserError(
            f"{folder} is a run over sites; go on with it there: headway deploy resume {quote(str(folder))}"
        )


def check_lengthens(scenario: Scenario) -> None:
    """Refuse more rounds where the schedule goes over the whole run: the past rounds would have had other rates."""
    if schedule(scenario.schedule).follows_run:
        raise UserError(
            f"schedule '{scenario.schedule}' goes over the run's rounds, so one of more rounds is another run; say "
            f"when it ends: {scenario.schedule}{',' if ':' in scenario.schedule else ':'}rounds=N"
        )


def check_may_go_on(folder: Path, rounds: object) -> None:
    """Refuse a number of rounds to which a run cannot go on."""
    scenario, kept = scenario_of_run(folder), manifest(folder)
    if type(rounds) is not int or rounds < scenario.rounds:
        raise UserError(f"rounds is {shown(rounds)}; {folder} has {scenario.rounds}, so give a larger whole number")
    scenario.changed(rounds=rounds)
    if kept is not None and finished(folder) and kept["round"] < scenario.rounds:
        reason = kept.get("stopped") or "it had reached its target"
        raise UserError(
            f"rounds is {rounds}, but {folder} ended after round {kept['round']} of {scenario.rounds} ({reason}); "
            "start a run without what ended it"
        )
    if scenario.rounds < rounds:
        check_lengthens(scenario)


def lengthen(run: str | Path, rounds: int) -> None:
    """Give a run more rounds than it has; `resume` then goes on from its last checkpoint, finished or not."""
    folder = Path(run)
    scenario = scenario_of_run(folder)
    if scenario.rounds < rounds:
        check_lengthens(scenario)
        (folder / "summary.json").unlink(missing_ok=True)  # first: a kill between leaves a run that is not finished
        write_atomically(folder / "scenario.toml", sealed(scenario.changed(rounds=rounds)))
