"""Headway: accelerated federated learning.

import headway as hw

result = hw.simulate("fedacg", rounds=30)                      # a method by name, on the embedded data
result = hw.simulate(hw.Method(broadcast=hw.lookahead(0.85), server=hw.momentum(0.85)), rounds=30)
result = hw.simulate("fedacg", model=my_module, clients=my_datasets, test=my_test_set)
hw.compare(["fedavg", "fedacg"], seeds=3).summary()
"""

from __future__ import annotations

from headway.methods.broadcast import lookahead, vector
from headway.methods.local import sgd
from headway.methods.method import Method
from headway.methods.objective import proximal, task
from headway.methods.server import average, interpolation, momentum
from headway.methods.spelling import method
from headway.methods.wire import Wire, plain
from headway.runs.run import Result, load_run, resume, simulate
from headway.runs.study import Study, compare
from headway.scenario import Scenario, scenario
from headway.vectors import Vector

__version__ = "0.1.0"

__all__ = [
    "Method",
    "Result",
    "Scenario",
    "Study",
    "Vector",
    "Wire",
    "average",
    "compare",
    "interpolation",
    "load_run",
    "lookahead",
    "method",
    "momentum",
    "plain",
    "proximal",
    "resume",
    "scenario",
    "sgd",
    "simulate",
    "task",
    "vector",
]
