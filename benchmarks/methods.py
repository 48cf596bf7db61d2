"""Seconds of a round of several methods on one workload, as multiples of FedAvg's and of their count of passes.

python benchmarks/methods.py feddyn moon gradma-w [--workload mlp] [--executor batched] [--rounds 10] [--json]
       [--device auto] [--precision auto] [--out benchmarks/results]

FedAvg is always there. Methods take turns, forwards and backwards, so that whatever slows the machine down slows them
all; medians after two rounds of warming up, without evaluation.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from headway.bench.loop import wait_for
from headway.bench.measure import WARM_UP, HeadwayEngine, default_precision
from headway.bench.table import write_result
from headway.bench.workloads import workloads
from headway.engine.building import build, device_of
from headway.engine.cost import passes
from headway.errors import UserError
from headway.methods.spelling import method
from headway.runs.environment import commit, environment


def measured(arguments: argparse.Namespace) -> dict[str, Any]:
    device = device_of(arguments.device)
    precision = default_precision(device) if arguments.precision == "auto" else arguments.precision
    (workload,) = workloads([arguments.workload])
    plain = workload.experiment(str(device), precision)
    names = list(dict.fromkeys(["fedavg", *arguments.methods]))
    building = [
        build(plain.scenario, method(name), model=plain.network.original, federation=plain.federation) for name in names
    ]
    engines = []
    for name, experiment in zip(names, building, strict=True):
        print(f"{name}: getting ready", file=sys.stderr, flush=True)
        engines.append(HeadwayEngine(experiment, arguments.executor))
    print(f"{arguments.rounds} rounds of each, in turns", file=sys.stderr, flush=True)
    seconds: list[list[float]] = [[] for _ in engines]
    for turn in range(WARM_UP + arguments.rounds):
        for engine, taken in list(zip(engines, seconds, strict=True))[:: 1 if turn % 2 else -1]:
            wait_for(device)
            start = time.perf_counter()
            engine.play()
            wait_for(device)
            if turn >= WARM_UP:
                taken.append(time.perf_counter() - start)
    medians = [statistics.median(taken) for taken in seconds]
    print("counting passes", file=sys.stderr, flush=True)
    counts = [passes(method(name), workload.module(), workload.shape, workload.epochs) for name in names]
    for engine in engines:
        engine.close()
    return {
        "workload": f"methods-{workload.name}-{engines[0].options['executor'].replace(':', '-')}",
        "executor": engines[0].options["executor"],
        "precision": precision,
        "timed_rounds": arguments.rounds,
        "methods": [
            {"name": name, "seconds_per_round": one, "ratio_to_fedavg": one / medians[0], "passes": count}
            for name, one, count in zip(names, medians, counts, strict=True)
        ],
        "commit": commit(),
        "environment": environment(device),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="+")
    parser.add_argument("--workload", default="mlp")
    parser.add_argument("--executor", default="auto")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    try:
        result = measured(arguments)
    except UserError as fault:
        parser.error(str(fault))
    if arguments.json:
        print(json.dumps(result, indent=2))
    else:
        print(f"{result['workload']}, {result['executor']}, {result['precision']}, {result['environment']['hardware']}")
        for one in result["methods"]:
            ratio, count = one["ratio_to_fedavg"], one["passes"]
            print(f"{one['name']:24} {one['seconds_per_round']:.4f} s  {ratio:5.2f} × FedAvg, {count:.2f} passes")
    if arguments.out is not None:
        print(f"wrote {write_result(result, arguments.out)}")


if __name__ == "__main__":
    main()
