"""Several methods, several seeds, one scenario: a folder of runs that can be resumed as a whole."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headway.errors import CallbackError, Diverged, UserError, shown
from headway.measure.against_best import beside_best
from headway.measure.headline import Headline, common_headline
from headway.measure.numbers import MethodNumbers, RunNumbers, number_of
from headway.measure.summary import common_target, over_seeds, summarise
from headway.methods.method import Method
from headway.methods.spelling import method as spelled
from headway.runs.callbacks.hooks import copies
from headway.runs.files import as_path, read_checked, write_atomically, write_checked
from headway.runs.folder import ROUNDS, UNCHECKED, failure, finished, seal, sealed
from headway.runs.folder import scenario as scenario_in
from headway.runs.given import catalogue_method, checked_method
from headway.runs.lanes.jobs import Jobs, continued, keep_threads
from headway.runs.load import recorded
from headway.runs.observer import Observer, Unwatched, as_observer
from headway.runs.planned import PlannedRun
from headway.runs.reserve import give_back, reserve
from headway.runs.result import Result, held
from headway.runs.resume import check_lengthens, check_may_go_on, lengthen
from headway.runs.series import Series, seeded
from headway.runs.settings import TUNED
from headway.runs.side_by_side import side_by_side
from headway.runs.study_folder import check_different, check_folders, is_study, names_in, place_of_run, planned_runs
from headway.runs.trackers.tracking import trackers
from headway.runs.tuned import Tuned, is_being_tuned, note_in, request_in, tuned_in
from headway.runs.views import Picture, views
from headway.scenario import Scenario

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Study:
    """The runs of each method, one for each seed."""

    runs: dict[str, list[Result]]
    """The results of each method, in the order of seeds."""
    folder: Path | None
    """The folder of the comparison; None where the runs lie elsewhere, or in memory."""
    note: str = ""
    """What a reader must know beside every number of it."""
    failed: tuple[str, ...] = ()
    """A line for each run that failed; the note has them too."""
    tuned: tuple[Tuned, ...] = ()
    """What was chosen for each method, where all were tuned before; the note has it too."""
    by: tuple[str, ...] = ()
    """Settings in which its rows may differ."""

    def __repr__(self) -> str:
        """`Study(fedavg 82.4 %, fedacg 85.1 %: smoothed accuracy, 3 seeds)`."""
        rows, lead = self.summary(), self.headline
        levels = [(row["name"], number_of(row, lead.key)) for row in rows]
        each = ", ".join(name if level is None else f"{name} {lead.target(level)}" for name, level in levels)
        seeds = max(row["seeds"] for row in rows)
        words = lead.words.removesuffix(" %")
        return f"Study({each}: {words}, {seeds} seed{'s' if seeds > 1 else ''})"

    def _repr_html_(self) -> str:
        return views().html(self)

    @property
    def remarks(self) -> str:
        """The note without what it says of runs that failed."""
        before, _, after = self.note.partition("; ".join(self.failed)) if self.failed else (self.note, "", "")
        return "; ".join(filter(None, (before.removesuffix("; "), after.removeprefix("; "))))

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
        return common_headline(one.summary for seeds in self.runs.values() for one in seeds)

    @property
    def rounds(self) -> pandas.DataFrame:
        """One row for each method, seed and round."""
        import pandas

        every = {
            (name, one.scenario.seed): one.rounds for name, seeds in self.runs.items() for one in seeds if one.records
        }
        return pandas.concat(every, names=["method", "seed"])

    def table(self) -> pandas.DataFrame:
        """The numbers of each method, one to a line."""
        import pandas

        return pandas.DataFrame({row["name"]: pandas.Series(row, dtype=object) for row in self.summary()})

    def plot(self) -> Picture:
        """The curves over rounds and over bytes sent; a notebook shows it, `save(path)` writes it."""
        return views().plot(self)

    def report(self, folder: str | Path) -> Path:
        """Write a page, tables and a picture into a folder; the path of the page."""
        return views().report(self, folder)

    def summary(self) -> list[MethodNumbers]:
        """One entry for each method: means and deviations over its seeds, and what it is against the best."""
        target = self.target
        rows: list[MethodNumbers] = []
        each: dict[str, dict[int, RunNumbers]] = {}
        for name, seeds in self.runs.items():
            numbers = [summarise(one.records, target, one.scenario.smoothing) for one in seeds]
            ended = next(filter(None, map(_short, seeds)), "")
            folders = [str(one.folder) for one in seeds if one.folder]
            row: MethodNumbers = {**over_seeds(name, numbers), "ended": ended, "folders": folders}
            if stopped := list(filter(None, map(stopped_early, seeds))):
                row["stopped"] = stopped
            rows.append(row)
            if not ended:
                each[name] = {one.scenario.seed: found for one, found in zip(seeds, numbers, strict=True)}
        return beside_best(rows, each)


def stopped_early(result: Result) -> str:
    """The round in which a callback stopped a run, and why; '' for one that no callback stopped."""
    done = len(result.records)
    return (
        "" if result.stopped is None else f"seed {result.scenario.seed}, stopped after round {done}: {result.stopped}"
    )


def _short(result: Result) -> str:
    """How a run ended early; '' for one that came to its end, also where only its summary is lost."""
    folder, done, rounds = result.folder, len(result.records), result.scenario.rounds
    if folder is None or finished(folder):
        return ""
    if failure(folder):
        return f"failed at round {done + 1}"
    return "" if done >= rounds or result.stopped is not None else f"{done} of {rounds} rounds"


def unfinished(folder: Path) -> int:
    """How many runs of a study are not finished."""
    if is_being_tuned(folder):
        return len(names_in(folder)) * scenario_in(folder).seeds
    seeds = seeded(scenario_in(folder))
    return sum(not finished(place_of_run(folder, name, one.seed)) for name in names_in(folder) for one in seeds)


def compare(
    methods: Sequence[str | Method],
    scenario: Scenario,
    series: Series,
    out: str | Path | None = None,
) -> Study:
    """Run each method with each seed of the scenario; in `out`, where a folder is given."""
    return begin(methods, scenario, series, out).to_the_end(series)


def begin(
    methods: Sequence[str | Method],
    scenario: Scenario,
    series: Series,
    out: str | Path | None = None,
) -> Begun:
    """Check a study and reserve its folder; no run begins."""
    if isinstance(methods, str | Method):
        methods = [methods]
    if not isinstance(methods, list | tuple):
        raise UserError(f"methods is {shown(methods)}; it must be a list of names or of headway.Method")
    chosen = dataclasses.replace(scenario, method=None)
    built = [checked_method(method) for method in methods]
    check_different([method.name for method in built])
    trackers(series.track, kept=out is not None)  # a mistake is reported before the folder is made
    copies(series.callbacks)
    folder = None if out is None else _reserved(as_path("out", out), chosen, [method.name for method in built])
    return Begun(built, chosen, folder)


@dataclass(frozen=True)
class Begun:
    """A study that is checked and has its folder, before any of its runs."""

    methods: Sequence[Method]
    scenario: Scenario
    folder: Path | None

    @property
    def planned(self) -> list[PlannedRun]:
        return planned_runs(self.methods, self.scenario, self.folder)

    def to_the_end(self, series: Series) -> Study:
        """Every run; the folder is given back where none could begin."""
        try:
            return run_all(self.methods, self.scenario, self.folder, series)
        except UserError:
            if self.folder is not None:
                give_back(self.folder)
            raise


def _reserved(folder: Path, scenario: Scenario, names: Sequence[str]) -> Path:
    check_folders(names)
    return reserve(folder, scenario, names)


def begun(folder: Path) -> Begun | None:
    """The study in a folder, as far as it needs nothing from Python; None where there is none."""
    if not is_study(folder) or not (folder / "scenario.toml").is_file():
        return None
    scenario, names = _of_catalogue(folder)
    return Begun([spelled(name) for name in names], scenario, folder)


def resume_study(
    folder: Path,
    observer: Observer | None = None,
    track: str | Sequence[str] = (),
    accept_changes: bool = False,
    at_once: Jobs | None = None,
) -> Study:
    """Go on with a study: finished runs are loaded, interrupted ones resumed, missing ones started."""
    scenario, names = _of_catalogue(folder)
    lanes = continued(folder, at_once)
    series = Series(as_observer(observer), track, accept_changes=accept_changes, jobs=lanes)
    return run_all([spelled(name) for name in names], scenario, folder, series, tuned_in(folder))


def _of_catalogue(folder: Path) -> tuple[Scenario, list[str]]:
    """The scenario and the methods of a study that needs nothing from Python; another is refused."""
    scenario, names = scenario_in(folder), names_in(folder)
    own = [name for name in names if catalogue_method(name) is None]
    own += [f"its own {what}" for what in ("data", "model") if getattr(scenario, what) == "own"]
    if own:
        raise UserError(
            f"{folder} was made from Python with {', '.join(own)}; go on there with one of its runs: "
            f"headway.resume('{place_of_run(folder, names[0], scenario.seed)}', …)"
        )
    return scenario, names


def lengthen_study(folder: Path, rounds: int) -> None:
    """Give every run of a study more rounds than it has; `resume_study` then goes on with them."""
    scenario, names = _of_catalogue(folder)
    if is_being_tuned(folder):
        raise UserError(f"{folder} is still being tuned; resume it first, and then go on to more rounds")
    places = [place_of_run(folder, name, one.seed) for name in names for one in seeded(scenario)]
    begun = [place for place in places if (place / "scenario.toml").is_file()]
    if rounds < scenario.rounds:
        raise UserError(f"rounds is {rounds}; {folder} has {scenario.rounds}, so give a larger number")
    for place in begun:
        check_may_go_on(place, rounds)
    if rounds > scenario.rounds:
        check_lengthens(scenario)
    for place in begun:
        lengthen(place, rounds)
    changed = scenario.changed(rounds=rounds)
    tuning = request_in(folder)
    about = {"methods": names} | ({} if tuning is None else {"tuning": tuning})
    write_checked(folder / "study.json", about)  # without the seal: a kill leaves one of both scenarios
    write_atomically(folder / "scenario.toml", sealed(changed))
    write_checked(folder / "study.json", {**about, "scenario": seal(changed)})


def run_all(
    methods: Sequence[Method],
    scenario: Scenario,
    folder: Path | None,
    series: Series,
    tuned: Sequence[Tuned] = (),
    note: str = "",
) -> Study:
    """Every run of a study; those that diverge are reported and left out. What was `tuned` has its own settings."""
    if folder is None and series.jobs is not None:
        with tempfile.TemporaryDirectory() as kept:
            return _in_memory(run_all(methods, scenario, Path(kept), series, tuned, note))
    planned = planned_runs(methods, scenario, folder, tuned)
    if folder is not None:
        keep_threads(folder, series.jobs)
    series.make(planned)
    runs: dict[str, list[Result]] = {}
    failed: dict[str, Diverged] = {}
    for one in planned:
        try:
            result = series.run(one)
        except Diverged as fault:
            failed[one.name] = fault
            continue
        except CallbackError as fault:
            raise CallbackError(f"{one.name}: {fault}") from fault
        runs.setdefault(result.method, []).append(result)
    if not runs:
        which, cause = next(iter(failed.items()))
        raise Diverged(f"{which}: {cause}") from cause
    reported = tuple(_failure(which, str(cause)) for which, cause in failed.items())
    for each in reported:
        series.observer.tell(each)
    told = note or (note_in(folder) if folder is not None and tuned else "")
    return Study(runs, folder, "; ".join([*filter(None, [told]), *reported, *_stopped(runs)]), reported, tuple(tuned))


def _in_memory(study: Study) -> Study:
    """A study whose folder is about to be removed, with all that its results still need of it."""
    runs = {name: [held(one) for one in seeds] for name, seeds in study.runs.items()}
    return dataclasses.replace(study, runs=runs, folder=None)


def _stopped(runs: Mapping[str, Sequence[Result]]) -> list[str]:
    """A line for each run that a callback stopped."""
    each = [(name, line) for name, seeds in runs.items() for one in seeds if (line := stopped_early(one))]
    return [f"{name}, {line}" for name, line in each]


def _failure(which: str, reason: str) -> str:
    """The line of a run that failed."""
    return f"{which}, failed: {reason}"


def _places(folder: Path) -> list[Path]:
    """The run in a folder, those of a study in the order they were asked for, or those of a paper's column."""
    if is_study(folder):
        seeds = seeded(scenario_in(folder))
        every = [place_of_run(folder, name, one.seed) for name in names_in(folder) for one in seeds]
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
    """What a comparison's folder says of its tuning, and reproduce.json of OUT, a COLUMN or a ROW/seed-N in it."""
    if is_study(folder):
        return note_in(folder)
    for place in (folder.resolve(), *folder.resolve().parents[:3]):
        if (place / "reproduce.json").is_file():
            about = read_checked(place / "reproduce.json")
            return "; ".join(str(about[key]) for key in ("item", "title", "scaled") if key in about)
    return ""


def load_study(
    folders: Sequence[Path],
    tuned: bool = False,
    observer: Observer | None = None,
    verified: bool = False,
    by: Sequence[str] = (),
) -> Study:
    """Finished or unfinished runs from their folders; the folder of a study or of a paper's column stands for its runs.

    `tuned`: settings of the training may differ between methods; in a column of a paper they do. `observer` hears
    where the numbers of a run could not be checked. `verified`: checkpoints and splits are checked too. `by`: settings
    in which the runs may differ; each combination is a row of its own. Runs of different length are shown up to the
    end of the shortest.
    """
    folders = [as_path("run", folder) for folder in folders]
    notes = list(dict.fromkeys(filter(None, map(_note, folders))))
    places = {place.resolve(): place for folder in folders for place in _places(folder)}
    results = [recorded(place, verified=verified) for place in places.values()]
    study = study_of(results, tuned or bool(notes), notes, by)
    chosen = [one for folder in folders if is_study(folder) for one in tuned_in(folder)]
    study = dataclasses.replace(study, tuned=tuple(chosen))
    if not all(result.checked for result in results):
        (observer or Unwatched()).tell(UNCHECKED)
    return study


def study_of(
    results: Sequence[Result], tuned: bool = False, notes: Sequence[str] = (), by: Sequence[str] = ()
) -> Study:
    """Runs that were made one by one, side by side; `tuned` and `by` as of `load_study`.

    `notes` stand beside every number.
    """
    failed = [
        _failure(f"{result.method}, seed {result.scenario.seed}", reason)
        for result in results
        if result.folder is not None and (reason := failure(result.folder)) is not None
    ]
    runs, shortened = side_by_side(results, TUNED if tuned else frozenset(), by)
    said = "; ".join([*notes, *failed, *shortened, *_stopped(runs)])
    return Study(runs, None, said, tuple(failed), by=tuple(by))
