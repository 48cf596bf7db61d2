"""Many runs at the same time: executor and threads of each are fixed before the first begins, then lanes train them.

So no number depends on how many jobs there are. An executor is chosen on one core, since the time of a run that has
one core to itself is what counts where others run beside it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headway.engine.building import device_of
from headway.engine.pool import cores
from headway.engine.selection import TIMED, inherited_executor
from headway.errors import UserError
from headway.executors import kind_of
from headway.runs.folder import manifest, summary
from headway.runs.lanes.display import Course, Display, display_of
from headway.runs.lanes.jobs import Jobs, Lane
from headway.runs.lanes.messages import Request, raised
from headway.runs.lanes.process import own_objects, starter
from headway.runs.lanes.queue import Queue
from headway.runs.observer import Observer
from headway.runs.planned import Beside, PlannedRun
from headway.scenario import Scenario

Kind = tuple[str, str]
"""Data and model: runs that have these in common have one executor."""


def kind(scenario: Scenario) -> Kind:
    return scenario.data, scenario.model


@dataclass
class Crew:
    """The workers of a series, kept between its parts where they are wanted again."""

    is_kept: bool = False
    """Whether there may be further parts; `close` then ends the workers."""
    queue: Queue | None = None

    @contextmanager
    def for_runs(self, runs: Mapping[str, PlannedRun], beside: Beside, jobs: Jobs) -> Iterator[Queue]:
        """The queue for these runs. Workers that have the user's objects have those of these runs alone."""
        if not self.is_kept or own_objects(runs, beside):
            with Queue(starter(runs, beside, jobs)) as queue:
                yield queue
            return
        self.queue = self.queue or Queue(starter(runs, beside, jobs))
        yield self.queue

    def close(self) -> None:
        if self.queue is not None:
            self.queue.close()


def make_all(
    planned: Sequence[PlannedRun],
    beside: Beside,
    jobs: Jobs,
    observer: Observer,
    executors: dict[Kind, str],
    crew: Crew,
) -> dict[Path, Exception]:
    """Train every run that is not finished; what went wrong with those that failed, by their folders.

    `executors` are those that were chosen before, and get those that are chosen now.
    """
    planned = [_placed(run, jobs) for run in planned]
    runs = {str(run.folder): run for run in planned if not run.is_finished}
    if not runs:
        return {}
    for run in planned:
        _inherit(run, executors)
    rounds = {name: run.scenario.rounds for name, run in runs.items()}
    display = display_of(observer, Course(len(runs), sum(rounds.values())))
    lanes = jobs.lanes(len(runs), next(iter(runs.values())).scenario.device)
    share = max(cores() // len(lanes), 1)
    try:
        with crew.for_runs(runs, beside, jobs) as queue:
            failed = _choose(queue, runs, lanes, display, executors)
            requests = {
                name: _request("train", run, _executor(run, executors, share, jobs.threads), share)
                for name, run in runs.items()
                if name not in failed
            }
            answers = queue.answers(requests, rounds, lanes, display)
    finally:
        display.close()
    failed |= {name: raised(answer["fault"]) for name, answer in answers.items() if answer["kind"] == "failed"}
    return {Path(name): fault for name, fault in failed.items()}


def _placed(run: PlannedRun, jobs: Jobs) -> PlannedRun:
    """The run on the kind of device that is asked for."""
    if jobs.kind is None:
        return run
    if run.scenario.device not in ("auto", jobs.kind):
        raise UserError(
            f"device is '{run.scenario.device}' and devices is '{','.join(jobs.devices)}'; give one of both"
        )
    return dataclasses.replace(run, scenario=run.scenario.changed(device=jobs.kind))


def _inherit(run: PlannedRun, executors: dict[Kind, str]) -> None:
    """Runs that were begun before have decided."""
    if run.folder is None or not run.is_begun:
        return
    kept = manifest(run.folder)
    name = kept["executor"] if kept is not None else summary(run.folder).get("executor", "")
    requested = executors.get(kind(run.scenario), run.scenario.executor)
    if name:
        executors[kind(run.scenario)] = inherited_executor(requested, name, device_of(run.scenario.device))


def _choose(
    queue: Queue, runs: Mapping[str, PlannedRun], lanes: Sequence[Lane], display: Display, executors: dict[Kind, str]
) -> dict[str, Exception]:
    """Choose an executor for each data and model, by the first run of these; what failed in it."""
    failed: dict[str, Exception] = {}
    for name, run in runs.items():
        requested = executors.get(kind(run.scenario), run.scenario.executor)
        if requested not in TIMED:
            continue
        answers = queue.answers({name: _request("choose", run, requested, 1)}, {}, lanes[:1], display)
        if answers[name]["kind"] == "failed":
            failed[name] = raised(answers[name]["fault"])
            continue
        device, found = device_of(run.scenario.device), answers[name]["executor"]
        executors[kind(run.scenario)] = inherited_executor(requested, found, device)
        display.chosen(answers[name]["label"])
    return failed


def _executor(run: PlannedRun, executors: Mapping[Kind, str], share: int, threads: int) -> str:
    """The executor of a run: the one that it names, or what was chosen for it."""
    asked = run.scenario.executor
    chosen = executors.get(kind(run.scenario), asked)
    on_cpu = device_of(run.scenario.device).type == "cpu"
    return with_cores(chosen, share) if asked in TIMED and on_cpu and threads == 1 else chosen


def with_cores(name: str, share: int) -> str:
    """The executor for a run that has so many cores: of those that train clients one by one, the one that uses them.

    Where a run has one thread, these give the same bits.
    """
    if name in TIMED or not kind_of(name).alone:
        return name
    _, colon, form = name.partition(":")
    return f"{'pool' if share > 1 else 'serial'}{colon}{form}"


def _request(do: Literal["choose", "train"], run: PlannedRun, executor: str, cores: int) -> Request:
    """What a worker is told of a run."""
    method = run.method if isinstance(run.method, str) else run.method.name
    return {
        "do": do,
        "method": method,
        "scenario": run.scenario.changed(executor=executor).as_dict(),
        "folder": str(run.folder),
        "cores": cores,
        "label": run.label,
    }
