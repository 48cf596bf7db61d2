"""Peak memory and seconds of a round as cohorts and populations grow, each case in a separate process.

python benchmarks/cohorts.py [--executor batched] [--ranks 2] [--rounds 3] [--deterministic] [--quick] [--json]
       [--out benchmarks/results]

Cohorts: 10 to 10,000 of 10,000 clients a round, a small MLP, 5 steps of batch 10 each. Populations: 100 clients a round
out of 1,000 and out of 1,000,000. A client's rows are made when it is asked for, so a population costs nothing.

With `--ranks` torchrun starts that many processes for each case, and the memory is that of the rank which took most.
Beside it stands what a round would hold if every upload were kept: the cohort by the size of the model.
"""

from __future__ import annotations

import argparse
import json
import os
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
from headway.engine.process_group import joined
from headway.engine.simulation import begin, simulate, spread_over
from headway.engine.states import ClientStates
from headway.methods.spelling import method
from headway.random import generator
from headway.runs.environment import commit, environment
from headway.runs.execution import chosen_together
from headway.scenario import Scenario
from headway.trees import nbytes

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
    ranks: int = 1
    deterministic: bool = False


def play(case: Case) -> dict[str, Any]:
    """One case in this process, perhaps one of several: seconds of each round after the first, and memory at most.

    Of several ranks it is that of the one that took most.
    """
    ranks = joined(case.ranks)
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
        deterministic=case.deterministic,
    )
    experiment, store = build(scenario, method("fedavg"), federation=federation), ClientStates()
    executor, _ = chosen_together(experiment, case.executor, lambda line: print(line, file=sys.stderr), ranks)
    taken = []
    start = time.perf_counter()
    spread = spread_over(ranks, experiment, store)
    for _ in simulate(experiment, executor, store, begin(experiment), spread=spread):
        taken.append(time.perf_counter() - start)
        start = time.perf_counter()
    executor.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {
        **asdict(case),
        "executor": executor.name,
        "seconds_per_round": statistics.median(taken[1:]),
        "peak_memory_bytes": max(int(str(one["peak"])) for one in ranks.tell({"peak": peak})),
        "uploads_bytes": case.cohort * nbytes(experiment.network.parameters),
    }


def apart(case: Case) -> dict[str, Any]:
    """The same in a separate process."""
    launcher = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--local-addr=127.0.0.1",
        f"--nproc-per-node={case.ranks}",
    ]
    command = [sys.executable, *(launcher if case.ranks > 1 else []), __file__, "--case", json.dumps(asdict(case))]
    words = {"GLOO_SOCKET_IFNAME": "lo"} if case.ranks > 1 and sys.platform == "linux" else {}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**words, **os.environ})
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def sweep(executor: str, rounds: int, quick: bool, ranks: int, deterministic: bool) -> dict[str, Any]:
    how = executor, rounds, ranks, deterministic
    cohorts = COHORTS[:2] if quick else COHORTS
    by_cohort = [apart(Case(max(COHORTS), cohort, *how)) for cohort in cohorts]
    by_population = [apart(Case(population, 100, *how)) for population in POPULATIONS]
    small, large = (entry["peak_memory_bytes"] for entry in by_population)
    return {
        "workload": "cohorts" if ranks == 1 else "cohorts-ranks",
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
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        told = play(Case(**json.loads(arguments.case)))
        if os.environ.get("RANK", "0") == "0":
            print(json.dumps(told))
        return
    result = sweep(arguments.executor, arguments.rounds, arguments.quick, arguments.ranks, arguments.deterministic)
    if arguments.out:
        print(f"wrote {write_result(result, arguments.out)}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    over = f", {arguments.ranks} ranks" if arguments.ranks > 1 else ""
    print(f"{result['environment']['hardware']}, {arguments.executor}{over}")
    for entry in [*result["cohorts"], *result["populations"]]:
        print(
            f"{entry['cohort']:7,} of {entry['population']:9,} clients a round: "
            f"{entry['seconds_per_round']:8.3f} s, peak {entry['peak_memory_bytes'] / 1e6:6.0f} MB; "
            f"all uploads would be {entry['uploads_bytes'] / 1e6:6.0f} MB"
        )
    print(f"a million clients take {result['population_costs_bytes'] / 1e6:.1f} MB more than a thousand")


if __name__ == "__main__":
    main()
