"""Which executor: the one asked for, or the fastest in a short measured trial. Reasons are said once.

Compiling takes up to a minute, so it is tried where the run would take two. In deterministic mode no stopwatch decides:
it is the first that can take the model and the method, uncompiled.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence

import torch
from torch.nn.modules.conv import _ConvNd as _Conv

from headway.engine.batched import STACKED_AT_MOST
from headway.engine.captured import AT_ONCE
from headway.engine.client_rounds import CohortRounds
from headway.engine.executor import CannotExecute, Executor, RoundInput
from headway.engine.experiment import Experiment
from headway.engine.kept_programs import why_not_kept
from headway.engine.pool import cores
from headway.engine.serial import Serial
from headway.engine.trial import first_rounds, round_input
from headway.errors import ClientError, UserError, first_words
from headway.executors import fills, is_form_of, kind_of

TIMED = ("auto", "graphed")
"""Names that leave the choice to a stopwatch."""
TRIAL_STEPS = 3
TRIAL_CLIENTS = max(STACKED_AT_MOST, *AT_ONCE.values())
TRIALS, ENOUGH = 3, 1.0
"""Trials of an executor, and seconds after which two of them have to do."""
CLEARLY = 2.0
"""Times the best executor so far, from which on a second trial of another one is its last."""
PAYS = 120.0
"""Seconds that the run would take uncompiled, from which on compiling is tried."""
Tell = Callable[[str], None]


def runs_on(name: str, device: torch.device) -> bool:
    """Whether an executor is one for this device."""
    return name == "auto" or kind_of(name).device in (None, device.type)


def inherited_executor(requested: str, before: str, device: torch.device) -> str:
    """The executor to request after `before` was used, so that roundings do not mix: `auto` and `graphed` choose once.

    One that was asked for by its name stays so, whatever came of it; a choice made on another device is made anew.
    """
    chosen = requested == "auto" or is_form_of(before, requested)
    return before if chosen and runs_on(before, device) else requested


def make_executor(name: str, experiment: Experiment) -> Executor:
    """An executor by its full name, such as `batched` or `graphed:streams:compiled`."""
    kind, *forms = name.split(":")
    module = importlib.import_module(f"headway.engine.{kind.replace('-', '_')}")
    make: Callable[[Experiment, Sequence[str], bool], Executor] = module.executor
    return make(experiment, forms, fills(name) and bool(experiment.coupling))


def _tried(executor: Executor, given: RoundInput, rounds: CohortRounds) -> float:
    """The seconds of a trial, or why the executor cannot take it. Training is pure, so nothing of it stays."""
    if rounds.failures is not None:
        rounds.failures.clear()  # of the trial before
    start = time.perf_counter()
    for group in executor.run(given, rounds):
        float(group.trained["loss"].sum())
    taken = time.perf_counter() - start
    if rounds.failures and len(rounds.failures) == len(rounds) and not kind_of(executor.name).alone:
        raise next(iter(rounds.failures.values()))  # it may be the stack that fails, not its clients
    return taken


def _seconds(executor: Executor, given: RoundInput, rounds: CohortRounds, best: float) -> float:
    """The fastest of several trials, of which the first pays for warming up.

    They end after the second where it is much slower than the `best` executor, or where trials take long.
    """
    taken = [_tried(executor, given, rounds) for _ in range(2)]
    while len(taken) < TRIALS and sum(taken) < ENOUGH and min(taken) < CLEARLY * best:
        taken.append(_tried(executor, given, rounds))
    return min(taken)


def _candidates(experiment: Experiment, requested: str) -> list[str]:
    """Names to try uncompiled, the most promising first."""
    if requested == "auto" and experiment.device.type == "cuda" and (experiment.coupling or _is_drawn(experiment)):
        return ["batched", "serial"]
    if requested == "graphed" or (requested == "auto" and experiment.device.type == "cuda"):
        small = len(experiment.network.parameters) < 1_000_000
        layouts = ["graphed:stacked", "graphed:streams"]
        return layouts if small else layouts[::-1]
    return ["batched", "pool", "serial"] if requested == "auto" else [requested]


def _compiled(experiment: Experiment, name: str) -> str:
    """The compiled executor that is tried after one has won uncompiled.

    On a CPU a stack of linear layers gains most. Convolutions of a stack stay slow; there each process gets a compiled
    step, which gains little from a second thread.
    """
    if name.startswith("graphed"):
        return f"{name}:compiled"
    convolves = any(isinstance(layer, _Conv) for layer in experiment.network.original.modules())
    if name == "batched" or not convolves:
        return "batched:compiled"
    return "pool:compiled" if cores() > 1 else "serial:compiled"


class _Contest:
    """Tries executors and keeps the fastest so far; all others are closed.

    Where no stopwatch decides, one step shows whether an executor can take the work, and the first that can is kept.
    """

    def __init__(self, experiment: Experiment, timed: bool) -> None:
        self.experiment, self.timed = experiment, timed
        self.refusals: list[str] = []
        invited = experiment.sampling.draw(1) or [0]
        self.cohort = (
            min(experiment.scenario.cohort, len(invited)) if experiment.scenario.over_selection else len(invited)
        )
        self.given = round_input(experiment)
        self.rounds = first_rounds(experiment, invited[: self.cohort][:TRIAL_CLIENTS], TRIAL_STEPS if timed else 1)
        self.best: Executor | None = None
        self.name, self.seconds = "", float("inf")

    def enter(self, names: Sequence[str]) -> None:
        for name in names:
            try:
                executor, seconds = self._tried(name)
            except (CannotExecute, ClientError) as reason:
                if isinstance(reason, ClientError) and kind_of(name).alone:
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
            if not self.timed:
                return

    def _close(self) -> None:
        if self.best is not None:
            self.best.close()

    def _tried(self, name: str) -> tuple[Executor, float]:
        """An executor and its seconds; one that fails is closed."""
        executor = make_executor(name, self.experiment)
        try:
            if not self.timed:
                return executor, _tried(executor, self.given, self.rounds)
            return executor, _seconds(executor, self.given, self.rounds, self.seconds)
        except BaseException:
            executor.close()
            raise

    @property
    def pays_to_compile(self) -> bool:
        """Whether the run is long enough for it, and a stopwatch may decide."""
        free = not self.experiment.scenario.deterministic and not _is_drawn(self.experiment)
        return self.best is not None and free and self.projected > PAYS

    @property
    def projected(self) -> float:
        """Seconds that all rounds would take."""
        steps, clients = max(self.rounds.lengths, default=1), max(len(self.rounds), 1)
        longest: int = self.experiment.shapes["rows"][0]
        larger = max(self.cohort / clients, 1)
        return self.experiment.scenario.rounds * self.seconds * longest / steps * larger


def choose(experiment: Experiment, requested: str, tell: Tell) -> Executor:
    """An executor that takes this model and method; `tell` hears why another could not."""
    if requested == "serial":
        return Serial(experiment)
    _check_filling(experiment, requested)
    _check_drawn(experiment, requested)
    with experiment.arithmetic():
        timed = requested in TIMED and not experiment.scenario.deterministic  # else a stopwatch would choose the bits
        contest = _Contest(experiment, timed)
        contest.enter(_candidates(experiment, requested))
        if requested in TIMED and contest.pays_to_compile:
            contest.enter([_compiled(experiment, contest.name)])
        if contest.best is None and requested != "auto":
            contest.refusals[-1] += "; clients are trained one by one instead"
        chosen = contest.best or Serial(experiment)
        unkept = why_not_kept() if chosen.name.endswith(":compiled") else None
        for line in [*contest.refusals, *_unfilled(experiment, chosen.name), *([unkept] if unkept else [])]:
            tell(line)
        return chosen


def _is_drawn(experiment: Experiment) -> bool:
    """Whether samples are made on the host when they are read, so that no program holds them."""
    return experiment.federation.is_drawn


def _check_drawn(experiment: Experiment, requested: str) -> None:
    """Refuse programs, which read samples from memory, where these are made when they are read."""
    if _is_drawn(experiment) and (requested.startswith("graphed") or requested.endswith("compiled")):
        raise UserError(
            f"executor is '{requested}', which reads samples inside of a program, but those of "
            f"{experiment.scenario.data} are made when they are read; use serial, batched, pool or auto"
        )


def _check_filling(experiment: Experiment, requested: str) -> None:
    """Refuse `graphed`, which fills batches, where filler rows would change a sample's numbers.

    Only where the user names it: a run that used it before takes another executor instead.
    """
    wanted = experiment.scenario.executor.startswith("graphed") and requested.startswith("graphed")
    if wanted and runs_on(requested, experiment.device) and experiment.coupling:
        raise UserError(
            f"executor is '{requested}', which fills short batches, but {_coupled(experiment)}; use batched, serial or "
            "auto, or a batch_size that divides the number of samples of every client"
        )


def _coupled(experiment: Experiment) -> str:
    return f"the rows of a batch change each other in this model or method ({experiment.coupling})"


def _unfilled(experiment: Experiment, name: str) -> list[str]:
    """How clients are trained because batches cannot be filled; nothing where they can, or need not be."""
    how = []
    if fills(name) and experiment.coupling:
        how += ["only clients whose batches are equally large are stacked"] if name.startswith("batched") else []
        how += ["smaller batches are stepped uncompiled"] if name.endswith("compiled") else []
    return [f"{_coupled(experiment)}, so no batch is filled: {' and '.join(how)}"] if how else []
