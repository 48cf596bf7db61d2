"""The engines of one tree, kept warm: plays rounds when a line comes in, and answers with a line of JSON.

python benchmarks/warm_engines.py DEVICE PRECISION WORKLOADS ENGINES     (lists with commas; PRECISION may be "default")

`before_after.py --warm` starts it once for each tree. It first makes every engine of every workload and plays three
rounds of each, so that what happens once (capturing graphs, compiling, choosing an executor) is over. Each line that it
then reads is a number of rounds, and is answered in the form of `headway bench --json`.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import torch

from headway.bench import measure
from headway.bench.workloads import WORKLOADS

WARM_UP = 3


def ready(device: str, precision: str, workloads: list[str], engines: list[str]) -> dict[tuple[str, str], object]:
    """Every engine that this tree has, after its first rounds; one that it cannot make is told of."""
    found = {}
    for name in workloads:
        workload = WORKLOADS[name]
        experiment = getattr(workload, "experiment", None) or workload.world  # its name in older trees
        for engine in engines:
            try:
                one = measure.HeadwayEngine(experiment(device, precision), engine)
                for _ in range(WARM_UP):
                    one.play()
            except measure.CannotExecute as reason:
                print(f"{name}, {engine}: {reason}", file=sys.stderr, flush=True)
                continue
            found[name, engine] = one
            print(f"{name}, {engine}: warm", file=sys.stderr, flush=True)
    return found


def seconds(engine: object, rounds: int, device: torch.device) -> float:
    """The median of some rounds, after one that is not timed: the other tree has just played."""

    def play() -> None:
        engine.play()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    play()
    took = []
    for _ in range(rounds):
        begin = time.perf_counter()
        play()
        took.append(time.perf_counter() - begin)
    return statistics.median(took)


def main() -> None:
    device, precision, workloads, engines = sys.argv[1:]
    place = torch.device(device)
    chosen = measure.default_precision(place) if precision == "default" else precision
    warm = ready(device, chosen, workloads.split(","), engines.split(","))
    for line in iter(sys.stdin.readline, ""):
        answer = [
            {
                "workload": workload,
                "engines": [
                    {"name": name, "seconds_per_round": seconds(one, int(line), place), "options": one.options}
                ],
            }
            for (workload, name), one in warm.items()
        ]
        print(json.dumps(answer), flush=True)
    for one in warm.values():
        one.close()


if __name__ == "__main__":
    main()
