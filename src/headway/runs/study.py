"""Several methods, several seeds, one scenario: a folder of runs that can be resumed as a whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from headway.engine.building import device_of
from headway.engine.selection import inherited_executor
from headway.errors import Diverged, UserError, shown
from headway.measure.against_best import beside_best
from headway.measure.headline import Headline, common_headline
from headway.measure.summary import common_target, over_seeds, summarise
from headway.methods.method import Method
from headway.methods.spelling import method as spelled
from headway.runs import run
from headway.runs.files import as_path, read_checked, slug
from headway.runs.folder import ROUNDS, UNCHECKED
from headway.runs.folder import scenario as scenario_in
from headway.runs.run import Observer, Result
from headway.runs.trackers.tracking import trackers
from headway.scenario import FREE, Scenario
from headway.scenario import scenario as scenario_of


@dataclass(frozen=True)
class Study:
    """The runs of each method, one for each seed."""

    runs: dict[str, list[Result]]
    folder: Path | None
    note: str = ""
    """What must stand beside every number of it."""
    failed: tuple[str, ...] = ()
    """What is told of runs that failed; the note has it too."""

    @property
    def target(self) -> float | None:
        """The scenario's target, or the papers' choice: what the median method reaches in the end."""
        given = next(iter(self.runs.values()))[0].scenario.target
        if given is not None:
            return given
        whole = [seeds for seeds in self.runs.values() if not any(map(_short, seeds))]
        return common_target([[one.summary for one in seeds] for seeds in whole or self.runs.values()])

    @property
    def headline(self) -> Headline:
        """The number that its tables and pictures lead with."""
        return common_headline(one.summary["headline"] for seeds in self.runs.values() for one in seeds)

    def summary(self) -> list[dict[str, Any]]:
        """One entry for each method: means and deviations over its seeds, and what it is against the best."""
        target, rows, each = self.target, [], {}
        for name, seeds in self.runs.items():
            numbers = [summarise(one.records, target, one.scenario.smoothing) for one in seeds]
            ended = next(filter(None, map(_short, seeds)), "")
            folders = [str(one.folder) for one in seeds if one.folder]
            rows.append(over_seeds(name, numbers) | {"ended": ended, "folders": folders})
            if not ended:
                each[name] = {one.scenario.seed: found for one, found in zip(seeds, numbers, strict=True)}
        return beside_best(rows, each)


def _short(result: Result) -> str:
    """How a run ended that did not come to its end; '' for one that did."""
    folder, done = result.folder, result.records[-1]["round"]
    if folder is None or run.finished(folder):
        return ""
    return f"failed at round {done + 1}" if run.failure(folder) else f"{done} of {result.scenario.rounds} rounds"


def _place(folder: Path, name: str, seed: int) -> Path:
    """The folder of one run of a study."""
    return folder / slug(name) / f"seed-{seed}"


def _check_folders(names: Sequence[str]) -> None:
    """Refuse names that give no folder of their own: the second would be taken for the first."""
    taken: dict[str, str] = {}
    for name in names:
        own = slug(name)
        if own in ("", ".", ".."):
            raise UserError(f"'{name}' cannot be the name of a folder; give the method another: Method(…, name=…)")
        if own in taken:
            raise UserError(
                f"'{taken[own]}' and '{name}' would be kept in one folder, '{own}'; give one of them another name"
            )
        taken[own] = name


def _names(folder: Path) -> list[str]:
    names = read_checked(folder / "study.json").get("methods")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise UserError(f"{folder / 'study.json'} is damaged: it lists no methods")
    return names


def is_finished(folder: Path) -> bool:
    """Whether every run of a study is finished."""
    seeds = run.seeded(scenario_in(folder))
    return all(run.finished(_place(folder, name, one.seed)) for name in _names(folder) for one in seeds)


def is_study(folder: Path) -> bool:
    return (folder / "study.json").is_file()


def compare(
    methods: Sequence[str | Method],
    scenario: str | Path | Scenario = "",
    *,
    model: str | nn.Module | None = None,
    clients: int | Sequence[Any] | None = None,
    test: Any = None,
    out: str | Path | None = None,
    observer: Observer | None = None,
    track: str | Sequence[str] = (),
    **settings: Any,
) -> Study:
    """Run each method with each seed of the scenario; `model`, `clients` and `test` are as of `simulate`.

    A method that diverges is left out and stands in the study's note.

    >>> compare(["fedavg", "fedacg"], rounds=30, seeds=3).summary()
    >>> compare(["fedavg", Method(server=mine, name="mine")], rounds=30).summary()
    """
    if isinstance(methods, str | Method):
        methods = [methods]
    if not isinstance(methods, list | tuple):
        raise UserError(f"methods is {shown(methods)}; it must be a list of names or of headway.Method")
    observer = run.as_observer(observer)
    settings, objects = run.sorted_out(settings, model, clients, test)
    if "model" in objects:
        settings["model"] = "own"
    if "clients" in objects:
        settings |= {"data": "own", "partition": "own"}
    chosen = dataclasses.replace(scenario_of(scenario, **settings), method=None)
    asked = [run.checked(method) for method in methods]
    names = [method.name for method in asked]
    if not names:
        raise UserError("there is no method to compare")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"'{twice}' is given twice")
    trackers(track, kept=out is not None)  # told before the folder is made
    folder = None
    if out is not None:
        _check_folders(names)
        folder = run.claim(as_path("out", out), chosen, names)
    try:
        return _run_all(asked, chosen, folder, observer, track, objects)
    except UserError:
        if folder is not None:
            run.unclaim(folder)
        raise


def resume_study(
    folder: Path, observer: Observer | None = None, track: str | Sequence[str] = (), accept_changes: bool = False
) -> Study:
    """Go on with a study: finished runs are loaded, interrupted ones resumed, missing ones started."""
    scenario, names = scenario_in(folder), _names(folder)
    own = [name for name in names if run.in_catalogue(name) is None]
    own += [f"{what} of its own" for what in ("data", "model") if getattr(scenario, what) == "own"]
    if own:
        raise UserError(
            f"{folder} was made from Python with {', '.join(own)}; go on there with one of its runs: "
            f"headway.resume('{_place(folder, names[0], scenario.seed)}', …)"
        )
    return _run_all([spelled(name) for name in names], scenario, folder, observer, track, {}, accept_changes)


def _run_all(
    methods: Sequence[Method],
    scenario: Scenario,
    folder: Path | None,
    observer: Observer | None,
    track: str | Sequence[str],
    objects: dict[str, Any],
    accept: bool = False,
) -> Study:
    runs: dict[str, list[Result]] = {}
    failed: dict[str, Diverged] = {}
    executor, device = scenario.executor, device_of(scenario.device)
    observer = observer or run.Unwatched()  # one for all runs: what it says, it says once
    for method in methods:
        for one in run.seeded(scenario):
            place = _place(folder, method.name, one.seed) if folder else None
            try:
                if place and (place / "scenario.toml").is_file():
                    result = run.resume(
                        place, method=method, observer=observer, track=track, accept_changes=accept, **objects
                    )
                else:
                    chosen = one.changed(executor=executor)
                    result = run.simulate(method, chosen, out=place, observer=observer, track=track, **objects)
            except Diverged as fault:
                failed[f"{method.name}, seed {one.seed}"] = fault
                continue
            runs.setdefault(method.name, []).append(result)
            executor = inherited_executor(
                executor, result.executor, device
            )  # one choice for all, so that they can be compared
    if not runs:
        which, cause = next(iter(failed.items()))
        raise Diverged(f"{which}: {cause}") from cause
    told = tuple(_told(which, str(cause)) for which, cause in failed.items())
    for each in told:
        observer.tell(each)
    return Study(runs, folder, "; ".join(told), told)


def _told(which: str, reason: str) -> str:
    """Of a run that failed."""
    return f"{which}, failed: {reason}"


def _places(folder: Path) -> list[Path]:
    """The run in a folder, those of a study in the order they were asked for, or those of a paper's column."""
    if is_study(folder):
        seeds = run.seeded(scenario_in(folder))
        every = [_place(folder, name, one.seed) for name in _names(folder) for one in seeds]
        return [place for place in every if any((place / name).is_file() for name in ("scenario.toml", ROUNDS))]
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
            about = read_checked(place / "reproduce.json")
            return "; ".join(str(about[key]) for key in ("item", "title", "scaled") if key in about)
    return ""


def load_study(
    folders: Sequence[Path], tuned: bool = False, observer: Observer | None = None, verified: bool = False
) -> Study:
    """Finished or unfinished runs from their folders; the folder of a study or of a paper's column stands for its runs.

    `tuned`: settings of the training may differ between methods; in a column of a paper they do. `observer` is told
    where the numbers of a run could not be checked. `verified`: checkpoints and splits are checked too.
    """
    tell = (observer or run.Unwatched()).tell
    checked = True
    notes = list(dict.fromkeys(filter(None, map(_note, folders))))
    failed: list[str] = []
    runs: dict[str, list[Result]] = {}
    first: Result | None = None
    for place in {place.resolve(): place for folder in folders for place in _places(folder)}.values():
        result = run.recorded(place, verified=verified)
        if (reason := run.failure(place)) is not None:
            failed.append(_told(f"{result.method}, seed {result.scenario.seed}", reason))
        checked = checked and result.checked
        if not result.records:  # begun, but without a finished round
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
    if not checked:
        tell(UNCHECKED)
    return Study(runs, None, "; ".join(notes + failed), tuple(failed))


_MAY_DIFFER = FREE | {"method", "seed", "seeds", "target"}
"""How runs are executed, and what a table is over; its target is that of its first run."""


TUNED = ("rate", "rate_decay", "rate_decay_epoch", "weight_decay", "batch_size", "epochs", "steps", "clip")
"""What is tuned with a method."""


def _check_comparable(one: Result, other: Result, tuned: Sequence[str]) -> None:
    """Runs in one table differ in method, seed and what is tuned with the method; execution may differ too."""
    mine, theirs = one.scenario.as_dict(), other.scenario.as_dict()
    known = [method for method in (run.in_catalogue(one.method), run.in_catalogue(other.method)) if method is not None]
    suggested = {name for method in known for name in method.suggests}
    for name in sorted((mine.keys() | theirs.keys()) - _MAY_DIFFER.union(tuned, suggested)):
        if mine.get(name) != theirs.get(name):
            advice = "; --tuned lets it differ between methods" if name in TUNED and one.method != other.method else ""
            raise UserError(
                f"{one.folder} and {other.folder} are not comparable: "
                f"{name} is {mine.get(name)} and {theirs.get(name)}{advice}"
            )
