"""A run as it stands: its records, its numbers and its model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from headway.engine.evaluation import ClientTable
from headway.engine.privacy import DELTA
from headway.errors import UserError
from headway.measure.headline import headline, metrics_in
from headway.measure.numbers import number_of
from headway.measure.summary import summarise
from headway.records import RoundRecord
from headway.runs.costs import CostRecord
from headway.runs.model_files import write_model
from headway.runs.splits import SplitTable
from headway.runs.summary import Summary
from headway.runs.views import Picture, views
from headway.scenario import Scenario

if TYPE_CHECKING:
    import pandas


def held(result: Result) -> Result:
    """A result without its folder, which is about to be removed: model and clients' numbers are read now."""
    model, clients = result.model, None if result.make_clients is None else result.make_clients()
    best = result.best_model if result.scenario.keep_best and result.make_best is not None else None
    return replace(
        result,
        folder=None,
        make_model=lambda: model,
        make_clients=lambda: clients,
        make_best=None if best is None else lambda: best,
    )


@dataclass(frozen=True)
class Result:
    """One run of one method with one seed, finished or not."""

    method: str
    """The method's name."""
    scenario: Scenario
    """The run's settings."""
    records: list[RoundRecord] = field(repr=False)
    """What each round recorded, as rounds.jsonl has it; `rounds` is a table of it."""
    make_model: Callable[[], nn.Module] = field(repr=False)
    executor: str
    """How clients were executed, such as `batched:compiled`."""
    folder: Path | None
    """The run's folder; None for a run that is kept in memory."""
    checked: bool = field(default=True, repr=False)
    """Whether the records could be checked; those of folders from before there were checksums cannot."""
    cost: CostRecord | None = field(default=None, repr=False)
    """What the method costs; None for a user's own method, and where an earlier version did not record it."""
    make_clients: Callable[[], ClientTable | None] | None = field(default=None, repr=False)
    stopped: str | None = None
    """Why a callback stopped the run before its rounds were done; None where none did."""
    callbacks: tuple[object, ...] = field(default=(), repr=False)
    """The callbacks that were given, as the run left them; a run that was loaded has none."""
    make_best: Callable[[], nn.Module] | None = field(default=None, repr=False)
    make_split: Callable[[], SplitTable | None] | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        """`Result(fedacg on fashion, seed 0: accuracy 85.1 % after 80 rounds)`."""
        done, of = len(self.records), self.scenario.rounds
        rounds = f"{done} rounds" if done == of else f"{done} of {of} rounds"
        numbers = self.summary
        lead = headline(metrics_in(numbers)[0], numbers["headline"].startswith("smoothed_"))
        level = number_of(numbers, lead.key)
        text = "" if level is None else f"{lead.words.removesuffix(' %')} {lead.target(level)} after "
        return f"Result({self.method} on {self.scenario.data}, seed {self.scenario.seed}: {text}{rounds})"

    def _repr_html_(self) -> str:
        return views().html(self) if self.records else escape(repr(self))

    @cached_property
    def model(self) -> nn.Module:
        """The network as the run left it, in the run's type: float64 with `--precision fp64`, else float32."""
        return self.make_model()

    @cached_property
    def best_model(self) -> nn.Module:
        """The network as it was after its best round, where the run kept it (`keep_best=True`, or `KeepBest`)."""
        if self.make_best is None:
            raise UserError("this run has no best model; a run keeps one with keep_best=True")
        return self.make_best()

    @property
    def summary(self) -> Summary:
        """The run's numbers by name; what it did not measure is None."""
        one = self.scenario
        about: Summary = {
            "name": self.method,
            "seed": one.seed,
            "executor": self.executor,
            "buffers": one.buffers,
        }
        if self.stopped is not None:
            about["stopped"] = self.stopped
        if self.records and "epsilon" in self.records[-1]:
            about["epsilon"], about["delta"] = self.records[-1]["epsilon"], one.delta or DELTA
        return {**about, **summarise(self.records, one.target, one.smoothing)}

    @cached_property
    def clients(self) -> pandas.DataFrame:
        """One row for each client with test samples: how many, and what the last round's model scores on them."""
        import pandas

        table = None if self.make_clients is None else self.make_clients()
        if table is None:
            raise UserError(
                "the clients of this run do not have their own test samples; give them some (test=[…], one set each) "
                "or hold some out (client_test=0.2)"
            )
        return pandas.DataFrame(table).set_index("client")

    @property
    def rounds(self) -> pandas.DataFrame:
        """One row for each round."""
        import pandas

        names = None if self.records else ["round"]
        found = pandas.DataFrame(self.records, columns=names).set_index("round")
        return found.drop(columns="metrics", errors="ignore")

    @cached_property
    def split(self) -> SplitTable | None:
        """How many samples of each class its clients have; None where that is not known."""
        return None if self.make_split is None else self.make_split()

    def plot(self) -> Picture:
        """The curves over rounds and over bytes sent; a notebook shows it, `save(path)` writes it."""
        return views().plot(self)

    def report(self, folder: str | Path) -> Path:
        """Write a page, tables and a picture into a folder; the path of the page."""
        return views().report(self, folder)

    def export(self, path: str | Path) -> Path:
        """Write the model's state dict as safetensors."""
        return write_model(self.model, path)

    def table(self) -> pandas.DataFrame:
        """The run's numbers, one to a line."""
        import pandas

        return pandas.DataFrame({self.method: self.summary})
