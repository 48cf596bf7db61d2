"""What a sweep found: what became of each candidate, which is the best, and the command that trains it on all data."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from headway.measure.headline import Headline
from headway.scenario import Scenario
from headway.tuning.grid import Candidate, Grid, Value
from headway.tuning.halving import Stage


class TrialNumbers(TypedDict):
    """A candidate in sweep.json."""

    values: dict[str, Value]
    method: str
    settings: dict[str, Value]
    status: str
    rounds: int
    score: float | None
    score_std: float | None
    scores: list[float]
    failure: str | None
    folder: str | None
    """In the folder of the sweep; None where nothing is kept."""


class BestNumbers(TrialNumbers):
    """The best candidate in sweep.json, with the command that trains it on all samples."""

    command: str


class StageNumbers(TypedDict):
    """A stage in sweep.json."""

    candidates: int
    rounds: int


class SweepNumbers(TypedDict):
    """What sweep.json says of what was found."""

    method: str
    grid: dict[str, list[Value]]
    measure: str
    validation: float | None
    stages: list[StageNumbers]
    candidates: list[TrialNumbers]
    best: BestNumbers | None


@dataclass(frozen=True)
class Trial:
    """What became of a candidate. Its score is the mean over seeds at the last stage it finished."""

    candidate: Candidate
    rounds: int = 0
    scores: tuple[float, ...] = ()
    """The score of each seed: the headline metric on the samples held out, smoothed where higher is better."""
    status: str = "waiting"
    """`finished`; `stopped` (others went on); `diverged` or `failed`, with the failure."""
    failure: str | None = None

    @property
    def score(self) -> float | None:
        return statistics.fmean(self.scores) if self.scores else None

    @property
    def spread(self) -> float | None:
        return statistics.stdev(self.scores) if len(self.scores) > 1 else None

    def as_dict(self, out: Path | None) -> TrialNumbers:
        """The trial as sweep.json has it; `out` is the folder of the sweep."""
        one = self.candidate
        return {
            "values": dict(one.values),
            "method": one.method,
            "settings": dict(one.settings),
            "status": self.status,
            "rounds": self.rounds,
            "score": self.score,
            "score_std": self.spread,
            "scores": list(self.scores),
            "failure": self.failure,
            "folder": None if out is None else one.folder,
        }


@dataclass(frozen=True)
class Sweep:
    """A grid, what became of its candidates, and which is the best."""

    method: str
    grid: Grid
    scenario: Scenario
    stages: list[Stage]
    trials: list[Trial] = field(repr=False)
    """In the order of the grid."""
    headline: Headline
    """What candidates are judged by."""
    folder: Path | None
    source: str
    """The scenario's name or file, as a flag takes it; empty where it has none."""
    settings: Mapping[str, object] = field(repr=False)
    """The settings that were given beside the scenario."""
    ran: tuple[Scenario, ...] = field(default=(), repr=False)
    """The scenarios of the runs: with clients counted, what the method suggests and the user's own data."""

    @property
    def measure(self) -> str:
        """The name of the metric that candidates are judged by."""
        return self.headline.metric

    @property
    def ranking(self) -> list[Trial]:
        """Best first: by rounds, as later stages have the better candidates, then by score; the failed ones last."""
        sign = -1 if self.headline.higher_is_better else 1
        return sorted(
            self.trials,
            key=lambda one: (
                one.failure is not None,
                -one.rounds,
                sign * one.score if one.score is not None else 0.0,
                one.candidate.number,
            ),
        )

    @property
    def best(self) -> Trial | None:
        """The first of the ranking; None where every candidate failed."""
        first = self.ranking[0]
        return first if first.failure is None else None

    @property
    def command(self) -> str:
        """The best candidate's own run, on all samples and with the test set."""
        if self.best is None:
            return ""
        chosen = self.best.candidate.settings
        dropped = {"validation", *(_RIVALS[name] for name in chosen if name in _RIVALS)}
        settings = {name: value for name, value in self.settings.items() if name not in dropped}
        return command_line(["run", self.best.candidate.method], self.source, {**settings, **chosen})

    def as_dict(self) -> SweepNumbers:
        """The sweep as sweep.json has it."""
        best = self.best
        return {
            "method": self.method,
            "grid": {name: list(values) for name, values in self.grid.items()},
            "measure": f"validation {self.measure}",
            "validation": self.scenario.validation,
            "stages": [{"candidates": stage.candidates, "rounds": stage.rounds} for stage in self.stages],
            "candidates": [trial.as_dict(self.folder) for trial in self.trials],
            "best": None if best is None else {**best.as_dict(self.folder), "command": self.command},
        }


_RIVALS = {"cohort_size": "participation", "participation": "cohort_size"}
"""Settings of which a command may give one."""


def command_line(words: Sequence[str], source: str, settings: Mapping[str, object]) -> str:
    """A line for the shell: `headway`, the words, the scenario's source and a flag for each setting."""
    line = ["headway", *words, *(["--scenario", source] if source else [])]
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            line.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            line += [f"--{flag}", str(value)]
    return shlex.join(line)
