"""Peak memory and seconds of a round as cohorts and populations grow, each case in a separate process.

python benchmarks/cohorts.py [--executor batched] [--rounds 3] [--quick] [--json] [--out benchmarks/results]

Cohorts: 10 to 10,000 of 10,000 clients a round, a small MLP, 5 steps of batch 10 each. Populations: 100 clients a round
out of 1,000 and out of 1,000,000. A client's rows are made when it is asked for, so a population costs nothing.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headway.bench.table import write_result
from headway.data.federation import Federation, Samples
from headway.engine.building import build
from headway.engine.selection import choose
from headway.engine.simulation import begin, simulate
from headway.engine.states import ClientStates
from headway.methods.spelling import method
from headway.random import generator
from headway.runs.environment import commit, environment
from headway.scenario import Scenario

SAMPLES, EACH, BATCH, FEATURES, CLASSES = 10_000, 50, 10, 64, 10
COHORTS = (10, 100, 1_000, 10_000)
POPULATIONS = (1_000, 1_000_000)
ALLOWED = 50e6
"""Bytes that a million clients may take beyond a thousand."""


class Clients(Sequence[np.ndarray]):
    """A population of this size; a client's rows are made when they are asked for, and follow from its number."""

    def __init__(self, count: int) -> None:
        self.sizes = np.broadcast_to(EACH, count)

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, client: Any) -> Any:
        return generator(0, "bench/rows", int(client)).integers(SAMPLES, size=EACH)


@dataclass(frozen=True)
class Case:
    population: int
    cohort: int
    executor: str
    rounds: int


def play(case: Case) -> dict[str, Any]:
    """One case in this process: seconds of each round after the first, and the most memory it ever had."""
    draw = generator(0, "bench/data")
    x = torch.from_numpy(draw.integers(0, 256, (SAMPLES, FEATURES), dtype=np.uint8))
    pool = Samples(x, torch.from_numpy(draw.integers(0, CLASSES, SAMPLES)))
    federation = Federation(pool, Samples(pool.x[:100], pool.y[:100]), Clients(case.population), CLASSES)
    scenario = Scenario(
        model="mlp",
        cohort_size=case.cohort,
        epochs=1,
        batch_size=BATCH,
        rounds=case.rounds + 1,
        executor=case.executor,
        device="cpu",
        precision="fp32",
    )
    experiment = build(scenario, method("fedavg"), federation=federation)
    executor = choose(experiment, case.executor, lambda line: print(line, file=sys.stderr))
    taken = []
    start = time.perf_counter()
    for _ in simulate(experiment, executor, ClientStates(), begin(experiment)):
        taken.append(time.perf_counter() - start)
        start = time.perf_counter()
    executor.close()
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        **asdict(case),
        "executor": executor.name,
        "seconds_per_round": statistics.median(taken[1:]),
        "peak_memory_bytes": kilobytes * (1 if sys.platform == "darwin" else 1024),
    }


def apart(case: Case) -> dict[str, Any]:
    """The same in a separate process."""
    command = [sys.executable, __file__, "--case", json.dumps(asdict(case))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def sweep(executor: str, rounds: int, quick: bool) -> dict[str, Any]:
    cohorts = COHORTS[:2] if quick else COHORTS
    by_cohort = [apart(Case(max(COHORTS), cohort, executor, rounds)) for cohort in cohorts]
    by_population = [apart(Case(population, 100, executor, rounds)) for population in POPULATIONS]
    small, large = (entry["peak_memory_bytes"] for entry in by_population)
    return {
        "workload": "cohorts",
        "cohorts": by_cohort,
        "populations": by_population,
        "population_costs_bytes": large - small,
        "population_may_cost_bytes": ALLOWED,
        "commit": commit(),
        "environment": environment(torch.device("cpu")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executor", default="batched")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(play(Case(**json.loads(arguments.case)))))
        return
    result = sweep(arguments.executor, arguments.rounds, arguments.quick)
    if arguments.out:
        print(f"wrote {write_result(result, arguments.out)}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    print(f"{result['environment']['hardware']}, {arguments.executor}")
    for entry in [*result["cohorts"], *result["populations"]]:
        print(
            f"{entry['cohort']:7,} of {entry['population']:9,} clients a round: "
            f"{entry['seconds_per_round']:8.3f} s, peak {entry['peak_memory_bytes'] / 1e6:6.0f} MB"
        )
    print(f"a million clients take {result['population_costs_bytes'] / 1e6:.1f} MB more than a thousand")


if __name__ == "__main__":
    main()
