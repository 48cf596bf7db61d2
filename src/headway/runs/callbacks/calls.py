"""The calls of a run's callbacks, in the order in which they were given; an error in one says whose it is and where."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from headway.data.columns import Windows, named
from headway.engine.experiment import Experiment
from headway.engine.simulation import Progress
from headway.errors import CallbackError, UserError, in_words
from headway.records import RoundRecord
from headway.runs.callbacks.hooks import Hooked
from headway.runs.callbacks.run import Run, Standing, Status, read_only
from headway.runs.result import Result
from headway.trees import leaves_of


class Calls:
    """Calls the callbacks of one run. On leaving, those that were started get `on_end`."""

    def __init__(self, callbacks: Sequence[Hooked], tell: Callable[[str], None]) -> None:
        self._callbacks, self._tell = dict(enumerate(callbacks)), tell
        """By the place in which a callback was given: two may have one name."""
        self._standing: Standing | None = None
        self._runs: dict[int, Run] = {}
        self._open: set[int] = set()
        """The places of those that were started and whose `on_end` was not called yet."""

    @property
    def every(self) -> tuple[Hooked, ...]:
        """The callbacks that were not left out after a failure."""
        return tuple(self._callbacks.values())

    def __enter__(self) -> Calls:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or self._standing is None:
            return
        self._standing.status = "interrupted" if issubclass(kind, KeyboardInterrupt) else "failed"
        self._standing.result = None
        for place in list(self._callbacks):
            try:
                self._call(place, "on_end")
            except Exception as further:  # why the run ended is the better reason
                self._tell(str(further))

    @property
    def measure_updates(self) -> bool:
        """Whether a callback reads the clients' updates."""
        return any("updates" in one.needs for one in self._callbacks.values())

    @property
    def stopped(self) -> str | None:
        """Why a callback asked the run to end."""
        return None if self._standing is None else self._standing.stopped

    def start(
        self,
        experiment: Experiment,
        folder: Path | None,
        executor: str,
        progress: Progress,
        past: Sequence[RoundRecord],
        saved: int | None,
    ) -> None:
        """A run begins, or goes on after its past rounds."""
        if not self._callbacks:
            return
        records = [read_only(record) for record in past]
        name = _name(experiment, folder)
        self._standing = Standing(experiment, folder, name, executor, progress, records, self._tell, saved=saved)
        self._runs = {place: Run(self._standing, one.needs) for place, one in self._callbacks.items()}
        self._each("on_start")

    def round(self, record: RoundRecord, progress: Progress) -> None:
        """A round has ended."""
        if self._standing is not None:
            self._standing.progress = progress
            self._standing.records.append(read_only(record))
            self._each("on_round")

    def saved(self, round: int) -> None:
        """There is a checkpoint of this round."""
        if self._standing is not None:
            self._standing.saved = round

    def end(self, result: Result) -> None:
        """The run came to its end."""
        if self._standing is not None:
            status: Status = "finished" if result.stopped is None else "stopped"
            self._standing.status, self._standing.result = status, result
            self._standing.reasons = [] if result.stopped is None else [result.stopped]
            self._each("on_end")

    def _each(self, hook: str) -> None:
        for place in list(self._callbacks):
            self._call(place, hook)

    def _call(self, place: int, hook: str) -> None:
        """Call a hook where the callback has it. One that may fail is reported once and left out."""
        assert self._standing is not None
        before = self._versions(self._standing)
        if hook == "on_end":
            if place not in self._open:
                return
            self._open.remove(place)
        one = self._callbacks[place]
        try:
            if hook in one.hooks:
                one.hooks[hook](self._runs[place])
            if self._versions(self._standing) != before:
                raise UserError("it changed the run's data or model in place; change copies: run.model, x.clone()")
            if hook == "on_start":
                self._open.add(place)
        except Exception as fault:
            if one.may_fail:
                del self._callbacks[place]
                cause = " ".join(str(fault).split()) or type(fault).__name__
                self._tell(f"{one.name} failed and is left out, the training goes on: {cause[:300]}")
                return
            where = f"callback {one.name}, {hook}, round {self._standing.progress.round}"
            if isinstance(fault, UserError):
                raise UserError(f"{where}: {fault}") from fault
            raise CallbackError(f"{where}: {in_words(fault)}") from fault
        finally:
            self._standing.model = None

    @staticmethod
    def _versions(standing: Standing) -> list[int]:
        """How often each tensor of the run's data and of its state was changed in place."""
        federation, model = standing.experiment.federation, standing.progress.model
        pools = (federation.train, federation.test, standing.experiment.test)
        columns = [one for pool in pools for one in named(pool.x).values()]
        inputs = [one.tokens if isinstance(one, Windows) else one for one in columns]
        targets = [leaf for pool in pools for leaf in leaves_of(pool.y)]
        tensors = [*inputs, *targets, *leaves_of([model.theta, model.buffers, model.server])]
        return [leaf._version for leaf in tensors if not leaf.is_inference()]


def _name(experiment: Experiment, folder: Path | None) -> str:
    """The run's folder as seen from here, or the method with its seed and the time."""
    if folder is None:
        return f"{experiment.method.name}-seed-{experiment.scenario.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    whole = folder.absolute()
    seen = Path(os.path.relpath(whole))
    return str(whole.relative_to(whole.anchor) if ".." in seen.parts else seen)
