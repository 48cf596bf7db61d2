"""FedAvg and FedACG beside the 2021 program of FedAGM's authors, over the first 118 rounds, in the same bins of rounds.

python benchmarks/program_of_2021.py [FOLDER …]      (default: benchmarks/results/first-118-rounds)

The program was run unchanged on one H200 (torch 2.11, fp32, convolutions in tf32): CIFAR-10, its one Dirichlet(0.3)
split of 100 clients, 5 a round, ResNet-18, weight decay 0.001, clipping at 10, rate 0.1; FedAvg with the decay 0.998,
FedAGM with τ = 1, λ = 0.85, μ = 0.01 (which is FedACG) with 0.995; seeds 0 and 1. `THEIRS` has the means over rounds of
what it printed: test accuracy in %, and the mean objective of all local steps.

The runs are looked for in the folders, at any depth. Those that count are of

    headway reproduce fedacg/table-1a --data cifar10 --rows fedavg,fedacg --rounds 118 --seeds 3

whose scenario replays that split (`authors:0.3`) and, seed by seed, the program's sequence of clients. Shown for each
method and bin: the program's two seeds, ours, and the difference of the means beside what seeds explain, t·√(Σ s²/n) by
Welch, which needs two seeds on either side.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from scipy.stats import ttest_ind

from headway.errors import UserError
from headway.papers.reproduce import read
from headway.papers.saved_runs import saved_runs
from headway.records import RoundRecord
from headway.scenario import Scenario

ROOT = Path(__file__).resolve().parents[1]
BINS = ((1, 25), (26, 50), (51, 75), (76, 100), (101, 118))
"""First and last round of each."""
THEIRS: dict[str, dict[str, list[list[float]]]] = {
    "fedacg": {
        "accuracy": [[23.9, 36.1, 46.6, 53.3, 60.2], [22.5, 36.0, 45.2, 51.7, 57.2]],
        "loss": [[1.309, 0.972, 0.805, 0.624, 0.536], [1.312, 1.006, 0.857, 0.708, 0.596]],
    },
    "fedavg": {
        "accuracy": [[20.9, 30.8, 37.9, 41.7, 45.0], [20.8, 32.0, 38.8, 41.9, 45.6]],
        "loss": [[1.388, 1.098, 0.973, 0.832, 0.799], [1.367, 1.077, 0.961, 0.864, 0.785]],
    },
}
"""By method and quantity: for seeds 0 and 1 the mean over each bin."""
DECAY = {"fedavg": 0.998, "fedacg": 0.995}
CELL = {
    "data": "cifar10",
    "partition": "authors:0.3",
    "sampling": "authors",
    "clients": 100,
    "participation": 0.05,
    "model": "resnet18",
    "augmentation": "papers",
    "rate": 0.1,
    "weight_decay": 0.001,
    "clip": 10.0,
}
"""What the scenario of a run must have to count."""


@dataclass(frozen=True)
class Curve:
    """One run of ours."""

    method: str
    seed: int
    records: Sequence[RoundRecord]


def means(records: Sequence[RoundRecord], quantity: str) -> list[float | None]:
    """The mean over each bin: accuracy in %, loss as it is; None where a round of the bin is missing."""
    by_round = {one["round"]: one for one in records}
    found: list[float | None] = []
    for first, last in BINS:
        rows = [by_round.get(number) for number in range(first, last + 1)]
        values = [one.get("accuracy" if quantity == "accuracy" else "train_loss") for one in rows if one is not None]
        known = [value for value in values if value is not None]
        factor = 100 if quantity == "accuracy" else 1
        found.append(factor * fmean(known) if len(known) == last - first + 1 else None)
    return found


def counts(method: str, scenario: Scenario) -> bool:
    """Whether a run has the program's split, clients and settings."""
    has = {name: getattr(scenario, name) for name in CELL}
    named = str(scenario.method).partition(":")[0]
    return has == CELL and named == method and scenario.rate_decay == DECAY[method]


def curves(folders: Sequence[Path]) -> list[Curve]:
    """The runs that count, by method and seed."""
    found = [
        Curve(method, run.scenario.seed, read(run.folder).records)
        for run in saved_runs(*folders)
        for method in THEIRS
        if counts(method, run.scenario)
    ]
    return sorted(found, key=lambda one: (one.method, one.seed))


def explained(theirs: Sequence[float], ours: Sequence[float]) -> str:
    """The difference of the means, and half the width of its 95 % interval over seeds (Welch)."""
    gap = fmean(ours) - fmean(theirs)
    if len(ours) < 2:
        return f"{gap:+.3g} (one seed)"
    interval = ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    return f"{gap:+.3g} ± {(interval.high - interval.low) / 2:.3g}"


def rows(method: str, quantity: str, ours: Mapping[int, Sequence[float | None]]) -> list[list[str]]:
    """Rows of a table: the program's seeds, ours, and the differences."""
    digits = 1 if quantity == "accuracy" else 3
    theirs = THEIRS[method][quantity]
    table = [
        [method, quantity, f"program, seed {seed}", *(f"{value:.{digits}f}" for value in one)]
        for seed, one in enumerate(theirs)
    ]
    for seed, one in ours.items():
        shown = ["–" if value is None else f"{value:.{digits}f}" for value in one]
        table.append([method, quantity, f"Headway, seed {seed}", *shown])
    gaps = []
    for place in range(len(BINS)):
        known = [value for one in ours.values() if (value := one[place]) is not None]
        gaps.append(explained([one[place] for one in theirs], known) if known else "–")
    return [*table, [method, quantity, "difference", *gaps]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, default=[ROOT / "benchmarks" / "results" / "first-118-rounds"])
    try:
        found = curves(parser.parse_args().folders)
    except UserError as fault:
        print(f"program_of_2021: {fault}", file=sys.stderr)
        return 2
    if not found:
        print("program_of_2021: no run has the program's split, clients and settings; the first lines of this file say "
              "which command makes them", file=sys.stderr)  # fmt: skip
        return 1
    print("| method | quantity | run | " + " | ".join(f"{first}–{last}" for first, last in BINS) + " |")
    print("|---|---|---|" + "---:|" * len(BINS))
    for method in THEIRS:
        for quantity in THEIRS[method]:
            ours = {one.seed: means(one.records, quantity) for one in found if one.method == method}
            for row in rows(method, quantity, ours) if ours else []:
                print("| " + " | ".join(row) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
