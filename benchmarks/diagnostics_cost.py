"""What the diagnostics of every round cost: seconds of a round with them, and of the same round without them.

python benchmarks/diagnostics_cost.py [--workload mlp,cnn] [--engines serial,batched,pool] [--method fedacg]
       [--device cpu] [--precision fp32] [--turns 20] [--rounds 5] [--clock cpu] [--json]
python benchmarks/diagnostics_cost.py --device cuda          # graphed:streams, graphed:stacked; resnet18-b50, cnn, mlp

Every engine is made twice and stays warm: once as it is, once with what computes the diagnostics replaced by what
computes nothing (norms of updates, ‖Δ‖ and its product with the server's momentum, the count of clipped steps, and what
is made of them), which this script does and no setting can. Both play the same rounds, in turns; a turn is some rounds
of one and then of the other, and which begins alternates. Shown are the medians of all rounds, and the median and the
quartiles of the turns' ratios with/without. The last line of each workload is a control: two engines, both with
diagnostics. FedACG is measured, whose server has a momentum. Play it where nothing else runs; where that cannot be had,
`--clock cpu` counts the time that this process had a core, which says less (and nothing of `pool` or of a GPU).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from headway.bench.loop import wait_for
from headway.bench.measure import default_precision
from headway.bench.workloads import Workload, workloads
from headway.engine import aggregate, local_training, round
from headway.engine.building import build, device_of
from headway.engine.executor import CannotExecute
from headway.engine.selection import choose
from headway.engine.simulation import begin, simulate
from headway.engine.states import ClientStates
from headway.methods.spelling import method
from headway.records import RoundRecord
from headway.runs.environment import commit, environment
from headway.vectors import Vector

WARM_UP = 3
ENGINES = {"cpu": ["serial", "batched", "pool"], "cuda": ["graphed:streams", "graphed:stacked"]}
WORKLOADS = {"cpu": ["mlp", "cnn"], "cuda": ["resnet18-b50", "cnn", "mlp"]}


class NoMean:
    """In the place of `MeanUpdate`: nothing is computed of Δ."""

    @classmethod
    def of(cls, *_: object) -> None:
        return None


def no_norms(trained: aggregate.TrainedClients) -> Tensor:
    """In the place of ‖Δ_i‖: the column of a report with zeros in it."""
    return torch.zeros_like(trained["loss"], dtype=torch.float64)


def only_clipped(gradient: Vector, limit: float) -> tuple[Vector, bool]:
    """The same clipping; nobody counts it."""
    return _CLIPPED(gradient, limit)[0], False


_CLIPPED = local_training._clipped


@contextmanager
def without_diagnostics() -> Iterator[None]:
    """Inside, rounds compute no diagnostics; and engines that are made inside never do."""
    with (
        patch.object(aggregate, "_update_norms", no_norms),
        patch.object(local_training, "_clipped", only_clipped),
        patch.object(round, "MeanUpdate", NoMean),
        patch.object(round, "diagnostics", lambda uploads, mean: {}),
    ):
        yield


class Engine:
    """A simulation with one executor that plays rounds with diagnostics, or without them."""

    def __init__(self, workload: Workload, spelled: str, arguments: argparse.Namespace, *, diagnosed: bool) -> None:
        scenario = workload.scenario(arguments.device, arguments.precision)
        experiment = build(
            scenario, method(arguments.method), model=workload.module(), federation=workload.federation()
        )
        self.device, self.diagnosed, reasons = experiment.device, diagnosed, list[str]()
        self.now = time.process_time if arguments.clock == "cpu" else time.perf_counter
        with ExitStack() as stack:
            if not diagnosed:
                stack.enter_context(without_diagnostics())
            self.executor = choose(experiment, spelled, reasons.append)
            if not self.executor.name.startswith(spelled):
                self.executor.close()
                raise CannotExecute("; ".join(reasons))
        self.rounds = simulate(experiment, self.executor, ClientStates(), begin(experiment))
        for _ in range(WARM_UP):
            self.record = self.play()

    def play(self) -> RoundRecord:
        if self.diagnosed:
            return next(self.rounds)[0]
        with without_diagnostics():
            return next(self.rounds)[0]

    def turn(self, rounds: int) -> list[float]:
        """Seconds of each of some rounds, after one that is not timed: the other engine has just played."""
        self.play()
        found = []
        for _ in range(rounds):
            wait_for(self.device)
            start = self.now()
            self.record = self.play()
            wait_for(self.device)
            found.append(self.now() - start)
        return found

    def close(self) -> None:
        self.executor.close()


def compared(workload: Workload, spelled: str, arguments: argparse.Namespace, *, control: bool = False) -> Any:
    """The two engines in turns; a `control` has two that are alike."""
    with ExitStack() as stack:
        plain, full = (
            stack.enter_context(closing(Engine(workload, spelled, arguments, diagnosed=diagnosed)))
            for diagnosed in (control, True)
        )
        seconds: tuple[list[list[float]], list[list[float]]] = ([], [])
        for turn in range(arguments.turns):
            for side in (0, 1) if turn % 2 else (1, 0):
                seconds[side].append((plain, full)[side].turn(arguments.rounds))
        same = plain.record["train_loss"] == full.record["train_loss"]
    before, after = ([statistics.median(one) for one in side] for side in seconds)
    ratios = [new / old for old, new in zip(before, after, strict=True)]
    low, middle, high = statistics.quantiles(ratios, method="inclusive") if len(ratios) > 1 else ratios * 3
    return {
        "workload": workload.name,
        "engine": full.executor.name,
        "control": control,
        "without": statistics.median(before),
        "with": statistics.median(after),
        "ratio": middle,
        "ratio_quartiles": [low, high],
        "ratios": ratios,
        "same_numbers": same,
    }


def line(row: Any) -> str:
    low, high = row["ratio_quartiles"]
    kind = "control" if row["control"] else ""
    odd = "" if row["same_numbers"] else "   THE NUMBERS DIFFER"
    return (
        f"{row['workload']:14}{row['engine']:18}{kind:9}{row['without'] * 1e3:10.3f}{row['with'] * 1e3:10.3f}"
        f"{row['ratio']:9.4f}   {low:.4f} to {high:.4f}{odd}"
    )


def parsed() -> argparse.Namespace:
    def several(text: str) -> list[str]:
        return [word for word in text.split(",") if word]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", type=several)
    parser.add_argument("--engines", type=several)
    parser.add_argument("--method", default="fedacg")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision")
    parser.add_argument("--turns", type=int, default=20, help="turns of each engine")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of a turn")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    kind = arguments.device.partition(":")[0]
    if kind not in ENGINES:
        parser.error(f"--device is '{arguments.device}'; allowed: cpu, cuda or cuda:N")
    if arguments.turns < 1 or arguments.rounds < 1:
        parser.error("--turns and --rounds must be at least 1")
    arguments.workload = arguments.workload or WORKLOADS[kind]
    arguments.engines = arguments.engines or ENGINES[kind]
    arguments.precision = arguments.precision or default_precision(device_of(arguments.device))
    return arguments


def main() -> None:
    arguments = parsed()
    rows = []
    if not arguments.json:
        print(f"{'workload':14}{'engine':18}{'':9}{'without':>10}{'with':>10}{'ratio':>9}   quartiles   (ms a round)")
    for workload in workloads(arguments.workload):
        cases = [(engine, False) for engine in arguments.engines] + [(arguments.engines[0], True)]
        for engine, control in cases:
            try:
                rows.append(compared(workload, engine, arguments, control=control))
            except CannotExecute as reason:
                print(f"{workload.name}, {engine}: {reason}", file=sys.stderr, flush=True)
                continue
            if not arguments.json:
                print(line(rows[-1]), flush=True)
    if arguments.json:
        about = environment(device_of(arguments.device))
        print(
            json.dumps({"rows": rows, "method": arguments.method, "commit": commit(), "environment": about}, indent=2)
        )


if __name__ == "__main__":
    main()
