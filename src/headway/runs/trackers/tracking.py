"""What a run hands to its trackers, under which names, and what becomes of one that fails."""

from __future__ import annotations

import importlib
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, TypeGuard

from headway.engine.experiment import Experiment
from headway.errors import UserError, nearest, shown
from headway.records import RoundRecord
from headway.runs.summary import Summary

NAMES = {
    "accuracy": "accuracy/{on}",
    "accuracy_smoothed": "accuracy/{on}_smoothed",
    "loss": "loss/{on}",
    "rmse": "loss/{on}_rmse",
    "r2": "loss/{on}_r2",
    "train_loss": "loss/training",
    "global_loss": "loss/all_clients",
    "client_mean": "clients/mean",
    "client_std": "clients/spread",
    "client_worst": "clients/worst_tenth",
    "clients_judged": "clients/judged",
    "client_accuracy_std": "clients/proxy_accuracy_spread",
    "client_accuracy_low": "clients/proxy_accuracy_lowest_tenth",
    "lost": "clients/lost",
    "late": "clients/late",
    "partial": "clients/partial",
    "failed": "clients/failed",
    "rate": "training/rate",
    "update_norm": "training/update_norm",
    "steps": "training/local_steps",
    "samples": "training/samples",
    "padding": "training/padding",
    "bytes_down": "traffic/bytes_down",
    "bytes_up": "traffic/bytes_up",
    "bytes_down_total": "traffic/bytes_down_total",
    "bytes_up_total": "traffic/bytes_up_total",
    "seconds_training": "seconds/training",
    "seconds_evaluation": "seconds/evaluation",
}
"""Of the numbers in a round's record; `{on}` is what was measured on, test or validation. Others go below `method/`."""
ALWAYS = NAMES["rate"]
"""A name that every round has."""


def scalars(record: RoundRecord, metrics: Sequence[str] = ()) -> dict[str, float]:
    """Every finite number of a round's record, and how many clients took part; `metrics` are those of the task."""
    on = record.get("measured_on", "test")
    found = {"clients/taking_part": float(len(record["clients"]))} if "clients" in record else {}
    for key, value in record.items():
        if key != "round" and _number(value):
            found[_tracked_name(key, metrics).format(on=on)] = float(value)
    return found


def _tracked_name(key: str, metrics: Sequence[str]) -> str:
    """Under which name a number is tracked, with `{on}` for what it was measured on."""
    metric = key.removesuffix("_smoothed")
    if key in NAMES or metric not in metrics:
        return NAMES.get(key, f"method/{key}")
    return NAMES.get(metric, f"{metric}/{{on}}") + key.removeprefix(metric)


def _number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def totals(summary: Summary) -> dict[str, float]:
    """The numbers of a run's summary."""
    return {f"summary/{key}": float(value) for key, value in summary.items() if _number(value)}


@dataclass(frozen=True)
class Tracked:
    """A run as it begins or goes on."""

    name: str
    folder: Path | None
    parameters: dict[str, object]
    """The scenario as it is run, and the executor."""
    past: list[RoundRecord]
    """The records of the rounds that are done."""
    metrics: tuple[str, ...] = ("accuracy",)
    """The names of the task's metrics, the headline first."""


class Tracker(Protocol):
    """Who writes one run. A resume hands over the past: no point may be missing or there twice."""

    def begins(self, run: Tracked) -> None: ...
    def round(self, record: RoundRecord) -> None: ...
    def ends(self, summary: Summary) -> None: ...
    def closes(self, status: str) -> None: ...


_EXTRAS = {"tensorboard": "headway.runs.trackers.tensorboard", "mlflow": "headway.runs.trackers.mlflow"}


def trackers(track: str | Sequence[str], kept: bool = True) -> dict[str, Tracker]:
    """The trackers that `tensorboard`, `tensorboard:DIR`, `mlflow` and `mlflow:URI` name, for one run.

    `kept` says whether the run has a folder.
    """
    found: dict[str, Tracker] = {}
    requested = [track] if isinstance(track, str) else track
    if not isinstance(requested, list | tuple) or not all(isinstance(one, str) for one in requested):
        raise UserError(f"track is {shown(track)}; it must be a tracker's name, or a list of names")
    for spelled in requested:
        if spelled == "tensorboard" and not kept:
            raise UserError("a run without a folder has none for its curves; write tensorboard:DIR, or give out=…")
        if spelled in found:
            raise UserError(f"the tracker '{spelled}' is given twice")
        found[spelled] = _made(spelled)
    return found


def _made(spelled: str) -> Tracker:
    """The tracker that `NAME` or `NAME:PLACE` stands for."""
    name, _, place = spelled.partition(":")
    if name not in _EXTRAS:
        raise UserError(f"there is no tracker '{name}'{nearest(name, _EXTRAS)} (tensorboard[:DIR] or mlflow[:URI])")
    try:
        tracker: Tracker = importlib.import_module(_EXTRAS[name]).tracker(place or None)
    except ImportError as fault:
        raise UserError(
            f"the tracker '{name}' needs a package that is not there ({fault}); pip install 'headway[{name}]'"
        ) from None
    return tracker


def _name(experiment: Experiment, folder: Path | None) -> str:
    """The run's folder as seen from here, or the method with its seed and the time."""
    if folder is None:
        return f"{experiment.method.name}-seed-{experiment.scenario.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    whole = folder.absolute()
    seen = Path(os.path.relpath(whole))
    return str(whole.relative_to(whole.anchor) if ".." in seen.parts else seen)


class Tracking:
    """The trackers of one run. One that fails is reported once and left out: the training goes on."""

    def __init__(self, chosen: Mapping[str, Tracker], tell: Callable[[str], None]) -> None:
        self.trackers, self.tell = dict(chosen), tell

    def __enter__(self) -> Tracking:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        stopped = kind is not None and issubclass(kind, KeyboardInterrupt)
        status = "finished" if kind is None else "stopped" if stopped else "failed"
        self._each(lambda tracker: tracker.closes(status))

    def begins(self, experiment: Experiment, folder: Path | None, executor: str, past: Sequence[RoundRecord]) -> None:
        if self.trackers:
            parameters: dict[str, object] = {**experiment.scenario.as_dict(), "executor": executor}
            metrics = tuple(metric.name for metric in experiment.task.metrics)
            run = Tracked(_name(experiment, folder), folder, parameters, list(past), metrics)
            self._each(lambda tracker: tracker.begins(run))

    def round(self, record: RoundRecord) -> None:
        self._each(lambda tracker: tracker.round(record))

    def ends(self, summary: Summary) -> None:
        self._each(lambda tracker: tracker.ends(summary))

    def _each(self, call: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self.trackers.items()):
            try:
                call(tracker)
            except Exception as fault:
                del self.trackers[name]
                cause = " ".join(str(fault).split()) or type(fault).__name__
                self.tell(f"{name} failed and is left out, the training goes on: {cause[:300]}")
