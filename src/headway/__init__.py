"""Headway: accelerated federated learning.

import headway as hw

result = hw.simulate("fedacg", rounds=30)                      # a method by name, on the embedded data
result = hw.simulate(hw.Method(broadcast=hw.lookahead(0.85), server=hw.momentum(0.85)), rounds=30)
result = hw.simulate("fedacg", model=my_module, clients=my_datasets, test=my_test_set)
hw.compare(["fedavg", "fedacg"], seeds=3).summary()
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from headway.scenario import Scenario, scenario

if TYPE_CHECKING:
    from headway import report
    from headway.data.own_partition import split
    from headway.deploy.data import read_samples
    from headway.deploy.flower import client_app, server_app
    from headway.errors import UserError
    from headway.methods import broadcast, local, objective, server, wire
    from headway.methods.broadcast import lookahead, vector
    from headway.methods.listed import list_methods
    from headway.methods.local import sgd
    from headway.methods.method import Method
    from headway.methods.objective import proximal, task
    from headway.methods.server import average, interpolation, momentum
    from headway.methods.spelling import method
    from headway.methods.wire import Wire, plain
    from headway.models.networks import list_models
    from headway.report.inside.write import analyse
    from headway.runs.callbacks.early_stopping import EarlyStopping
    from headway.runs.callbacks.keep_best import KeepBest
    from headway.runs.callbacks.run import Run
    from headway.runs.export import export
    from headway.runs.grid import Grid, compare_grid
    from headway.runs.load import load_run
    from headway.runs.result import Result
    from headway.runs.resume import resume
    from headway.runs.start import simulate
    from headway.runs.study import Study
    from headway.runs.trackers.tracking import tracker
    from headway.tasks.metrics import Metric
    from headway.tasks.task import Task
    from headway.theory.bounds import bounds
    from headway.theory.result import Bounds
    from headway.tuning.compare import compare
    from headway.tuning.results import Sweep
    from headway.tuning.sweep import sweep
    from headway.vectors import Vector

__version__ = "0.1.0"

__all__ = [
    "Bounds",
    "EarlyStopping",
    "Grid",
    "KeepBest",
    "Method",
    "Metric",
    "Result",
    "Run",
    "Scenario",
    "Study",
    "Sweep",
    "Task",
    "UserError",
    "Vector",
    "Wire",
    "analyse",
    "average",
    "bounds",
    "broadcast",
    "client_app",
    "compare",
    "compare_grid",
    "export",
    "interpolation",
    "list_methods",
    "list_models",
    "load_run",
    "local",
    "lookahead",
    "method",
    "momentum",
    "objective",
    "plain",
    "proximal",
    "read_samples",
    "report",
    "resume",
    "scenario",
    "server",
    "server_app",
    "sgd",
    "simulate",
    "split",
    "sweep",
    "task",
    "tracker",
    "vector",
    "wire",
]

_SLOTS = ("broadcast", "objective", "local", "server", "wire")

_HOMES = {
    "headway.data.own_partition": ("split",),
    "headway.deploy.data": ("read_samples",),
    "headway.deploy.flower": ("client_app", "server_app"),
    "headway.errors": ("UserError",),
    "headway.methods.broadcast": ("lookahead", "vector"),
    "headway.methods.local": ("sgd",),
    "headway.methods.method": ("Method",),
    "headway.methods.objective": ("proximal", "task"),
    "headway.methods.server": ("average", "interpolation", "momentum"),
    "headway.methods.spelling": ("method",),
    "headway.methods.wire": ("Wire", "plain"),
    "headway.report.inside.write": ("analyse",),
    "headway.runs.callbacks.early_stopping": ("EarlyStopping",),
    "headway.runs.callbacks.keep_best": ("KeepBest",),
    "headway.runs.callbacks.run": ("Run",),
    "headway.methods.listed": ("list_methods",),
    "headway.models.networks": ("list_models",),
    "headway.runs.export": ("export",),
    "headway.runs.grid": ("Grid", "compare_grid"),
    "headway.runs.load": ("load_run",),
    "headway.runs.result": ("Result",),
    "headway.runs.resume": ("resume",),
    "headway.runs.start": ("simulate",),
    "headway.runs.study": ("Study",),
    "headway.runs.trackers.tracking": ("tracker",),
    "headway.tasks.metrics": ("Metric",),
    "headway.tasks.task": ("Task",),
    "headway.theory.bounds": ("bounds",),
    "headway.theory.result": ("Bounds",),
    "headway.tuning.compare": ("compare",),
    "headway.tuning.results": ("Sweep",),
    "headway.tuning.sweep": ("sweep",),
    "headway.vectors": ("Vector",),
}


def __getattr__(name: str) -> object:
    """Names that need torch are imported when first used, so `headway --help` answers at once."""
    if name in _SLOTS:
        return importlib.import_module(f"headway.methods.{name}")
    if name == "report":
        return importlib.import_module("headway.report")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'headway' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
