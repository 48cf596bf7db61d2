"""Times the rounds of every engine on a workload.

The engines take turns, so that what slows the machine down for a while slows all of them. No engine evaluates: a round
is broadcast, local training and aggregation.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch

from headway.bench.loop import PlainLoop, wait_for
from headway.bench.machine import Memory, peak_flops
from headway.bench.peers import PEERS, PeerEngine, PeerFailed, PeerJob
from headway.bench.result import EngineResult, Skipped, WorkloadResult
from headway.bench.workloads import Workload
from headway.engine.building import device_of
from headway.engine.executor import CannotExecute
from headway.engine.experiment import Experiment
from headway.engine.selection import choose
from headway.engine.simulation import begin, simulate
from headway.engine.states import ClientStates
from headway.errors import ClientError, UserError, nearest
from headway.executors import EXECUTORS
from headway.runs.environment import commit, environment

WARM_UP = 2
IN_A_ROW = 5
"""Rounds that an engine plays in each turn: after only one it would find the caches full of another engine's data."""
LOOP = PlainLoop.name
Tell = Callable[[str], None]
"""Shows a line about the progress."""


class Engine(Protocol):
    """Something that plays rounds of one workload, one at a time."""

    name: str
    precision: str
    options: dict[str, str]

    def play(self) -> None:
        """One round; on a GPU it may still be running when this returns."""

    def close(self) -> None: ...


def executors() -> tuple[str, ...]:
    """The executors that a scenario can name; `auto` is last."""
    return tuple(sorted(EXECUTORS, key=lambda name: bool(name == "auto")))


def engines() -> tuple[str, ...]:
    """The names of all engines: the plain loop, Headway with each executor, other simulators."""
    return (LOOP, *executors(), *PEERS)


def choose_engines(names: Iterable[str] | None) -> tuple[str, ...]:
    """The engines of these names, with the plain loop first whether it is among them or not; None is the usual ones."""
    usual = [name for name in engines() if not name.startswith("graphed:")]
    requested = usual if names is None else tuple(dict.fromkeys(names))
    for name in requested:
        if name not in engines():
            raise UserError(f"there is no engine '{name}'{nearest(name, engines())} (known: {', '.join(engines())})")
    return (LOOP, *(name for name in requested if name != LOOP))


class HeadwayEngine:
    """A simulation with one executor, as `headway run` plays it."""

    def __init__(self, experiment: Experiment, requested: str) -> None:
        reasons: list[str] = []
        self.executor = choose(experiment, requested, reasons.append)
        if requested != "auto" and not self.executor.name.startswith(requested):
            self.executor.close()
            raise CannotExecute("; ".join(reasons))
        self.name, self.precision = requested, experiment.scenario.precision
        self.options: dict[str, str] = {"executor": self.executor.name}
        self.rounds = simulate(experiment, self.executor, ClientStates(), begin(experiment))

    def play(self) -> None:
        next(self.rounds)

    def close(self) -> None:
        self.executor.close()


@dataclass
class _Timed:
    """An engine with the seconds of its rounds and its peak memory in bytes."""

    engine: Engine
    peak: int | None = None
    seconds: list[float] = field(default_factory=list)


def measure(
    workload: Workload, names: Iterable[str], rounds: int, precisions: Sequence[str], device: str, tell: Tell
) -> WorkloadResult:
    """Time engines on one workload; one that cannot take part is in `skipped`, with the reason.

    Headway's are measured in each of the precisions, the others in the first.
    """
    place = device_of(device)
    timed: list[_Timed] = []
    skipped: list[Skipped] = []
    wanted = [(name, one) for name in names for one in (precisions[:1] if name in (LOOP, *PEERS) else precisions)]
    try:
        for name, precision in wanted:
            tell(f"{workload.name}: warming up {name}{f' in {precision}' if len(precisions) > 1 else ''}")
            # An experiment for each engine: it holds the tasks of the next round.
            reason = _try_engine(name, workload.experiment(device, precision), workload, timed)
            if reason is not None:
                entry: Skipped = {"name": name, "reason": reason}
                skipped.append(entry if name in PEERS else {**entry, "precision": precision})
        tell(f"{workload.name}: {rounds} rounds of {', '.join(one.engine.name for one in timed)}, in turns")
        _take_turns(timed, rounds, place)
        return _result(workload, timed, skipped, rounds, place)
    finally:
        for one in timed:
            one.engine.close()


def _try_engine(name: str, experiment: Experiment, workload: Workload, timed: list[_Timed]) -> str | None:
    """Warm up an engine, to be timed; or why it cannot take part. Without the plain loop there is no benchmark."""
    ready = len(timed)
    try:
        _add_engine(name, experiment, workload, timed)
    except (CannotExecute, ClientError, PeerFailed, torch.OutOfMemoryError) as reason:
        if name == LOOP:
            raise
        _drop(timed, ready)
        return " ".join(str(reason).split())
    return None


def _add_engine(name: str, experiment: Experiment, workload: Workload, timed: list[_Timed]) -> None:
    """Make an engine, add it to those that are timed, and play a few rounds to warm it up."""
    memory = Memory(experiment.device)
    memory.watch()
    one = _Timed(_make_engine(name, experiment, workload, timed))
    timed.append(one)
    for _ in range(WARM_UP):
        one.engine.play()
    wait_for(experiment.device)
    one.peak = None if name in PEERS else memory.peak()


def _make_engine(name: str, experiment: Experiment, workload: Workload, timed: Sequence[_Timed]) -> Engine:
    """An engine by its name; other simulators take the variant that the plain loop, which is made first, has chosen."""
    if name == LOOP:
        return PlainLoop(experiment)
    if name not in PEERS:
        return HeadwayEngine(experiment, name)
    if missing := PEERS[name].missing:
        raise PeerFailed(missing)
    loop = timed[0].engine
    assert isinstance(loop, PlainLoop)
    variant = replace(loop.variant, channels_last=loop.variant.channels_last and PEERS[name].layouts)
    return PeerEngine(PeerJob(name, workload.name, str(experiment.device), variant))


def _drop(timed: list[_Timed], ready: int) -> None:
    """Close and remove an engine that failed while it warmed up; the first `ready` ones stay.

    One that failed while it was made was never added.
    """
    while len(timed) > ready:
        timed.pop().engine.close()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _take_turns(timed: list[_Timed], rounds: int, device: torch.device) -> None:
    """Time the engines in turns: in each one every engine plays some rounds, and each begins with another engine."""
    for turn, done in enumerate(range(0, rounds, IN_A_ROW)):
        first = turn % len(timed)
        for one in timed[first:] + timed[:first]:
            for _ in range(min(IN_A_ROW, rounds - done)):
                wait_for(device)
                start = time.perf_counter()
                one.engine.play()
                wait_for(device)
                one.seconds.append(time.perf_counter() - start)


def _result(
    workload: Workload, timed: Sequence[_Timed], skipped: list[Skipped], rounds: int, device: torch.device
) -> WorkloadResult:
    flops = workload.flops()
    peaks = {precision: peak_flops(device, precision) for precision in {one.engine.precision for one in timed}}
    loop = statistics.median(timed[0].seconds)
    return {
        "workload": workload.name,
        "work": workload.in_words,
        "engines": [_row(one, loop, flops, peaks[one.engine.precision]) for one in timed],
        "skipped": skipped,
        "warm_up_rounds": WARM_UP,
        "timed_rounds": rounds,
        "rounds_in_a_row": min(IN_A_ROW, rounds),
        "evaluation": "none in any engine",
        "flops_per_round": flops,
        "ceiling_flops_per_second": peaks,
        "commit": commit(),
        "environment": environment(device),
    }


def _row(one: _Timed, loop: float, flops: int, peak: float) -> EngineResult:
    """An engine's result; `loop` is the plain loop's median, `peak` what the machine reaches in this precision."""
    median = statistics.median(one.seconds)
    low, _, high = statistics.quantiles(one.seconds, method="inclusive") if len(one.seconds) > 1 else [median] * 3
    return {
        "name": one.engine.name,
        "seconds_per_round": median,
        "ratio_to_loop": loop / median,
        "seconds_quartiles": [low, high],
        "flops_per_second": flops / median,
        "share_of_ceiling": flops / median / peak,
        "peak_memory_bytes": one.peak,
        "precision": one.engine.precision,
        "options": one.engine.options,
    }


def default_precision(device: torch.device) -> str:
    """The precision that engines are measured in where none is given."""
    return "tf32" if device.type == "cuda" else "fp32"
