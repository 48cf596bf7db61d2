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
from headway.runs.trackers.tracking import trackers
from headway.scenario import Scenario
from headway.scenario import scenario as scenario_of


@dataclass(frozen=True)
class Study:
    """The runs of each method, one for each seed."""

    runs: dict[str, list[Result]]
    folder: Path | None
    note: str = ""
    """What must stand beside every number of it."""

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
    track: str | Sequence[str] = (),
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
    trackers(track, kept=out is not None)  # told before the folder is made
    folder = None
    if out is not None:
        folder = run.claim(Path(out), chosen, names)
    return _run_all(names, chosen, folder, observer, track)


def resume_study(folder: Path, observer: Observer | None = None, track: str | Sequence[str] = ()) -> Study:
    """Go on with a study: finished runs are loaded, interrupted ones resumed, missing ones started."""
    return _run_all(_names(folder), scenario_of(folder), folder, observer, track)


def _run_all(
    names: list[str],
    scenario: Scenario,
    folder: Path | None,
    observer: Observer | None,
    track: str | Sequence[str],
) -> Study:
    runs: dict[str, list[Result]] = {}
    executor = scenario.executor
    for name in names:
        runs[name] = []
        for one in run.seeded(scenario):
            place = _place(folder, name, one.seed) if folder else None
            try:
                if place and (place / "scenario.toml").is_file():
                    result = run.resume(place, observer=observer, track=track)
                else:
                    chosen = one.changed(executor=executor)
                    result = run.simulate(name, chosen, out=place, observer=observer, track=track)
            except Diverged as fault:
                raise Diverged(f"{name}, seed {one.seed}: {fault}") from fault
            runs[name].append(result)
            executor = result.executor  # one choice for all: a table must not mix roundings
    return Study(runs, folder)


def _places(folder: Path) -> list[Path]:
    """The run in a folder, those of a study in the order they were asked for, or those of a paper's column."""
    if is_study(folder):
        seeds = run.seeded(scenario_of(folder))
        every = [_place(folder, name, one.seed) for name in _names(folder) for one in seeds]
        return [place for place in every if (place / "scenario.toml").is_file()]
    if (folder / "scenario.toml").is_file():
        return [folder]
    return _column(folder) or [folder]


def _column(folder: Path) -> list[Path]:
    """The runs ROW/seed-N that `headway reproduce` left of one column; of a whole item, those of its only column."""
    if (folder / "reproduce.json").is_file():
        columns = sorted({file.parents[2] for file in folder.glob("*/*/seed-*/scenario.toml")})
        if len(columns) > 1:
            names = ", ".join(column.name for column in columns)
            raise UserError(
                f"{folder} has {len(columns)} columns, which are different problems ({names}); "
                f"report one of them: headway report {columns[0]}"
            )
        folder = columns[0] if columns else folder
    return sorted(file.parent for file in folder.glob("*/seed-*/scenario.toml"))


def _note(folder: Path) -> str:
    """What reproduce.json says of the runs in a folder of `headway reproduce`: OUT, a COLUMN or a ROW/seed-N in it."""
    for place in (folder.resolve(), *folder.resolve().parents[:3]):
        if (place / "reproduce.json").is_file():
            about = read_json(place / "reproduce.json")
            return "; ".join(str(about[key]) for key in ("item", "title", "scaled") if key in about)
    return ""


def load_study(folders: Sequence[Path], tuned: bool = False) -> Study:
    """Finished or unfinished runs from their folders; the folder of a study or of a paper's column stands for its runs.

    `tuned`: settings of the training may differ between methods; in a column of a paper they do.
    """
    notes = list(dict.fromkeys(filter(None, map(_note, folders))))
    failed: list[str] = []
    runs: dict[str, list[Result]] = {}
    first: Result | None = None
    for place in {place.resolve(): place for folder in folders for place in _places(folder)}.values():
        result = run.recorded(place)
        if not result.records:  # begun, but without a finished round
            if (told := run.failure(place)) is not None:
                failed.append(f"{result.method}, seed {result.scenario.seed}, failed: {told}")
            continue
        first = first or result
        _check_comparable(first, result, TUNED if tuned or notes else ())
        seeds = runs.setdefault(result.method, [])
        if seeds:
            _check_comparable(seeds[0], result, ())
        if result.scenario.seed in [one.scenario.seed for one in seeds]:
            raise UserError(f"{place}: {result.method} with seed {result.scenario.seed} is there already")
        seeds.append(result)
    if not runs:
        raise UserError("there is no run with a finished round to report")
    return Study(runs, None, "; ".join(notes + failed))


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


TUNED = ("rate", "rate_decay", "rate_decay_epoch", "weight_decay", "batch_size", "epochs", "steps", "clip")
"""What is tuned with a method."""


def _check_comparable(one: Result, other: Result, tuned: Sequence[str]) -> None:
    """Runs in one table differ in method, seed and what is tuned with the method; execution may differ too."""
    mine, theirs = one.scenario.as_dict(), other.scenario.as_dict()
    suggested = {name for run in (one, other) if run.method != "composed" for name in spelled(run.method).suggests}
    for name in sorted((mine.keys() | theirs.keys()) - {*_MAY_DIFFER, *tuned} - suggested):
        if mine.get(name) != theirs.get(name):
            advice = "; --tuned lets it differ between methods" if name in TUNED and one.method != other.method else ""
            raise UserError(
                f"{one.folder} and {other.folder} are not comparable: "
                f"{name} is {mine.get(name)} and {theirs.get(name)}{advice}"
            )
