"""A sweep: every candidate of a grid is trained, and the best is chosen by samples held out of training.

The test set has no part in it: the runs of a sweep never see it, and no number of it is written or shown.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import shlex
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Any

from torch import nn

from headway.data.sources.files import Missing
from headway.engine.building import build, device_of
from headway.engine.selection import runs_on
from headway.errors import DamagedRun, Diverged, MachineError, OutOfMemory, UserError, shown
from headway.methods.spelling import method as spelled
from headway.runs import run, splits
from headway.runs.environment import commit, environment
from headway.runs.files import as_path, made, read_checked, slug, write_checked
from headway.runs.folder import read as read_folder
from headway.runs.folder import scenario as scenario_in
from headway.runs.run import Observer
from headway.scenario import FREE, Scenario
from headway.scenario import scenario as scenario_of
from headway.tuning.grid import Asked, Candidate, Grid, candidates, grid, text
from headway.tuning.halving import Stage, stages

VALIDATION = 0.1
"""The share of each client's samples that is held out where none is given."""


@dataclass(frozen=True)
class Trial:
    """What became of a candidate. Its score is the mean over seeds at the last stage it finished."""

    candidate: Candidate
    rounds: int = 0
    scores: tuple[float, ...] = ()
    """Of each seed: the smoothed validation accuracy, or the validation loss where targets are numbers."""
    status: str = "waiting"
    """`finished`; `stopped` (others went on); `diverged` or `failed`, with the failure."""
    failure: str | None = None

    @property
    def score(self) -> float | None:
        return statistics.fmean(self.scores) if self.scores else None

    @property
    def spread(self) -> float | None:
        return statistics.stdev(self.scores) if len(self.scores) > 1 else None

    def as_dict(self, out: Path | None) -> dict[str, Any]:
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
    measure: str
    """`accuracy`, or `loss` where targets are numbers."""
    folder: Path | None
    source: str
    """The scenario's name or file, as a flag takes it; nothing where it has none."""
    settings: dict[str, Any] = field(repr=False)
    """What was set besides."""
    ran: tuple[Scenario, ...] = field(default=(), repr=False)
    """What the runs were really of: clients counted, with what the method suggests and with the user's own data."""

    @property
    def ranking(self) -> list[Trial]:
        """Best first: by rounds, for who got more was better before, then by score; then the diverged and failed."""
        sign = 1 if self.measure == "loss" else -1
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
        return _command(["run", self.best.candidate.method], self.source, {**settings, **chosen})

    def as_dict(self) -> dict[str, Any]:
        best = self.best
        return {
            "method": self.method,
            "grid": {name: list(values) for name, values in self.grid.items()},
            "measure": f"validation {self.measure}",
            "validation": self.scenario.validation,
            "stages": [dataclasses.asdict(stage) for stage in self.stages],
            "candidates": [trial.as_dict(self.folder) for trial in self.trials],
            "best": None if best is None else {**best.as_dict(self.folder), "command": self.command},
        }


_RIVALS = {"cohort_size": "participation", "participation": "cohort_size"}
"""Settings of which a command may give one."""


def _command(words: Sequence[str], source: str, settings: dict[str, Any]) -> str:
    """A line for the shell."""
    line = ["headway", *words, *(["--scenario", source] if source else [])]
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            line.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            line += [f"--{flag}", str(value)]
    return shlex.join(line)


def sweep(
    method: str,
    grid: Asked,
    scenario: str | Path | Scenario = "",
    *,
    budget: int | None = None,
    model: str | nn.Module | None = None,
    clients: int | Sequence[Any] | None = None,
    test: Any = None,
    out: str | Path | None = None,
    observer: Observer | None = None,
    **settings: Any,
) -> Sweep:
    """Train every candidate of a grid and choose the best by held-out samples of the clients.

    >>> sweep("fedacg", {"lam": [0.8, 0.85, 0.9], "rate_decay": [0.995, 0.998]}, rounds=30).best
    >>> sweep("fedacg", "papers", "cifar10/dir0.3/100x5%", budget=5000, out="runs/tuned")

    `budget` is the number of rounds of all candidates together (successive halving); else each gets the scenario's.
    `out` keeps the runs: the same call goes on where it stopped.
    """
    if not isinstance(method, str):
        raise UserError("a sweep takes a method by its name, such as 'fedacg': its arguments are what is tried")
    if observer is not None:
        run.as_observer(observer)
    settings, own = run.sorted_out(settings, model, clients, test)
    plan = _Plan.made(method, grid, scenario, _whole(budget), settings, sorted(own))
    if out is None:
        with tempfile.TemporaryDirectory() as folder:
            return dataclasses.replace(plan.run(Path(folder), own, observer), folder=None)
    return plan.run(as_path("out", out), own, observer)


def _whole(budget: object) -> int | None:
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, Integral)):
        raise UserError(f"budget is {shown(budget)}; it must be a whole number of rounds")
    return None if budget is None else int(budget)


def default_folder(method: str, grid: Asked, scenario: str, budget: int | None, settings: dict[str, Any]) -> Path:
    """A folder under runs/ that is the same for the same request, so that the same command goes on."""
    plan = _Plan.made(method, grid, scenario, budget, settings, [])
    digest = hashlib.sha256(json.dumps(plan.request, sort_keys=True).encode()).hexdigest()[:8]
    return Path("runs", "sweep", f"{slug(plan.method)[:40]}-{digest}")


@dataclass(frozen=True)
class _Plan:
    """What is asked for, checked."""

    method: str
    grid: Grid
    scenario: Scenario
    budget: int | None
    source: str
    settings: dict[str, Any]
    own: list[str]

    @classmethod
    def made(
        cls,
        method: str,
        asked: Asked,
        scenario: str | Path | Scenario,
        budget: int | None,
        settings: dict[str, Any],
        own: list[str],
    ) -> _Plan:
        chosen = scenario_of(scenario, **settings)
        if chosen.stop_at_target:
            raise UserError("a sweep gives every candidate the same rounds; leave --stop-at-target out")
        if chosen.validation is None:
            chosen = chosen.changed(validation=VALIDATION)
        values = grid(method, asked)
        both = next((name for name in values if name in settings), None)
        if both is not None:
            raise UserError(f"'{both}' is in the grid and set to {text(settings[both])}; leave it out of one of them")
        if "model" in values and "model" in own:
            raise UserError("'model' is in the grid, but a model of your own is given; leave one of them out")
        if isinstance(scenario, Scenario):
            plain = {**Scenario().as_dict(), "clients": scenario_of(partition=scenario.partition).clients}
            changed = {name: value for name, value in scenario.as_dict().items() if value != plain.get(name)}
            settings = {name: value for name, value in {**changed, **settings}.items() if name != "method"}
        source = "" if isinstance(scenario, Scenario) else str(scenario)
        return cls(method.strip(), values, chosen.changed(method=None), budget, source, settings, own)

    @property
    def request(self) -> dict[str, Any]:
        """What the numbers depend on: the same in a folder's sweep.json and here, or it is another sweep."""
        scenario = {name: value for name, value in self.scenario.as_dict().items() if name not in FREE}
        if self.scenario.on_failure == "stop":  # as in sweeps from before this setting, which go on
            del scenario["on_failure"]
        values = {name: list(values) for name, values in self.grid.items()}
        return {"method": self.method, "grid": values, "budget": self.budget, "own": self.own, "scenario": scenario}

    @property
    def command(self) -> str:
        words = ["sweep", self.method]
        for name, values in self.grid.items():
            words += ["--grid", f"{name}={','.join(map(text, values))}"]
        if self.budget is not None:
            words += ["--budget", str(self.budget)]
        return _command(words, self.source, self.settings)

    def run(self, out: Path, own: dict[str, Any], observer: Observer | None) -> Sweep:
        every = candidates(self.method, self.grid, self.scenario)
        plan = stages(len(every), self.scenario.seeds, self.scenario.rounds, self.budget)
        about = {
            "request": self.request,
            "command": self.command,
            "commit": commit(),
            "environment": environment(device_of(self.scenario.device)),
        }
        _claim(out, about)
        runner = _Runner(self.scenario, out, own, observer)
        trials = runner.all_stages(every, plan)
        found = Sweep(
            method=self.method,
            grid=self.grid,
            scenario=self.scenario,
            stages=plan,
            trials=trials,
            measure=runner.measure,
            folder=out,
            source=self.source,
            settings=dict(self.settings),
            ran=runner.ran(every),
        )
        write_checked(out / "sweep.json", {"finished": True, **found.as_dict(), **about})
        return found


def _claim(out: Path, about: dict[str, Any]) -> None:
    """Begin in an empty folder, or go on in one that holds the same sweep."""
    path = out / "sweep.json"
    if path.is_file():
        other = _difference(about["request"], read_checked(path).get("request"))
        if other is not None:
            raise UserError(f"{out} holds another sweep ({other}); give another folder with --out")
        return
    if out.exists() and (not out.is_dir() or {file.name for file in out.iterdir()} - {"sweep.json.part"}):
        raise UserError(f"{out} is already used (it holds other files); give another folder with --out")
    made(out)
    write_checked(path, {"finished": False, **about})


def _difference(wanted: dict[str, Any], found: Any) -> str | None:
    """The first thing in which two requests differ."""
    if not isinstance(found, dict) or not isinstance(found.get("scenario"), dict):
        return "its sweep.json is damaged"
    mine, theirs = ({**one, **one["scenario"]} for one in (wanted, found))
    for name in sorted((mine.keys() | theirs.keys()) - {"scenario"}):
        if mine.get(name) != theirs.get(name):
            return f"{name} is {theirs.get(name)}, not {mine.get(name)}"
    return None


@dataclass
class _Runner:
    """Trains candidates in the folder of a sweep. What is there already is read, not trained again."""

    scenario: Scenario
    out: Path
    own: dict[str, Any]
    observer: Observer | None
    executors: dict[str, str] = field(default_factory=dict)
    """The one that the first run of a model chose: scores must not differ by roundings."""
    measure: str = "accuracy"

    def all_stages(self, every: list[Candidate], plan: list[Stage]) -> list[Trial]:
        self._check_data(every)
        trials = {one.number: Trial(one) for one in every}
        alive = list(every)
        for number, stage in enumerate(plan, 1):
            for place, one in enumerate(alive, 1):
                which = f"candidate {place} of {len(alive)}, to round {stage.rounds}"
                self._tell(f"{one.label}: {which}" + (f", stage {number} of {len(plan)}" if len(plan) > 1 else ""))
                trials[one.number] = self._trial(trials[one.number], stage.rounds)
            if number < len(plan):
                alive = self._survivors([trials[one.number] for one in alive], plan[number].candidates)
        going_on = {one.number for one in alive}
        return [self._ended(trial, trial.candidate.number in going_on) for trial in trials.values()]

    def ran(self, every: list[Candidate]) -> tuple[Scenario, ...]:
        """The scenarios of the runs that were begun."""
        return tuple(scenario_in(place) for one in every for place in self._begun(one))

    def _begun(self, one: Candidate) -> list[Path]:
        places = [self._place(one, seed) for seed in run.seeded(self.scenario)]
        return [place for place in places if (place / "scenario.toml").is_file()]

    def _place(self, one: Candidate, scenario: Scenario) -> Path:
        return self.out / one.folder / f"seed-{scenario.seed}"

    def _tell(self, message: str) -> None:
        if self.observer is not None:
            self.observer.tell(message)

    def _survivors(self, trials: list[Trial], count: int) -> list[Candidate]:
        """The best of a stage, in the order of the grid."""
        sign = 1 if self.measure == "loss" else -1
        fit = [trial for trial in trials if trial.failure is None]
        best = sorted(fit, key=lambda one: (sign * (one.score or 0.0), one.candidate.number))[:count]
        return sorted((trial.candidate for trial in best), key=lambda one: one.number)

    def _ended(self, trial: Trial, went_on: bool) -> Trial:
        if trial.failure is not None:
            return trial
        return dataclasses.replace(trial, status="finished" if went_on else "stopped")

    def _trial(self, trial: Trial, rounds: int) -> Trial:
        """The candidate with so many rounds, in every seed; a failure ends the candidate, not the sweep."""
        one = trial.candidate
        try:
            chosen = self.scenario.changed(**one.settings)
            scores = tuple(self._score(one, seed, rounds) for seed in run.seeded(chosen))
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
        place = self._place(one, scenario)
        noted = place / "diverged.json"
        note = read_checked(noted) if noted.is_file() else {"rounds": rounds + 1}
        if type(note.get("rounds")) is not int:
            raise DamagedRun(f"{noted} is damaged: it does not tell a round")
        if note["rounds"] <= rounds:  # it would again; the stage before was good
            raise Diverged(str(note.get("failure")))
        try:
            past = self._records(one, scenario, rounds, place)
            last = next(record for record in past if record["round"] == rounds)
            if "loss" not in last:
                raise Diverged(f"round {rounds}: the validation loss is no finite number")
        except Diverged as fault:
            write_checked(noted, {"rounds": rounds, "failure": " ".join(str(fault).split())})
            raise
        self.measure = "accuracy" if "accuracy_smoothed" in last else "loss"
        return float(last["accuracy_smoothed" if self.measure == "accuracy" else "loss"])

    def _records(self, one: Candidate, scenario: Scenario, rounds: int, place: Path) -> list[dict[str, Any]]:
        """The rounds of one run, trained as far as they are missing."""
        model = scenario.model
        if (place / "scenario.toml").is_file():
            had = scenario_in(place).rounds
            if had > rounds or (had == rounds and run.finished(place)):
                found = read_folder(place, whole=True)
                if found.finished:
                    self._chose(model, str(found.summary.get("executor", "")))
                return found.rounds.records
            run.lengthen(place, rounds)
            result = run.resume(place, observer=self.observer, **self.own)
        else:
            chosen = scenario.changed(rounds=rounds, executor=self.executors.get(model, scenario.executor))
            result = run.simulate(one.method, chosen, out=place, observer=self.observer, **self.own)
        self._chose(model, result.executor)
        return result.records

    def _check_data(self, every: list[Candidate]) -> None:
        """Refuse to go on with data that has changed since; the first run that was begun stands for all."""
        begun = [(one, place) for one in every for place in self._begun(one)]
        if not begun:
            return
        one, place = begun[0]
        anywhere = scenario_in(place).changed(device="cpu", precision="auto")
        with contextlib.suppress(Missing):  # what is not there any more cannot be another
            experiment = build(anywhere, spelled(one.method), **self.own)
            run.unchanged(place, experiment, self.observer or run.Unwatched())
            splits.keep(place, experiment)

    def _chose(self, model: str, executor: str) -> None:
        """Remember an executor, unless it is of a run that another device began."""
        if runs_on(executor, device_of(self.scenario.device)):
            self.executors.setdefault(model, executor)
