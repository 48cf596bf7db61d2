"""The runs of a plan in a folder: finished ones are skipped, others resumed; a failure does not stop the rest."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict, cast

from headway.data.sources.files import Missing, data_folder
from headway.engine.building import device_of
from headway.errors import MachineError, UserError
from headway.papers.plan import TINY, Cell, Plan, Run
from headway.records import RoundRecord
from headway.runs.environment import commit, environment
from headway.runs.files import ensure_folder, read_checked, write_checked
from headway.runs.folder import UNCHECKED, finished, summary
from headway.runs.folder import read as read_folder
from headway.runs.folder import scenario as scenario_in
from headway.runs.lanes.jobs import Jobs, continued, keep_threads
from headway.runs.observer import Observer
from headway.runs.planned import PlannedRun
from headway.runs.series import Series
from headway.runs.settings import REPRODUCIBLE
from headway.runs.trackers.tracking import trackers
from headway.scenario import Scenario


@dataclass(frozen=True)
class Outcome:
    """What became of a run."""

    folder: Path | None = None
    records: list[RoundRecord] = field(default_factory=list, repr=False)
    failure: str | None = None
    mistaken: bool = False
    """Whether it failed by a mistake in the request."""
    precision: str = ""
    draw: str = ""
    """The split and the cohorts it was made with, where they are not the item's."""
    form: str = ""
    """The method, where it is another form than the item's."""
    checked: bool = True
    """Whether the records could be checked."""

    @property
    def rounds(self) -> int:
        """How many rounds the run got."""
        return self.records[-1]["round"] if self.records else 0


Outcomes = dict[Run, Outcome]


class Maker(TypedDict, total=False):
    """What made a run; a note of an older version may lack some of it."""

    command: str
    commit: str
    environment: Mapping[str, object]
    begun: Maker
    """What had begun a run that went on with another command or commit."""


class Note(Maker, total=False):
    """A folder's reproduce.json: what it holds, what made it last, and under `made` what made each run."""

    item: str
    title: str
    source: str
    scale: str
    scaled: str
    """What scaled down means, where the runs are."""
    rows: list[str]
    columns: list[str]
    seeds: int
    chosen: list[str]
    runs: int
    made: dict[str, Maker]
    """What made each run, by the run's folder as seen from the note's."""


NOTE = "reproduce.json"
UNKNOWN = "not recorded"
"""Stands for the command of a run where it was not written down."""
_POPULATION = {"clients", "participation", "cohort_size"}
"""Settings that a run's folder has in another form than its preset; they are compared by what they mean."""


def difference(wanted: Scenario, found: Scenario, besides: Iterable[str] = ()) -> str | None:
    """The first setting in which a run differs from the one wanted; how it is executed may differ.

    A run's folder has the number of clients filled in, and a cohort written as a share of them.
    """
    for setting in dataclasses.fields(Scenario):
        name = setting.name
        mine, theirs = getattr(wanted, name), getattr(found, name)
        if name not in {*REPRODUCIBLE, *_POPULATION, *besides} and mine != theirs:
            return f"{name} is {theirs}, not {mine}"
    if wanted.clients and wanted.clients != found.clients:
        return f"clients is {found.clients}, not {wanted.clients}"
    if wanted.cohort_size is not None and wanted.cohort_size != found.cohort:
        return f"the cohort is {found.cohort}, not {wanted.cohort_size}"
    if wanted.participation is not None and wanted.participation != found.participation:
        return f"participation is {found.participation}, not {wanted.participation}"
    return None


def _slug(name: str) -> str:
    return re.sub(r"[^\w.+=%-]+", "-", name)


def place(out: Path, cell: Cell, one: Run) -> Path:
    """OUT/COLUMN/ROW/seed-N."""
    return out / _slug(cell.column.name) / _slug(cell.row.name) / f"seed-{one.scenario.seed}"


def places(plan: Plan, out: Path) -> dict[Run, Path]:
    """The folder of each run, in the order in which they are run; one that serves several cells has the first's."""
    found: dict[Run, Path] = {}
    for cell in plan.cells:
        for one in cell.runs:
            found.setdefault(one, place(out, cell, one))
    return found


def reproduce(
    plan: Plan,
    out: Path,
    observer: Observer,
    track: Sequence[str] = (),
    command: str | None = None,
    jobs: Jobs | None = None,
) -> Outcomes:
    """Make the runs of a plan that are missing. The others go on where one fails, and its failure is reported.

    `command` is what reproduce.json says to a reader who wants to make the same runs. Where a data set is missing, one
    run says so, and no other on it is begun.
    """
    trackers(track)  # a wrong name is reported once, not by every run
    begun = places(plan, out)
    _check_places(begun, out)
    _note(plan, out, command)
    series = Series(observer, track, jobs=continued(out, jobs))
    every = {one: PlannedRun(one.method, one.scenario, folder) for one, folder in begun.items()}
    keep_threads(out, series.jobs)
    series.make(list(every.values()))
    absent: dict[str, str] = {}
    outcomes: Outcomes = {}
    for number, (one, folder) in enumerate(begun.items(), 1):
        planned = every[one]
        data, was_begun = one.scenario.data, planned.is_begun
        if data in absent and not was_begun:
            outcomes[one] = Outcome(folder, failure=absent[data], mistaken=True)
            continue
        name = str(folder.relative_to(out))
        if series.jobs is None:
            observer.tell(f"run {number} of {len(begun)}: {name}{' is done' if planned.is_finished else ''}")
        outcomes[one], missing = _outcome(planned, folder, name, series)
        if missing is not None and not was_begun:
            absent[data] = missing
            observer.tell(f"no other run on {data} is begun")
    if absent and {outcome.failure for outcome in outcomes.values()} <= set(absent.values()):
        raise _without_data(len(outcomes), absent)
    return outcomes


def _outcome(planned: PlannedRun, folder: Path, name: str, series: Series) -> tuple[Outcome, str | None]:
    """(what became of the run, which data is missing)."""
    try:
        return _done(planned, folder, series), None
    except (OSError, MachineError):  # the next run would have no more luck
        raise
    except Exception as fault:
        message = " ".join(str(fault).split()) or type(fault).__name__
        series.observer.tell(f"{name} failed: {message}")
        failed = _failed(folder, message, isinstance(fault, UserError))
        return failed, message if isinstance(fault, Missing) else None


def _without_data(runs: int, absent: dict[str, str]) -> UserError:
    """One line for an item of which no run could be made: it has no table and no picture."""
    first, *others = absent
    same = f"; the same for {', '.join(others)} (--data chooses columns)" if others else ""
    return UserError(f"{runs} of {runs} runs failed, as their data is not there: {absent[first]}{same}")


def _done(planned: PlannedRun, folder: Path, series: Series) -> Outcome:
    """The run, finished: made now, or read where it was made before."""
    if planned.is_finished:
        series.inherit(planned.scenario, summary(folder).get("executor", ""))
    else:
        series.run(planned)
    found = read(folder)
    if not found.checked:
        series.observer.tell(UNCHECKED)
    return found


def read(folder: Path) -> Outcome:
    """The run in a folder, as far as it got."""
    found = read_folder(folder, whole=True)
    return Outcome(
        folder, found.rounds.records, found.failure, precision=found.scenario.precision, checked=found.rounds.checked
    )


def _failed(folder: Path, message: str, mistaken: bool) -> Outcome:
    """A run that failed, perhaps because its folder is damaged."""
    found = Outcome(folder)
    with contextlib.suppress(UserError):
        found = read(folder)
    return dataclasses.replace(found, failure=message, mistaken=mistaken)


def _check_places(begun: Mapping[Run, Path], out: Path) -> None:
    """Refuse folders of other runs, and a folder of data that is not there, before anything is run."""
    for one, folder in begun.items():
        _check_same(one, folder, out)
        if one.scenario.data_dir and not finished(folder):
            data_folder(one.scenario.data_dir)


def _check_same(one: Run, folder: Path, out: Path) -> None:
    if (folder / "scenario.toml").is_file():
        other = difference(one.scenario, scenario_in(folder))
        if other is not None:
            raise UserError(f"{folder} holds another run ({other}); give another folder with --out, such as {out}-2")


def _note(plan: Plan, out: Path, command: str | None) -> None:
    """Write reproduce.json, which says what the folder holds, unless every run is done."""
    ensure_folder(out)
    missing = [folder for folder in places(plan, out).values() if not finished(folder)]
    before = noted(out)
    if before and not missing:
        return
    made_on = environment(device_of(plan.runs[0].scenario.device))
    now: Maker = {"command": command or UNKNOWN, "commit": commit(), "environment": made_on}
    makers = {folder.relative_to(out).as_posix(): origin(folder, [out]) for folder in _begun(out) if before}
    for folder in missing:
        name = folder.relative_to(out).as_posix()
        makers[name] = _gone_on(makers.get(name, now), now)
    note = about(plan)
    seeds = max(note["seeds"], before.get("seeds", 1))
    write_checked(
        out / NOTE, {**note, "seeds": seeds, "runs": len(plan.runs), **now, "made": dict(sorted(makers.items()))}
    )


def _gone_on(begun: Maker, now: Maker) -> Maker:
    """What makes a run that goes on now: by another command or commit than it was begun with, it says both."""
    same = begun.get("command") == now["command"] and begun.get("commit") == now["commit"]
    return now if same else {**now, "begun": begun}


def _begun(out: Path) -> list[Path]:
    return [file.parent for file in sorted(out.rglob("scenario.toml"))]


def origin(folder: Path, sources: Sequence[Path]) -> Maker:
    """Command, commit, hardware and versions of a run, as the reproduce.json above it, inside a source, has them."""
    own = folder.resolve()
    roots = {source.resolve() for source in sources}
    for above in (own, *own.parents):
        if (above / NOTE).is_file():
            note = noted(above)
            return _complete(note.get("made", {}).get(own.relative_to(above).as_posix(), note))
        if above in roots:
            break
    raise UserError(f"there is no {NOTE} that says where {folder} was made; give the folder that has it")


def _complete(maker: Maker) -> Maker:
    """What made a run, with words for what was not recorded."""
    command, environment = maker.get("command") or UNKNOWN, maker.get("environment", {})
    found: Maker = {"command": command, "commit": maker.get("commit", ""), "environment": environment}
    return {**found, "begun": maker["begun"]} if "begun" in maker else found


def about(plan: Plan) -> Note:
    """What is run, and what was chosen where the paper does not say it."""
    scale: Note = {"scale": plan.scale, "scaled": TINY} if plan.scale == "tiny" else {"scale": plan.scale}
    return {
        "item": plan.preset.item,
        "title": plan.preset.title,
        "source": plan.preset.source,
        **scale,
        "rows": [row.name for row in plan.rows],
        "columns": [column.name for column in plan.columns],
        "seeds": len({one.scenario.seed for one in plan.runs}),
        "chosen": list(plan.preset.chosen),
    }


def noted(folder: Path) -> Note:
    """What reproduce.json says of the runs in a folder; empty where there is none."""
    return cast(Note, read_checked(folder / NOTE)) if (folder / NOTE).is_file() else {}
