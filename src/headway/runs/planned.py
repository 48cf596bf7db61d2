"""One of several runs as it is planned, and how it is made: resumed where it was begun, started where it was not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headway.engine.building import build
from headway.methods.method import Method
from headway.methods.spelling import method as spelled
from headway.runs import execution
from headway.runs.attendance import attendance_of
from headway.runs.callbacks.hooks import Callbacks, copies
from headway.runs.folder import finished
from headway.runs.given import OwnObjects, catalogue_method, checked_method
from headway.runs.observer import Observer
from headway.runs.result import Result
from headway.runs.resume import resume
from headway.runs.start import simulate
from headway.scenario import Scenario


@dataclass(frozen=True)
class PlannedRun:
    """One of several runs: its scenario has one seed; without a folder nothing of it is kept."""

    method: str | Method
    scenario: Scenario
    folder: Path | None = None
    label: str = ""
    """What it is called among the others, where its method does not say it."""

    @property
    def is_begun(self) -> bool:
        """Whether its folder holds a run, finished or not."""
        return self.folder is not None and (self.folder / "scenario.toml").is_file()

    @property
    def is_finished(self) -> bool:
        return self.folder is not None and self.is_begun and finished(self.folder)

    @property
    def name(self) -> str:
        """As messages have it: `fedacg, seed 1`."""
        method = self.method if isinstance(self.method, str) else self.method.name
        return f"{method}, seed {self.scenario.seed}"

    @property
    def is_named(self) -> bool:
        """Whether its method is one of the catalogue, so that its name says all of it."""
        return isinstance(self.method, str) or catalogue_method(self.method.name) is not None


@dataclass(frozen=True)
class Beside:
    """What all runs of a series are given beside their plans."""

    track: str | Sequence[str] = ()
    own: OwnObjects = field(default_factory=lambda: OwnObjects())
    accept_changes: bool = False
    callbacks: Callbacks = ()
    """Each run has its own copies of those that are objects."""


def made(planned: PlannedRun, beside: Beside, observer: Observer) -> Result:
    """Resume the run where it was begun, else start it."""
    if planned.is_begun and planned.folder is not None:
        return resume(
            planned.folder,
            method=spelled(planned.method),
            observer=observer,
            callbacks=copies(beside.callbacks),
            track=beside.track,
            accept_changes=beside.accept_changes,
            ranks=1,
            **beside.own,
        )
    return simulate(
        planned.method,
        planned.scenario,
        out=planned.folder,
        observer=observer,
        callbacks=copies(beside.callbacks),
        track=beside.track,
        ranks=1,
        **beside.own,
    )


def executor_for(planned: PlannedRun, beside: Beside, observer: Observer) -> tuple[str, str]:
    """The executor that `auto` or `graphed` becomes for this run, and the same with how it was chosen."""
    method, scenario = checked_method(planned.method), planned.scenario
    experiment = build(scenario.changed(method=method.name), method, **beside.own, attendance=attendance_of(scenario))
    executor, label = execution.chosen(experiment, scenario.executor, observer.tell)
    executor.close()
    return executor.name, label
