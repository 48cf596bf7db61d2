"""Trackers by their names, and what they write under which names.

A tracker is a callback that may fail: the run goes on without it. When a run is resumed, it reads the past from the
run's records: no point may be missing or there twice.
"""

from __future__ import annotations

import hashlib
import importlib
import math
from collections.abc import Sequence
from typing import TypeGuard

from headway.errors import UserError, nearest, shown
from headway.records import RoundRecord
from headway.runs.callbacks.hooks import Callback
from headway.runs.callbacks.run import Run
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
    **{name: f"clients/{name}" for name in ("update_norm_mean", "update_norm_std", "diversity", "drift")},
    **{name: f"clients/{name}" for name in ("pair_cosine_mean", "pair_cosine_least")},
    **{name: f"clients/{name}" for name in ("absent_accuracy_before", "absent_accuracy_after")},
    "cosine_momentum": "training/cosine_momentum",
    "clipped_share": "training/clipped_share",
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
"""Tracked names of the numbers in a round's record; `{on}` is `test` or `validation`. Others go below `method/`."""
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
    """The name that a number is tracked by, with `{on}` for what it was measured on."""
    metric = key.removesuffix("_smoothed")
    if key in NAMES or metric not in metrics:
        return NAMES.get(key, f"method/{key}")
    return NAMES.get(metric, f"{metric}/{{on}}") + key.removeprefix(metric)


def _number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def totals(summary: Summary) -> dict[str, float]:
    """The numbers of a run's summary."""
    return {f"summary/{key}": float(value) for key, value in summary.items() if _number(value)}


def id_file(tracker: str, place: str | None) -> str:
    """Where a run's folder keeps an id: one file for each place, for a run may be tracked in two."""
    return f"{tracker}-{hashlib.sha256((place or '').encode()).hexdigest()[:8]}.json"


def parameters(run: Run) -> dict[str, object]:
    """The scenario as it is run, and the executor."""
    return {**run.scenario.as_dict(), "executor": run.executor}


_EXTRAS = {
    "tensorboard": "headway.runs.trackers.tensorboard",
    "mlflow": "headway.runs.trackers.mlflow",
    "wandb": "headway.runs.trackers.wandb",
}
NO_FOLDER = "a run without a folder has none for its curves; write tensorboard:DIR, or give out=…"
_FORMS = "tensorboard[:DIR], mlflow[:URI] or wandb[:PROJECT]"


def trackers(track: str | Sequence[str], kept: bool = True) -> dict[str, Callback]:
    """The trackers that `tensorboard`, `tensorboard:DIR`, `mlflow:URI`, `wandb:PROJECT`, … name, for one run.

    `kept` says whether the run has a folder.
    """
    found: dict[str, Callback] = {}
    requested = [track] if isinstance(track, str) else track
    if not isinstance(requested, list | tuple) or not all(isinstance(one, str) for one in requested):
        raise UserError(f"track is {shown(track)}; it must be a tracker's name, or a list of names")
    for spelled in requested:
        if spelled == "tensorboard" and not kept:
            raise UserError(NO_FOLDER)
        if spelled in found:
            raise UserError(f"the tracker '{spelled}' is given twice")
        found[spelled] = tracker(spelled)
    return found


def tracker(spelled: str) -> Callback:
    """The tracker that `NAME` or `NAME:PLACE` stands for: a callback as any other.

    >>> headway.simulate("fedacg", callbacks=[headway.tracker("wandb:my-project")])
    """
    name, _, place = spelled.partition(":")
    if name not in _EXTRAS:
        raise UserError(f"there is no tracker '{name}'{nearest(name, _EXTRAS)} ({_FORMS})")
    try:
        made: Callback = importlib.import_module(_EXTRAS[name]).tracker(place or None)
    except ImportError as fault:
        raise UserError(
            f"the tracker '{name}' needs a package that is not there ({fault}); pip install 'headway[{name}]'"
        ) from None
    return made
