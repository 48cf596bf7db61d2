"""Several methods, several seeds, one scenario: a folder of runs that can be resumed as a whole."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.errors import Diverged, UserError
from headway.measure.summary import common_target, over_seeds, summarise
from headway.methods.spelling import method as spelled
from headway.runs import run
from headway.runs.files import read_json
from headway.runs.run import Observer, Result
from headway.scenario import Scenario
from headway.scenario import scenario as scenario_of


@dataclass(frozen=True)
class Study:
    """The runs of each method, one for each seed."""

    runs: dict[str, list[Result]]
    folder: Path | None

    @property
    def target(self) -> float | None:
        """The scenario's target, or the papers' choice: what the median method reaches in the end."""
        given = next(iter(self.runs.values()))[0].scenario.target
        return (
            given
            if given is not None
            else common_target([[one.summary for one in seeds] for seeds in self.runs.values()])
        )

    def summary(self) -> list[dict[str, Any]]:
        """One entry for each method: means and deviations over its seeds."""
        target = self.target
        return [
            over_seeds(name, [summarise(one.records, target) for one in seeds])
            | {"folders": [str(one.folder) for one in seeds if one.folder]}
            for name, seeds in self.runs.items()
        ]


def _place(folder: Path, name: str, seed: int) -> Path:
    """The folder of one run of a study."""
    return folder / re.sub(r"[^A-Za-z0-9.+=_-]+", "-", name) / f"seed-{seed}"


def _names(folder: Path) -> list[str]:
    names = read_json(folder / "study.json").get("methods")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise UserError(f"{folder / 'study.json'} is damaged: it lists no methods")
    return names


def is_finished(folder: Path) -> bool:
    """Whether every run of a study is finished."""
    seeds = run.seeded(scenario_of(folder))
    return all(run.finished(_place(folder, name, one.seed)) for name in _names(folder) for one in seeds)


def is_study(folder: Path) -> bool:
    return (folder / "study.json").is_file()


def compare(
    methods: Sequence[str],
    scenario: str | Path | Scenario = "",
    *,
    out: str | Path | None = None,
    observer: Observer | None = None,
    **settings: Any,
) -> Study:
    """Run each method with each seed of the scenario.

    >>> compare(["fedavg", "fedacg"], rounds=30, seeds=3).summary()
    """
    chosen = dataclasses.replace(scenario_of(scenario, **settings), method=None)
    names = [spelled(name).name for name in methods]
    if not names:
        raise UserError("there is no method to compare")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"'{twice}' is given twice")
    folder = None
    if out is not None:
        folder = run.claim(Path(out), chosen, names)
    return _run_all(names, chosen, folder, observer)


def resume_study(folder: Path, observer: Observer | None = None) -> Study:
    """Go on with a study: finished runs are loaded, interrupted ones resumed, missing ones started."""
    return _run_all(_names(folder), scenario_of(folder), folder, observer)


def _run_all(names: list[str], scenario: Scenario, folder: Path | None, observer: Observer | None) -> Study:
    runs: dict[str, list[Result]] = {}
    executor = scenario.executor
    for name in names:
        runs[name] = []
        for one in run.seeded(scenario):
            place = _place(folder, name, one.seed) if folder else None
            try:
                if place and (place / "scenario.toml").is_file():
                    result = run.resume(place, observer=observer)
                else:
                    result = run.simulate(name, one.changed(executor=executor), out=place, observer=observer)
            except Diverged as fault:
                raise Diverged(f"{name}, seed {one.seed}: {fault}") from fault
            runs[name].append(result)
            executor = result.executor  # one choice for all: a table must not mix roundings
    return Study(runs, folder)


def _places(folder: Path) -> list[Path]:
    """The runs of a study that have begun, in the order they were asked for; any other folder is a run itself."""
    if not is_study(folder):
        return [folder]
    seeds = run.seeded(scenario_of(folder))
    every = [_place(folder, name, one.seed) for name in _names(folder) for one in seeds]
    return [place for place in every if (place / "scenario.toml").is_file()]


def load_study(folders: Sequence[Path]) -> Study:
    """Finished or unfinished runs from their folders; a study's folder stands for all its runs."""
    runs: dict[str, list[Result]] = {}
    first: Result | None = None
    for place in {place.resolve(): place for folder in folders for place in _places(folder)}.values():
        result = run.load_run(place)
        if not result.records:
            continue  # begun, but without a finished round
        first = first or result
        _check_comparable(first, result)
        if result.scenario.seed in [one.scenario.seed for one in runs.get(result.method, [])]:
            raise UserError(f"{place}: {result.method} with seed {result.scenario.seed} is there already")
        runs.setdefault(result.method, []).append(result)
    if not runs:
        raise UserError("there is no run with a finished round to report")
    return Study(runs, None)


_MAY_DIFFER = (
    "method",
    "seed",
    "seeds",
    "target",
    "device",
    "executor",
    "deterministic",
    "checkpoint_every",
    "data_dir",
)


def _check_comparable(one: Result, other: Result) -> None:
    """Runs in one table differ in method and seed only; execution may differ too."""
    mine, theirs = one.scenario.as_dict(), other.scenario.as_dict()
    suggested = spelled(one.method).suggests.keys() | spelled(other.method).suggests.keys()
    for name in sorted((mine.keys() | theirs.keys()) - set(_MAY_DIFFER) - suggested):
        if mine.get(name) != theirs.get(name):
            raise UserError(
                f"{one.folder} and {other.folder} are not comparable: {name} is {mine.get(name)} and {theirs.get(name)}"
            )
