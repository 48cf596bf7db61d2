"""Seconds of a round in every engine, taken in turns so that whatever slows the machine down slows them all.

No engine evaluates: a round is broadcast, local training and aggregation.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

from headway.bench.loop import PlainLoop, settle
from headway.bench.machine import Memory, ceiling
from headway.bench.peers import PEERS, Order, PeerEngine, PeerFailed
from headway.bench.workloads import Workload
from headway.engine.building import device_of
from headway.engine.executor import CannotExecute
from headway.engine.experiment import Experiment
from headway.engine.selection import choose
from headway.engine.simulation import begin, simulate
from headway.engine.states import ClientStates
from headway.errors import ClientError, UserError, nearest
from headway.runs.environment import commit, environment
from headway.scenario import EXECUTORS

WARM_UP = 2
IN_A_ROW = 5
"""Rounds that an engine plays in each turn, as in a run: one alone would find caches full of another's data."""
LOOP = PlainLoop.name
Tell = Callable[[str], None]


class Engine(Protocol):
    """Something that plays rounds of one workload, one at a time."""

    name: str
    precision: str
    options: dict[str, Any]

    def play(self) -> None:
        """One round; on a GPU it may still be going on when this returns."""

    def close(self) -> None: ...


def executors() -> tuple[str, ...]:
    """Every way a scenario may ask for its clients to be executed; `auto` is last."""
    return tuple(sorted(EXECUTORS, key=lambda name: bool(name == "auto")))


def engines() -> tuple[str, ...]:
    return (LOOP, *executors(), *PEERS)


def chosen(names: Iterable[str] | None) -> tuple[str, ...]:
    """The engines asked for, the plain loop always among them and first; or which there are."""
    usual = [name for name in engines() if not name.startswith("graphed:")]
    asked = usual if names is None else tuple(dict.fromkeys(names))
    for name in asked:
        if name not in engines():
            raise UserError(f"there is no engine '{name}'{nearest(name, engines())} (known: {', '.join(engines())})")
    return (LOOP, *(name for name in asked if name != LOOP))


class HeadwayEngine:
    """A simulation with one executor, as `headway run` plays it."""

    def __init__(self, experiment: Experiment, asked: str) -> None:
        reasons: list[str] = []
        self.executor = choose(experiment, asked, reasons.append)
        if asked != "auto" and not self.executor.name.startswith(asked):
            self.executor.close()
            raise CannotExecute("; ".join(reasons))
        self.name, self.precision = asked, experiment.scenario.precision
        self.options: dict[str, Any] = {"executor": self.executor.name}
        self.rounds = simulate(experiment, self.executor, ClientStates(), begin(experiment))

    def play(self) -> None:
        next(self.rounds)

    def close(self) -> None:
        self.executor.close()


@dataclass
class _Lane:
    """An engine and what was measured of it."""

    engine: Engine
    peak: int | None
    seconds: list[float] = field(default_factory=list)


def measure(
    workload: Workload, names: Iterable[str], rounds: int, precisions: Sequence[str], device: str, tell: Tell
) -> Any:
    """All engines on one workload, as plain data; one that cannot take part is in `skipped`, with the reason.

    Headway's are measured in each of the precisions.
    """
    place = device_of(device)
    lanes: list[_Lane] = []
    skipped: list[dict[str, str]] = []
    memory = Memory(place)
    asked = [(name, one) for name in names for one in (precisions[:1] if name in (LOOP, *PEERS) else precisions)]
    try:
        for name, precision in asked:
            tell(f"{workload.name}: warming up {name}{f' in {precision}' if len(precisions) > 1 else ''}")
            experiment = workload.experiment(device, precision)  # its own: a round to come is prepared in it
            memory.watch()
            before = len(lanes)
            try:
                engine = _made(name, experiment, workload, lanes)
                lanes.append(_Lane(engine, None))
                for _ in range(WARM_UP):
                    engine.play()
                settle(place)
            except (CannotExecute, ClientError, PeerFailed, torch.OutOfMemoryError) as reason:
                if name == LOOP:
                    raise
                entry = {"name": name, "reason": " ".join(str(reason).split())}
                skipped.append(entry if name in PEERS else {**entry, "precision": precision})
                _dropped(lanes, before)
                continue
            lanes[-1].peak = None if name in PEERS else memory.peak()
        tell(f"{workload.name}: {rounds} rounds of {', '.join(lane.engine.name for lane in lanes)}, in turns")
        _take_turns(lanes, rounds, place)
        return _result(workload, lanes, skipped, rounds, place)
    finally:
        for lane in lanes:
            lane.engine.close()


def _made(name: str, experiment: Experiment, workload: Workload, lanes: list[_Lane]) -> Engine:
    if name == LOOP:
        return PlainLoop(experiment)
    if name not in PEERS:
        return HeadwayEngine(experiment, name)
    if missing := PEERS[name].missing:
        raise PeerFailed(missing)
    loop = lanes[0].engine
    assert isinstance(loop, PlainLoop)
    channels_last = loop.variant.channels_last and PEERS[name].layouts
    return PeerEngine(
        Order(name, workload.name, str(experiment.device), replace(loop.variant, channels_last=channels_last))
    )


def _dropped(lanes: list[_Lane], before: int) -> None:
    """Close an engine that failed while it warmed up; one that failed while it was made is in no lane."""
    while len(lanes) > before:
        lanes.pop().engine.close()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _take_turns(lanes: list[_Lane], rounds: int, device: torch.device) -> None:
    """Every engine plays some rounds in each turn, and each turn begins with another one."""
    for turn, done in enumerate(range(0, rounds, IN_A_ROW)):
        first = turn % len(lanes)
        for lane in lanes[first:] + lanes[:first]:
            for _ in range(min(IN_A_ROW, rounds - done)):
                settle(device)
                start = time.perf_counter()
                lane.engine.play()
                settle(device)
                lane.seconds.append(time.perf_counter() - start)


def _result(
    workload: Workload, lanes: list[_Lane], skipped: list[dict[str, str]], rounds: int, device: torch.device
) -> dict[str, Any]:
    flops = workload.flops()
    ceilings = {precision: ceiling(device, precision) for precision in {lane.engine.precision for lane in lanes}}
    loop = statistics.median(lanes[0].seconds)
    return {
        "workload": workload.name,
        "work": workload.in_words,
        "engines": [_row(lane, loop, flops, ceilings[lane.engine.precision]) for lane in lanes],
        "skipped": skipped,
        "warm_up_rounds": WARM_UP,
        "timed_rounds": rounds,
        "rounds_in_a_row": min(IN_A_ROW, rounds),
        "evaluation": "none in any engine",
        "flops_per_round": flops,
        "ceiling_flops_per_second": ceilings,
        "commit": commit(),
        "environment": environment(device),
    }


def _row(lane: _Lane, loop: float, flops: int, most: float) -> dict[str, Any]:
    median = statistics.median(lane.seconds)
    low, _, high = statistics.quantiles(lane.seconds, method="inclusive") if len(lane.seconds) > 1 else [median] * 3
    return {
        "name": lane.engine.name,
        "seconds_per_round": median,
        "ratio_to_loop": loop / median,
        "seconds_quartiles": [low, high],
        "flops_per_second": flops / median,
        "share_of_ceiling": flops / median / most,
        "peak_memory_bytes": lane.peak,
        "precision": lane.engine.precision,
        "options": lane.engine.options,
    }


def default_precision(device: torch.device) -> str:
    return "tf32" if device.type == "cuda" else "fp32"
