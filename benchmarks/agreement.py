"""How far executors are from `serial`, method by method.

python benchmarks/agreement.py [METHOD …] [--device auto] [--executors graphed:streams,graphed:stacked] [--quick]
       [--precision fp64] [--deterministic] [--part 1/1]

fp64: small networks and unequal clients, four rounds; the largest difference of any parameter. Four cases: as it is, a
client drawn twice, one local step, clients cut short; --quick has the first. More than 1e-10 is a failure.
Other precisions: the embedded data, the small CNN, 20 rounds; the models' difference as a share of the distance
travelled, and the largest difference of accuracies, looked at every five rounds. More than 2.5 points is a failure.
--deterministic: whether a repetition, and a run that was stopped and gone on with, have the same bits; in fp32 unless
another precision is asked for.

Without methods, the whole catalogue; `--part 2/4` takes the second quarter of them.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import headway
from headway.bench.measure import executors as names_of_executors
from headway.engine.building import build
from headway.engine.executor import CannotExecute
from headway.engine.experiment import Experiment
from headway.engine.selection import make_executor
from headway.engine.simulation import begin, simulate
from headway.engine.states import ClientStates
from headway.errors import ClientError, UserError
from headway.methods.catalogue import METHODS
from headway.methods.spelling import method
from headway.models.networks import Staged
from headway.random import built, generator
from headway.scenario import Scenario

TOLERANCE = 1e-10
POINTS = 2.5
"""Of accuracy: as many standard deviations of one that is measured on 2,000 samples, about one point each."""
SIZES = (3, 17, 8, 24, 5, 11)
FEATURES, CLASSES = 6, 3
SMALL = Scenario(rounds=4, participation=0.5, epochs=2, batch_size=4, rate=0.1, smoothing=0.5, precision="fp64")
CASES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "drawn twice": {"sampling": "replacement", "participation": 0.9},
    "one step": {"steps": 1},
    "cut short": {"dropout": 0.5, "stragglers": "partial", "participation": 1.0},
}
KNOWN = [name for name in names_of_executors() if name not in ("auto", "graphed")]
LONGER = Scenario(rounds=20, eval_every=5, model="cnn")


def group_norm() -> nn.Module:
    return Staged(nn.Sequential(nn.Linear(FEATURES, 8), nn.GroupNorm(2, 8), nn.ReLU()), nn.Linear(8, CLASSES))


def batch_norm_dropout() -> nn.Module:
    first = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.4))
    return Staged(first, nn.Linear(8, CLASSES))


def unequal_clients() -> dict[str, Any]:
    draw = generator(0, "bench/agreement")
    centres = draw.normal(size=(CLASSES, FEATURES))

    def samples(count: int, mix: Any) -> tuple[Any, Any]:
        y = draw.choice(CLASSES, count, p=mix)
        return centres[y] + 0.5 * draw.normal(size=(count, FEATURES)), y

    clients = [samples(count, draw.dirichlet([1.0] * CLASSES)) for count in SIZES]
    return {"clients": clients, "test": samples(40, [1 / CLASSES] * CLASSES)}


def played(experiment: Experiment, name: str) -> tuple[Tensor, list[float]]:
    """θ after all rounds, and the accuracies on the way."""
    executor, progress = make_executor(name, experiment), begin(experiment)
    accuracies: list[float] = []
    try:
        for record, after in simulate(experiment, executor, ClientStates(), progress):
            progress = after
            accuracies += [record["accuracy"]] if "accuracy" in record else []
    finally:
        executor.close()
    return progress.model.theta.flat().double(), accuracies


def small_worlds(name: str, device: str, quick: bool) -> Iterator[tuple[str, Experiment]]:
    for network in (group_norm, batch_norm_dropout):
        for case, settings in list(CASES.items())[: 1 if quick else None]:
            model = built(network, 0, "bench/agreement")
            scenario = SMALL.changed(device=device, **settings)
            yield f"{network.__name__}, {case}", build(scenario, method(name), model=model, **unequal_clients())


def exact(name: str, executors: list[str], device: str, quick: bool) -> bool:
    """Whether every case could be had and came within the tolerance; those that did not are printed."""
    largest = dict.fromkeys(executors, 0.0)
    for what, experiment in small_worlds(name, device, quick):
        reference, _ = played(experiment, "serial")
        for executor in executors:
            try:
                apart = (played(experiment, executor)[0] - reference).abs().max()
                difference = float(apart.nan_to_num(math.inf))
            except (CannotExecute, ClientError) as fault:
                print(f"{name}: {executor}, {what}: cannot be had ({fault})", flush=True)
                difference = math.inf
            if TOLERANCE < difference < math.inf:
                print(f"{name}: {executor}, {what}: {difference:.1e}", flush=True)
            largest[executor] = max(largest[executor], difference)
    print(f"{name:24}" + "   ".join(f"{executor} {most:.1e}" for executor, most in largest.items()), flush=True)
    return all(most <= TOLERANCE for most in largest.values())


def rounded(name: str, executors: list[str], device: str, precision: str) -> bool:
    """Whether accuracies came within this many points of each other."""
    experiment = build(LONGER.changed(device=device, precision=precision), method(name))
    first = begin(experiment).model.theta.flat().double()
    reference, before = played(experiment, "serial")
    near = True
    for executor in executors:
        found, after = played(experiment, executor)
        apart = float((found - reference).norm() / (reference - first).norm())
        points = 100 * max(abs(one - two) for one, two in zip(before, after, strict=True))
        print(f"{name:24}{executor} models {100 * apart:.1f} %, accuracies {points:.2f} points apart", flush=True)
        near &= points <= POINTS
    return near


class Stopped(Exception):
    pass


class StoppingAtThree:
    """An observer that ends a run as a fault in it would."""

    def begins(self, experiment: Experiment, done: int, executor: str) -> None:
        pass

    def round(self, record: dict[str, Any]) -> None:
        if record["round"] == 3:
            raise Stopped

    def tell(self, message: str) -> None:
        print(message, file=sys.stderr)


def bits(result: headway.Result) -> Tensor:
    return torch.cat([parameter.detach().reshape(-1).cpu() for parameter in result.model.parameters()])


def repeated(name: str, executors: list[str], device: str, precision: str) -> bool:
    """Whether a repetition and a run that was stopped have the same bits."""
    scenario = LONGER.changed(rounds=6, device=device, precision=precision, deterministic=True, checkpoint_every=2)
    same = True
    for executor in executors:
        chosen = scenario.changed(executor=executor)
        first, second = (bits(headway.simulate(name, chosen)) for _ in range(2))
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            with contextlib.suppress(Stopped):
                headway.simulate(name, chosen, out=run, observer=StoppingAtThree())
            third = bits(headway.resume(run))
        differing = [int((first != other).sum()) for other in (second, third)]
        print(f"{name:24}{executor} repeated: {differing[0]} differ, stopped: {differing[1]} differ", flush=True)
        same &= differing == [0, 0]
    return same


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--executors", default="graphed:streams,graphed:stacked")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--precision", default="fp64")
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--part", default="1/1")
    arguments = parser.parse_args()
    part, parts = map(int, arguments.part.split("/"))
    if not 1 <= part <= parts:
        parser.error(f"--part {arguments.part}: there is no such part")
    for unknown in set(arguments.executors.split(",")) - set(KNOWN):
        parser.error(f"there is no executor '{unknown}' (known: {', '.join(KNOWN)})")
    executors, device, precision = arguments.executors.split(","), arguments.device, arguments.precision
    names = (arguments.methods or list(METHODS))[part - 1 :: parts]
    try:
        for name in names:
            method(name)
    except UserError as fault:
        parser.error(str(fault))
    failed = []
    for name in names:
        if arguments.deterministic:
            good = repeated(name, executors, device, "fp32" if precision == "fp64" else precision)
        elif precision == "fp64":
            good = exact(name, executors, device, arguments.quick)
        else:
            good = rounded(name, executors, device, precision)
        failed += [] if good else [name]
    print(f"methods: {len(names)}" + (f"; not as they should be: {', '.join(failed)}" if failed else ""))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
