"""`Run`: a run as its callbacks see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn, cast

from torch import nn

from headway.data.own_samples import Padding
from headway.engine.evaluation import evaluate_on
from headway.engine.experiment import Experiment
from headway.engine.server import handed_over
from headway.engine.simulation import Progress
from headway.engine.updates import ClientUpdates
from headway.errors import UserError, readable, shown
from headway.records import RoundRecord
from headway.runs.given import Metrics, listed
from headway.scenario import Scenario

if TYPE_CHECKING:
    from headway.runs.result import Result

Status = Literal["running", "finished", "stopped", "interrupted", "failed"]


@dataclass
class Standing:
    """Where a run stands. The driver writes it; all callbacks of the run read it."""

    experiment: Experiment
    folder: Path | None
    name: str
    executor: str
    progress: Progress
    records: list[RoundRecord]
    tell: Callable[[str], None]
    model: nn.Module | None = None
    """As it was made in the call of a hook that is under way."""
    saved: int | None = None
    result: Result | None = None
    status: Status = "running"
    reasons: list[str] = field(default_factory=list)

    @property
    def stopped(self) -> str | None:
        """Why callbacks asked the run to end; None where none did."""
        return "; ".join(dict.fromkeys(self.reasons)) or None


class Run:
    """A run as a callback sees it: what it is about, where it stands, and how to end it."""

    def __init__(self, standing: Standing, needs: Sequence[str]) -> None:
        self._standing, self._needs = standing, needs

    # ── what it is about ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def experiment(self) -> Experiment:
        """Scenario and method bound to data, network and device."""
        return self._standing.experiment

    @property
    def scenario(self) -> Scenario:
        """Every setting of the run."""
        return self.experiment.scenario

    @property
    def method(self) -> str:
        """The name of the method."""
        return self.experiment.method.name

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the task's metrics, the headline first."""
        return tuple(metric.name for metric in self.experiment.task.metrics)

    @property
    def name(self) -> str:
        """The run's folder as seen from here, or the method with its seed and the time."""
        return self._standing.name

    @property
    def folder(self) -> Path | None:
        """Where the run is kept; None where nothing is. A callback may write its own files there."""
        return self._standing.folder

    @property
    def executor(self) -> str:
        """How the clients are executed."""
        return self._standing.executor

    # ── where it stands ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def round(self) -> int:
        """How many rounds are done: in `on_round` the number of the round that has ended."""
        return self._standing.progress.round

    @property
    def record(self) -> RoundRecord:
        """What the last round recorded, as a line of rounds.jsonl has it. It cannot be changed."""
        if not self._standing.records:
            raise UserError("no round has ended yet, so there is no record; on_start can read `records`")
        return self._standing.records[-1]

    @property
    def records(self) -> tuple[RoundRecord, ...]:
        """The records of all rounds that are done, those before a resume among them."""
        return tuple(self._standing.records)

    @property
    def model(self) -> nn.Module:
        """The server's model as a separate module on the CPU, in the run's precision.

        It is made when it is first asked for in a call of a hook. Changing it changes nothing in the run.
        """
        if self._standing.model is None:
            model = handed_over(self.experiment.method, self._standing.progress.model)
            self._standing.model = self.experiment.network.module(model.theta, model.buffers)
        return self._standing.model

    @property
    def updates(self) -> ClientUpdates | None:
        """Norms and cosines of the updates that arrived in the last round; None where none did, and before a round.

        It costs memory for all of them: a callback that reads it says so, by an attribute `needs = ("updates",)`.
        """
        if "updates" not in self._needs:
            raise UserError('the clients\' updates are measured only where a callback says: needs = ("updates",)')
        return self._standing.progress.updates

    @property
    def saved(self) -> int | None:
        """The round of the last checkpoint, from which a resume would go on; None where there is none."""
        return self._standing.saved

    @property
    def status(self) -> Status:
        """`running`; in `on_end` how the run ended.

        `finished`: all rounds, or the target; `stopped`: by a callback; `interrupted`: by a signal, so that a resume
        goes on; `failed`: by an error.
        """
        return self._standing.status

    @property
    def stopped(self) -> str | None:
        """The reason that was given to `stop`; None where nobody stopped the run."""
        return self._standing.stopped

    @property
    def result(self) -> Result | None:
        """The run's result, in `on_end`; None before, and where the run was interrupted or failed."""
        return self._standing.result

    # ── what a callback may do ───────────────────────────────────────────────────────────────────────────────────────

    def evaluate(self, data: object, metrics: Metrics = (), *, padding: Padding = None) -> dict[str, float]:
        """The loss and the metrics of the server's model on data of one's own, by name.

        `data` is given in any form that `test=` takes, or as `experiment.federation.test` and rows of it. `metrics` are
        given as for `simulate`; the task's own follow.
        """
        model = self._standing.progress.model
        return evaluate_on(self.experiment, model, data, listed(metrics), padding=padding, round=self.round)

    def stop(self, reason: str) -> None:
        """End the run after this call, with its result, as if all its rounds were done.

        The reason is kept with the run; `resume` treats it as finished.
        """
        if not isinstance(reason, str) or not reason.strip():
            raise UserError(f"the reason to stop is {shown(reason)}; say it in a few words")
        if self.status != "running":
            raise UserError("the run has ended, so that it cannot be stopped; stop it in on_start or on_round")
        self._standing.reasons.append(readable(" ".join(reason.split())))

    def tell(self, message: str) -> None:
        """A line for the user: beside the progress bar on the command line, a Python warning elsewhere."""
        self._standing.tell(message)


def read_only(record: RoundRecord) -> RoundRecord:
    """A record that cannot be changed; JSON and pandas take it as any other."""
    return cast(RoundRecord, _frozen(record))


def _frozen(value: object) -> object:
    if isinstance(value, dict):
        return _Record({name: _frozen(part) for name, part in value.items()})
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


class _Record(dict[str, object]):
    def __reduce__(self) -> tuple[type[dict[str, object]], tuple[dict[str, object]]]:
        """Copies are plain dictionaries."""
        return dict, (dict(self),)

    def _refuse(self, *given: object, **named: object) -> NoReturn:
        raise UserError("the record of a round cannot be changed; keep what a callback measures in its own file")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse
