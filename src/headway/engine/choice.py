"""Which executor: the one asked for, or the fastest in a short measured trial. Reasons are said once.

Compiling takes up to a minute, so it is tried where the run would take two. In deterministic mode no stopwatch decides:
it is the first that can take the model and the method, uncompiled.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch.nn.modules.conv import _ConvNd as _Conv

from headway.engine import round as rounds
from headway.engine.batched import STACKED_AT_MOST, Batched
from headway.engine.executor import Assignment, CannotExecute, Executor, first_words
from headway.engine.graphed import AT_ONCE, Graphed
from headway.engine.pool import Pool, cores
from headway.engine.serial import Serial
from headway.engine.world import World
from headway.errors import ClientError, UserError

TRIAL_STEPS = 3
TRIAL_CLIENTS = max(STACKED_AT_MOST, *AT_ONCE.values())
TRIALS = 3
PAYS = 120.0
"""Seconds that the run would take uncompiled, from which on compiling is tried."""
ALONE = ("serial", "pool")
"""Executors in which no client shares a tensor with another."""
_ONLY_ON = {"graphed": "cuda", "pool": "cpu"}
"""Executors of one kind of device."""
Tell = Callable[[str], None]


def runs_on(name: str, device: torch.device) -> bool:
    """Whether an executor is one for this device."""
    return _ONLY_ON.get(name.split(":")[0], device.type) == device.type


def kept(asked: str, before: str, device: torch.device) -> str:
    """What to ask for after `before` was used, so that roundings do not mix: `auto` and `graphed` choose once.

    One that was asked for by its name stays so, whatever came of it; a choice made on another device is made anew.
    """
    chosen = asked == "auto" or before.startswith(asked)
    return before if chosen and runs_on(before, device) else asked


def made(name: str, world: World) -> Executor:
    """An executor by its full name, such as `batched` or `graphed:streams:compiled`."""
    kind, *how = name.split(":")
    compiled = "compiled" in how
    rules = dataclasses.replace(world.rules, coupled=fills(name) and bool(world.coupling))
    if kind == "graphed":
        return Graphed(rules, layout="stacked" if "stacked" in how else "streams", compiled=compiled)
    if kind == "batched":
        return Batched(rules, compiled=compiled)
    if kind == "pool":
        return Pool(rules, deterministic=world.scenario.deterministic, compiled=compiled)
    return Serial(rules, compiled=compiled)


def fills(name: str) -> bool:
    """Whether an executor fills short batches up to a shape; eager ones of a client alone take them as they are."""
    return name not in ALONE


class Nothing:
    """A client store for trials: nobody has state and nothing is kept."""

    def get(self, client: int) -> None:
        return None

    def put(self, client: int, state: object) -> None:
        pass


def _trial(world: World, asked: Sequence[int]) -> Assignment:
    """A few steps of the clients asked, or of the first of them. Training is pure, so nothing of it stays."""
    cohort = asked[:TRIAL_CLIENTS]
    assignment = rounds.assign(world, rounds.start(world), Nothing(), cohort, 1, TRIAL_STEPS)[0]
    return replace(assignment, failures={} if world.scenario.on_failure == "skip" else None)


def _seconds(executor: Executor, assignment: Assignment) -> float:
    """The fastest of several trials: the first pays for warming up."""
    taken = []
    if assignment.failures is not None:
        assignment.failures.clear()  # of the executor before
    for _ in range(TRIALS):
        start = time.perf_counter()
        for _, trained in executor.run(assignment):
            float(trained["loss"].sum())
        taken.append(time.perf_counter() - start)
        if (
            assignment.failures
            and len(assignment.failures) == len(assignment.works)
            and not executor.name.startswith(ALONE)
        ):
            raise next(iter(assignment.failures.values()))  # it may be the stack that fails, not its clients
    return min(taken)


def _candidates(world: World, asked: str) -> list[str]:
    """Names to try uncompiled, the most promising first."""
    if asked == "auto" and world.device.type == "cuda" and world.coupling:
        return ["batched", "serial"]
    if asked == "graphed" or (asked == "auto" and world.device.type == "cuda"):
        small = len(world.network.parameters) < 1_000_000
        layouts = ["graphed:stacked", "graphed:streams"]
        return layouts if small else layouts[::-1]
    return ["batched", "pool", "serial"] if asked == "auto" else [asked]


def _compiled(world: World, name: str) -> str:
    """What is tried after an executor has won uncompiled.

    On a CPU a stack of linear layers gains most. Convolutions of a stack stay slow; there each process gets a compiled
    step, which gains little from a second thread.
    """
    if name.startswith("graphed"):
        return f"{name}:compiled"
    convolves = any(isinstance(layer, _Conv) for layer in world.network.original.modules())
    if name == "batched" or not convolves:
        return "batched:compiled"
    return "pool:compiled" if cores() > 1 else "serial:compiled"


class _Contest:
    """The fastest executor so far; all others are closed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.refusals: list[str] = []
        asked = world.sampling.draw(1)
        self.cohort = min(world.scenario.cohort, len(asked)) if world.scenario.over_selection else len(asked)
        self.assignment = _trial(world, asked[: self.cohort])
        self.best: Executor | None = None
        self.name, self.seconds = "", float("inf")

    def enter(self, names: Sequence[str]) -> None:
        for name in names:
            try:
                executor, seconds = self._timed(name)
            except (CannotExecute, ClientError) as reason:
                if isinstance(reason, ClientError) and name.startswith(ALONE):
                    self._close()
                    raise  # no matter of how clients are put together
                cause = reason.__cause__ if isinstance(reason, ClientError) and reason.__cause__ else reason
                self.refusals.append(f"the {name} executor cannot take this model or method ({first_words(cause)})")
                continue
            except BaseException:
                self._close()
                raise
            if seconds >= self.seconds:
                executor.close()
                continue
            self._close()
            self.best, self.name, self.seconds = executor, name, seconds
            if self.world.scenario.deterministic:  # a stopwatch must not decide which bits come out
                return

    def _close(self) -> None:
        if self.best is not None:
            self.best.close()

    def _timed(self, name: str) -> tuple[Executor, float]:
        """An executor and its seconds; one that fails is closed."""
        executor = made(name, self.world)
        try:
            return executor, _seconds(executor, self.assignment)
        except BaseException:
            executor.close()
            raise

    @property
    def projected(self) -> float:
        """Seconds that all rounds would take."""
        works = self.assignment.works
        steps, clients = max(works.lengths, default=1), max(len(works), 1)
        longest: int = self.world.shapes["rows"][0]
        larger = max(self.cohort / clients, 1)
        return self.world.scenario.rounds * self.seconds * longest / steps * larger


def choose(world: World, asked: str, tell: Tell) -> Executor:
    """An executor that takes this model and method; `tell` hears why another could not."""
    if asked == "serial":
        return Serial(world.rules)
    wanted = world.scenario.executor.startswith("graphed")  # what a run has used before is not insisted on
    if wanted and asked.startswith("graphed") and runs_on(asked, world.device) and world.coupling:
        raise UserError(
            f"executor is '{asked}', which fills short batches, but {_coupled(world)}; use batched, serial or auto, or "
            "a batch_size that divides the number of samples of every client"
        )
    with world.arithmetic():
        contest = _Contest(world)
        contest.enter(_candidates(world, asked))
        free = asked in ("auto", "graphed") and not world.scenario.deterministic
        if free and contest.best is not None and contest.projected > PAYS:
            contest.enter([_compiled(world, contest.name)])
        if contest.best is None and asked != "auto":
            contest.refusals[-1] += "; clients are trained one by one instead"
        chosen = contest.best or Serial(world.rules)
        for line in [*contest.refusals, *_unfilled(world, chosen.name)]:
            tell(line)
        return chosen


def _coupled(world: World) -> str:
    return f"the rows of a batch change each other in this model or method ({world.coupling})"


def _unfilled(world: World, name: str) -> list[str]:
    """What is done otherwise because batches cannot be filled; nothing where they can, or need not be."""
    how = []
    if fills(name) and world.coupling:
        how += ["only clients whose batches are equally large are stacked"] if name.startswith("batched") else []
        how += ["smaller batches are stepped uncompiled"] if name.endswith("compiled") else []
    return [f"{_coupled(world)}, so no batch is filled: {' and '.join(how)}"] if how else []
