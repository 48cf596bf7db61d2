"""Which executor: the one asked for, or the fastest in a short measured trial. Reasons are said once.

In deterministic mode it is the first that can take the model and the method.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from headway.engine import round as rounds
from headway.engine.batched import Batched
from headway.engine.executor import Assignment, CannotExecute, Executor
from headway.engine.pool import Pool
from headway.engine.serial import Serial
from headway.engine.world import World

TRIAL_STEPS = 3


def _made(name: str, world: World) -> Executor:
    if name == "batched":
        return Batched(world.rules)
    if name == "pool":
        return Pool(world.rules, deterministic=world.scenario.deterministic)
    return Serial(world.rules)


class Nothing:
    """A client store for trials: nobody has state and nothing is kept."""

    def get(self, client: int) -> None:
        return None

    def put(self, client: int, state: object) -> None:
        pass


def _trial(world: World) -> Assignment:
    """A few steps of the first round's cohort. Training is pure, so nothing of it stays."""
    return rounds.assign(world, rounds.start(world), Nothing(), world.sampling.draw(1), 1, TRIAL_STEPS)[0]


def _seconds(executor: Executor, assignment: Assignment) -> float:
    """The faster of two trials: the first pays for warming up."""
    taken = []
    for _ in range(2):
        start = time.perf_counter()
        for _, trained in executor.run(assignment):
            float(trained["loss"].sum())
        taken.append(time.perf_counter() - start)
    return min(taken)


def choose(world: World, asked: str, tell: Callable[[str], None]) -> Executor:
    """An executor that takes this model and method; `tell` hears why another could not."""
    with world.arithmetic():
        assignment = _trial(world)
        names = [name for name in ("batched", "pool", "serial") if asked in ("auto", name)]
        fastest: tuple[float, Executor] | None = None
        for name in names:
            if asked == "auto" and name == "pool" and world.device.type != "cpu":
                continue
            if asked == "serial":
                return _made(name, world)
            try:
                executor = _made(name, world)
                seconds = _seconds(executor, assignment)
                if world.scenario.deterministic:  # a stopwatch must not decide which bits come out
                    return executor
            except CannotExecute as reason:
                instead = "" if asked == "auto" else "; clients are trained one by one instead"
                tell(f"the {name} executor cannot take this model or method ({reason}){instead}")
                continue
            if fastest is None or seconds < fastest[0]:
                if fastest is not None:
                    fastest[1].close()
                fastest = seconds, executor
            else:
                executor.close()
        return Serial(world.rules) if fastest is None else fastest[1]
