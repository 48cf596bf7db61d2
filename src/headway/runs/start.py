"""A new run: `simulate`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from torch import nn

from headway.data.own_samples import Padding
from headway.engine.building import build
from headway.engine.process_group import joined
from headway.errors import UserError
from headway.methods.method import Method
from headway.runs.attendance import attendance_of
from headway.runs.callbacks.hooks import Callbacks, hooked
from headway.runs.callbacks.of_run import every_callback
from headway.runs.driver import drive
from headway.runs.files import as_path
from headway.runs.given import Clients, Metrics, checked_method, split_settings
from headway.runs.job import Job
from headway.runs.observer import Observer, as_observer
from headway.runs.ranked import drive_together, together_to_the_end
from headway.runs.reserve import reserve
from headway.runs.result import Result
from headway.runs.trackers.tracking import trackers
from headway.scenario import Scenario, scenario_of
from headway.tasks.known import OwnTask
from headway.typed_settings import Settings


def simulate(
    method: str | Method,
    scenario: str | Path | Scenario = "",
    *,
    model: str | nn.Module | None = None,
    clients: Clients | None = None,
    test: object = None,
    task: str | OwnTask | None = None,
    metrics: Metrics = (),
    padding: Padding = None,
    out: str | Path | None = None,
    observer: Observer | None = None,
    callbacks: Callbacks = (),
    track: str | Sequence[str] = (),
    ranks: int | None = None,
    rank_timeout: float | None = None,
    **settings: Unpack[Settings],
) -> Result:
    """Run one method on one scenario, with one seed.

    >>> simulate("fedacg", rounds=30).rounds["accuracy"]
    >>> simulate("fedacg", model=my_module, clients=my_datasets, test=my_test_set, rounds=30)

    >>> simulate("fedacg", data=my_dataset, partition="dirichlet:0.3", clients=20, test=my_test_set, rounds=30)

    `model` is a name or a module. `clients` is a number (of clients to share the scenario's data) or one dataset for
    each client, in order or by name; `data` is a name, or one dataset, which a `partition` shares among them.
    `task` is a name, or a loss of your own: f(output, target) → one number a sample. `metrics` are names, functions
    of (output, target) or metrics of torchmetrics, the headline first. `padding` is the number that fills samples
    of different lengths, or one for each name. `out` is a folder that keeps the run, so that `resume` and
    `load_run` find it. `callbacks` are functions, which are called with the run after every round, or objects with
    any of on_start(run), on_round(run) and on_end(run). `track` names trackers: "tensorboard", "tensorboard:DIR",
    "mlflow", "mlflow:URI", "wandb", "wandb:PROJECT". `ranks` are the processes that torchrun has started with this
    program, each of which trains its part of every cohort; `rank_timeout` is after how many seconds of silence one
    is given up. Where `out` holds the same run already, ranks go on with it.
    """
    together = joined(ranks, rank_timeout)
    with together_to_the_end(together):
        watching, called = trackers(track, kept=out is not None), hooked(callbacks)
        observer = as_observer(observer)
        place = None if out is None else as_path("out", out)
        if settings.get("attendance") is not None:
            settings["attendance"] = str(as_path("attendance", settings["attendance"]))
        named, objects = split_settings(
            settings, model=model, clients=clients, test=test, task=task, metrics=metrics, padding=padding
        )
        chosen = scenario_of(scenario, named)
        if chosen.data_dir is not None:
            chosen = chosen.changed(data_dir=str(Path(chosen.data_dir).expanduser().absolute()))
        if chosen.seeds != 1:
            raise UserError(f"seeds is {chosen.seeds}; simulate runs one seed, compare runs several")
        if chosen.attendance is not None:
            chosen = chosen.changed(attendance=str(Path(chosen.attendance).expanduser().absolute()))
        built = checked_method(method)
        experiment = build(chosen.changed(method=built.name), built, **objects, attendance=attendance_of(chosen))
        if together.size > 1:
            return drive_together(experiment, place, observer, called, watching, together)
    every_callback(experiment, called, watching)  # a mistake is reported before the folder is made
    folder = None if place is None else reserve(place, experiment.scenario)
    return drive(Job(experiment, folder, observer, called, watching))
