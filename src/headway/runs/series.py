"""Several runs: each is resumed where it was begun, and started where it was not; one after another, or in lanes.

A comparison, a paper's table and a sweep differ in what they plan and in what they do when a run fails; how planned
runs are made is the same, and stands here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headway.engine.building import device_of
from headway.engine.selection import inherited_executor
from headway.errors import UserError
from headway.runs.callbacks.hooks import Callbacks
from headway.runs.given import OwnObjects
from headway.runs.lanes.jobs import Jobs
from headway.runs.lanes.made import Crew, Kind, kind, make_all
from headway.runs.load import recorded
from headway.runs.observer import Observer
from headway.runs.planned import Beside, PlannedRun, made
from headway.runs.result import Result
from headway.scenario import Scenario


def seeded(scenario: Scenario) -> list[Scenario]:
    """The scenario for each of its seeds."""
    return [dataclasses.replace(scenario, seed=scenario.seed + number, seeds=1) for number in range(scenario.seeds)]


@dataclass
class Series:
    """How several runs are made, which are to be compared.

    Executors round differently. So where the choice is left to a stopwatch (`auto`, `graphed`), the first run of some
    data and model decides, and all later runs of these have its executor.
    """

    observer: Observer
    """One for all runs: a message that several have is shown once."""
    track: str | Sequence[str] = ()
    own: OwnObjects = field(default_factory=lambda: OwnObjects())
    accept_changes: bool = False
    callbacks: Callbacks = ()
    """Each run has its own copies of those that are objects."""
    jobs: Jobs | None = None
    """How many runs are made at the same time; None for one after another in this process."""
    crew: Crew = field(default_factory=Crew)
    """The workers of its lanes."""
    _executors: dict[Kind, str] = field(default_factory=dict)
    """The executor that was chosen, by data and model."""
    _failed: dict[Path, Exception] = field(default_factory=dict)
    """What went wrong with runs that were made in lanes."""
    _made: set[Path] = field(default_factory=set)
    """Runs that were made in lanes, to their end."""

    def __post_init__(self) -> None:
        if self.jobs is not None and self.callbacks:
            raise UserError(
                "callbacks is given and jobs is given: what a callback keeps would stay in the process of its run; use "
                "patience, keep_best or track, or leave jobs and devices out"
            )

    def __enter__(self) -> Series:
        """Inside, workers are kept from one part of the series to the next."""
        self.crew.is_kept = True
        return self

    def __exit__(self, *fault: object) -> None:
        self.crew.close()

    def make(self, planned: Sequence[PlannedRun]) -> None:
        """Make runs at the same time, where jobs are given; `run` then has each at once, with what went wrong with it.

        A run that fails does not end the others.
        """
        if self.jobs is None:
            return
        left = {run.folder for run in planned if run.folder is not None and not run.is_finished}
        failed = make_all(planned, self._beside, self.jobs, self.observer, self._executors, self.crew)
        self._failed |= failed
        self._made = (self._made | left) - failed.keys()

    def run(self, planned: PlannedRun) -> Result:
        """The run: made before in a lane, else resumed where it was begun, else started."""
        if planned.folder in self._failed:
            raise self._failed.pop(planned.folder)
        if planned.folder in self._made and planned.is_named and not self.own:
            return recorded(planned.folder, self.observer)
        if not planned.is_begun:
            chosen = planned.scenario.changed(executor=self._executor(planned.scenario))
            planned = dataclasses.replace(planned, scenario=chosen)
        result = made(planned, self._beside, self.observer)
        self.inherit(planned.scenario, result.executor)
        return result

    @property
    def _beside(self) -> Beside:
        return Beside(self.track, self.own, self.accept_changes, self.callbacks)

    def inherit(self, scenario: Scenario, executor: str) -> None:
        """Later runs of this data and model have the executor that a run was made with, where they may.

        One that was given by its name stays so; one of another kind of device is not inherited.
        """
        if not executor:  # a summary of an early version
            return
        chosen = inherited_executor(self._executor(scenario), executor, device_of(scenario.device))
        self._executors[kind(scenario)] = chosen

    def _executor(self, scenario: Scenario) -> str:
        return self._executors.get(kind(scenario), scenario.executor)
