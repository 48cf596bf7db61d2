"""The candidates of a sweep, stage by stage: each is trained as far as it is not yet in the folder of the sweep."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.data.sources.files import Missing
from headway.engine.building import build
from headway.errors import DamagedRun, Diverged, MachineError, OutOfMemory, UserError
from headway.measure.headline import SMOOTHED, Headline, headline, metrics_of
from headway.methods.spelling import method as spelled
from headway.records import MetricRecord, RoundRecord, value_of
from headway.runs import splits
from headway.runs.files import read_checked, write_checked
from headway.runs.folder import read as read_folder
from headway.runs.folder import scenario as scenario_in
from headway.runs.job import check_unchanged
from headway.runs.observer import Observer
from headway.runs.planned import PlannedRun
from headway.runs.resume import lengthen
from headway.runs.series import Series, seeded
from headway.scenario import Scenario
from headway.tuning.grid import Candidate
from headway.tuning.halving import Stage
from headway.tuning.results import Trial


@dataclass
class Runner:
    """Trains candidates in the folder of a sweep. Rounds that are in it already are read, not trained again."""

    scenario: Scenario
    out: Path
    series: Series
    observer: Observer | None
    """The observer, which hears which candidate is trained."""
    headline: Headline = SMOOTHED
    """What candidates are judged by, on samples held out: known after the first run."""

    def all_stages(self, every: Sequence[Candidate], stages: Sequence[Stage]) -> list[Trial]:
        """What became of each candidate, in the order of the grid."""
        self._check_data(every)
        trials = {one.number: Trial(one) for one in every}
        alive = list(every)
        for number, stage in enumerate(stages, 1):
            self._make(alive, stage.rounds, number, len(stages))
            for place, one in enumerate(alive, 1):
                which = f"candidate {place} of {len(alive)}, to round {stage.rounds}"
                several = f", stage {number} of {len(stages)}" if len(stages) > 1 else ""
                if self.series.jobs is None:
                    self._tell(f"{one.label}: {which}{several}")
                trials[one.number] = self._trial(trials[one.number], stage.rounds)
            if number < len(stages):
                alive = self._survivors([trials[one.number] for one in alive], stages[number].candidates)
        going_on = {one.number for one in alive}
        return [_ended(trial, trial.candidate.number in going_on) for trial in trials.values()]

    def _make(self, alive: Sequence[Candidate], rounds: int, number: int, stages: int) -> None:
        """Train all candidates of a stage at the same time, where jobs are given."""
        if self.series.jobs is None:
            return
        self._tell(f"stage {number} of {stages}: {len(alive)} candidates, to round {rounds}")
        planned = []
        for one in alive:
            with contextlib.suppress(UserError):  # settings that cannot be are told of in its turn
                for scenario in seeded(self.scenario.with_settings(one.settings)):
                    folder = self._folder(one, scenario)
                    if (folder / "diverged.json").is_file():
                        continue
                    run = PlannedRun(one.method, scenario.changed(rounds=rounds), folder, one.label)
                    if run.is_begun and scenario_in(folder).rounds < rounds:
                        lengthen(folder, rounds)
                    if not run.is_begun or scenario_in(folder).rounds == rounds:
                        planned.append(run)
        self.series.make(planned)

    def ran(self, every: Sequence[Candidate]) -> tuple[Scenario, ...]:
        """The scenarios of the runs that were begun."""
        return tuple(scenario_in(folder) for one in every for folder in self._begun(one))

    def _begun(self, one: Candidate) -> list[Path]:
        folders = [self._folder(one, seed) for seed in seeded(self.scenario)]
        return [folder for folder in folders if (folder / "scenario.toml").is_file()]

    def _folder(self, one: Candidate, scenario: Scenario) -> Path:
        return self.out / one.folder / f"seed-{scenario.seed}"

    def _tell(self, message: str) -> None:
        if self.observer is not None:
            self.observer.tell(message)

    def _survivors(self, trials: Sequence[Trial], count: int) -> list[Candidate]:
        """The best of a stage, in the order of the grid."""
        sign = -1 if self.headline.higher_is_better else 1
        fit = [trial for trial in trials if trial.failure is None]
        best = sorted(fit, key=lambda one: (sign * (one.score or 0.0), one.candidate.number))[:count]
        return sorted((trial.candidate for trial in best), key=lambda one: one.number)

    def _trial(self, trial: Trial, rounds: int) -> Trial:
        """The candidate after this many rounds, in every seed; a failure ends the candidate, not the sweep."""
        one = trial.candidate
        try:
            chosen = self.scenario.with_settings(one.settings)
            scores = tuple(self._score(one, seed, rounds) for seed in seeded(chosen))
        except (OSError, MachineError, OutOfMemory):  # the candidate is not to blame
            raise
        except DamagedRun:
            raise  # another candidate would be the best
        except Exception as fault:
            message = " ".join(str(fault).split()) or type(fault).__name__
            status = "diverged" if isinstance(fault, Diverged) else "failed"
            self._tell(f"{one.label} {status}: {message}")
            return dataclasses.replace(trial, status=status, failure=message)
        return dataclasses.replace(trial, rounds=rounds, scores=scores)

    def _score(self, one: Candidate, scenario: Scenario, rounds: int) -> float:
        """The score of one seed after this many rounds. That it diverged is written down: it would again."""
        folder = self._folder(one, scenario)
        noted = folder / "diverged.json"
        note = read_checked(noted) if noted.is_file() else {"rounds": rounds + 1}
        if type(note.get("rounds")) is not int:
            raise DamagedRun(f"{noted} is damaged: it does not have a round")
        if note["rounds"] <= rounds:
            raise Diverged(str(note.get("failure")))
        try:
            past = self._records(PlannedRun(one.method, scenario.changed(rounds=rounds), folder), folder)
            last = next(record for record in past if record["round"] == rounds)
            if "loss" not in last:
                raise Diverged(f"round {rounds}: the validation loss is not a finite number")
        except Diverged as fault:
            write_checked(noted, {"rounds": rounds, "failure": " ".join(str(fault).split())})
            raise
        self.headline = _judged_by(metrics_of(past)[0])
        if self.headline.curve not in last:
            raise Diverged(f"round {rounds}: the validation {self.headline.name} is not a finite number")
        return value_of(last, self.headline.curve)

    def _records(self, planned: PlannedRun, folder: Path) -> list[RoundRecord]:
        """The rounds of one run, trained as far as they are missing."""
        if planned.is_begun:
            had, wanted = scenario_in(folder).rounds, planned.scenario.rounds
            if had > wanted or (had == wanted and planned.is_finished):
                found = read_folder(folder, whole=True)
                if found.finished:
                    self.series.inherit(planned.scenario, found.summary.get("executor", ""))
                return found.rounds.records
            lengthen(folder, wanted)
        return self.series.run(planned).records

    def _check_data(self, every: Sequence[Candidate]) -> None:
        """Refuse to go on with data that has changed since; the first run that was begun stands for all."""
        begun = [(one, folder) for one in every for folder in self._begun(one)]
        if not begun:
            return
        one, folder = begun[0]
        anywhere = scenario_in(folder).changed(device="cpu", precision="auto")
        with contextlib.suppress(Missing):  # data that is not there cannot have changed
            experiment = build(anywhere, spelled(one.method), **self.series.own)
            check_unchanged(folder, experiment, self.series.observer)
            splits.write_or_check(folder, experiment)


def _judged_by(metric: MetricRecord) -> Headline:
    """What candidates are compared by: the smoothed metric, or the last loss.

    Smoothed, a loss that falls from far above would mostly say how fast it fell in its first rounds.
    """
    return headline(metric, smoothed=metric["higher_is_better"])


def _ended(trial: Trial, went_on: bool) -> Trial:
    """The trial with its last status."""
    if trial.failure is not None:
        return trial
    return dataclasses.replace(trial, status="finished" if went_on else "stopped")
