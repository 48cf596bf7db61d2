"""Several runs, one after another: each is resumed where it was begun, and started where it was not.

A comparison, a paper's table and a sweep differ in what they plan and in what they do when a run fails; how a planned
run is made is the same, and stands here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headway.engine.building import device_of
from headway.engine.selection import inherited_executor
from headway.methods.method import Method
from headway.methods.spelling import method as spelled
from headway.runs.callbacks.hooks import Callbacks, copies
from headway.runs.folder import finished
from headway.runs.given import OwnObjects
from headway.runs.observer import Observer
from headway.runs.result import Result
from headway.runs.resume import resume
from headway.runs.start import simulate
from headway.scenario import Scenario


def seeded(scenario: Scenario) -> list[Scenario]:
    """The scenario for each of its seeds."""
    return [dataclasses.replace(scenario, seed=scenario.seed + number, seeds=1) for number in range(scenario.seeds)]


@dataclass(frozen=True)
class PlannedRun:
    """One of several runs: its scenario has one seed; without a folder nothing of it is kept."""

    method: str | Method
    scenario: Scenario
    folder: Path | None = None

    @property
    def is_begun(self) -> bool:
        """Whether its folder holds a run, finished or not."""
        return self.folder is not None and (self.folder / "scenario.toml").is_file()

    @property
    def is_finished(self) -> bool:
        return self.folder is not None and self.is_begun and finished(self.folder)


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
    _executors: dict[tuple[str, str], str] = field(default_factory=dict)
    """The executor that was chosen, by data and model."""

    def run(self, planned: PlannedRun) -> Result:
        """Resume the run where it was begun, else start it."""
        if planned.is_begun and planned.folder is not None:
            result = resume(
                planned.folder,
                method=spelled(planned.method),
                observer=self.observer,
                callbacks=copies(self.callbacks),
                track=self.track,
                accept_changes=self.accept_changes,
                ranks=1,
                **self.own,
            )
        else:
            chosen = planned.scenario.changed(executor=self._executor(planned.scenario))
            result = simulate(
                planned.method,
                chosen,
                out=planned.folder,
                observer=self.observer,
                callbacks=copies(self.callbacks),
                track=self.track,
                ranks=1,
                **self.own,
            )
        self.inherit(planned.scenario, result.executor)
        return result

    def inherit(self, scenario: Scenario, executor: str) -> None:
        """Later runs of this data and model have the executor that a run was made with, where they may.

        One that was given by its name stays so; one of another kind of device is not inherited.
        """
        if not executor:  # a summary of an early version
            return
        chosen = inherited_executor(self._executor(scenario), executor, device_of(scenario.device))
        self._executors[scenario.data, scenario.model] = chosen

    def _executor(self, scenario: Scenario) -> str:
        return self._executors.get((scenario.data, scenario.model), scenario.executor)
