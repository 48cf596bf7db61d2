"""The runs of a plan in a folder: what is done is skipped, what was begun goes on, a failure does not stop the rest."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.data.sources.files import Missing, data_folder
from headway.engine.building import device_of
from headway.engine.selection import runs_on
from headway.errors import MachineError, UserError
from headway.papers.plan import TINY, Cell, Plan, Run
from headway.runs import run
from headway.runs.environment import commit, environment
from headway.runs.files import made, read_checked, write_checked
from headway.runs.folder import UNCHECKED, summary
from headway.runs.folder import read as read_folder
from headway.runs.folder import scenario as scenario_in
from headway.runs.run import Observer
from headway.runs.trackers.tracking import trackers
from headway.scenario import FREE, Scenario


@dataclass(frozen=True)
class Outcome:
    """What there is of a run."""

    folder: Path | None = None
    records: list[dict[str, Any]] = field(default_factory=list, repr=False)
    failure: str | None = None
    mistaken: bool = False
    """Whether it failed by what was asked of it."""
    precision: str = ""
    draw: str = ""
    """The split and the cohorts it was made with, where they are not the item's."""
    form: str = ""
    """The method, where it is another form than the item's."""
    checked: bool = True
    """Whether the records could be checked."""


Outcomes = dict[Run, Outcome]

NOTE = "reproduce.json"
UNKNOWN = "not recorded"
"""The command of a run that nobody wrote down."""
_EXECUTION = FREE | {"precision"}
"""A preset leaves the precision to the device, and a run's folder has what that chose; the table says it."""
_POPULATION = {"clients", "participation", "cohort_size"}


def difference(wanted: Scenario, found: Scenario, besides: Iterable[str] = ()) -> str | None:
    """The first setting in which a run differs from the one wanted; how it is executed may differ.

    A run's folder has the number of clients filled in, and a cohort written as a share of them.
    """
    for setting in dataclasses.fields(Scenario):
        name = setting.name
        mine, theirs = getattr(wanted, name), getattr(found, name)
        if name not in {*_EXECUTION, *_POPULATION, *besides} and mine != theirs:
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
    plan: Plan, out: Path, observer: Observer, track: Sequence[str] = (), command: str | None = None
) -> Outcomes:
    """Run what is missing. A run that fails is told, and the next one begins; Ctrl-C ends all.

    `command` is what reproduce.json says of who wants to run the same again.

    Where a data set is not there, one run says so, and no other on it is begun.
    """
    trackers(track)  # a name that is wrong is told once, not by every run
    begun = places(plan, out)
    for one, folder in begun.items():  # all of them first: nothing is run into a folder of other runs
        _check_same(one, folder, out)
        if one.scenario.data_dir and not run.finished(folder):
            data_folder(one.scenario.data_dir)
    _note(plan, out, command)
    executors: dict[str, str] = {}
    absent: dict[str, str] = {}
    outcomes: Outcomes = {}
    for number, (one, folder) in enumerate(begun.items(), 1):
        data, kept = one.scenario.data, (folder / "scenario.toml").is_file()
        if data in absent and not kept:
            outcomes[one] = Outcome(folder, failure=absent[data], mistaken=True)
            continue
        done = " is done" if run.finished(folder) else ""
        observer.tell(f"run {number} of {len(begun)}: {folder.relative_to(out)}{done}")
        try:
            outcomes[one] = _done(one, folder, executors, observer, track)
        except (OSError, MachineError):  # the next run would have no more luck
            raise
        except Exception as fault:
            message = " ".join(str(fault).split()) or type(fault).__name__
            observer.tell(f"{folder.relative_to(out)} failed: {message}")
            mistaken = isinstance(fault, UserError)
            outcomes[one] = _failed(folder, message, mistaken)
            if isinstance(fault, Missing) and not kept:
                absent[data] = message
                observer.tell(f"no other run on {data} is begun")
    if absent and {outcome.failure for outcome in outcomes.values()} <= set(absent.values()):
        raise _without_data(len(outcomes), absent)
    return outcomes


def _without_data(runs: int, absent: dict[str, str]) -> UserError:
    """One line for an item of which nothing could be run: no table, no picture."""
    first, *others = absent
    same = f"; the same for {', '.join(others)} (--data chooses columns)" if others else ""
    return UserError(f"{runs} of {runs} runs failed, as their data is not there: {absent[first]}{same}")


def _done(one: Run, folder: Path, executors: dict[str, str], observer: Observer, track: Sequence[str]) -> Outcome:
    """The run, finished; the executor that the first run of a model chose is kept, so roundings do not mix."""
    model = f"{one.scenario.data} {one.scenario.model}"
    if run.finished(folder):
        executor = str(summary(folder).get("executor", ""))
    else:
        if (folder / "scenario.toml").is_file():
            result = run.resume(folder, observer=observer, track=track)
        else:
            chosen = one.scenario.changed(executor=executors.get(model, one.scenario.executor))
            result = run.simulate(one.method, chosen, out=folder, observer=observer, track=track)
        executor = result.executor
    if runs_on(executor, device_of(one.scenario.device)):  # one that is done may be of another machine
        executors.setdefault(model, executor)
    found = read(folder)
    if not found.checked:
        observer.tell(UNCHECKED)
    return found


def read(folder: Path) -> Outcome:
    """What there is of the run in a folder."""
    found = read_folder(folder, whole=True)
    return Outcome(
        folder, found.rounds.records, found.failure, precision=found.scenario.precision, checked=found.rounds.checked
    )


def _failed(folder: Path, message: str, mistaken: bool) -> Outcome:
    """What there is of a run that failed, perhaps because its folder is damaged."""
    found = Outcome(folder)
    with contextlib.suppress(UserError):
        found = read(folder)
    return dataclasses.replace(found, failure=message, mistaken=mistaken)


def _check_same(one: Run, folder: Path, out: Path) -> None:
    if (folder / "scenario.toml").is_file():
        other = difference(one.scenario, scenario_in(folder))
        if other is not None:
            raise UserError(f"{folder} holds another run ({other}); give another folder with --out, such as {out}-2")


def _note(plan: Plan, out: Path, command: str | None) -> None:
    """What the folder is, for who finds it: reproduce.json, as it was when a run was last to be done.

    `made` has for each run what made it. A run that went on after it was begun otherwise has that under `begun`.
    """
    made(out)
    missing = [folder for folder in places(plan, out).values() if not run.finished(folder)]
    before = noted(out)
    if before and not missing:
        return
    made_on = environment(device_of(plan.runs[0].scenario.device))
    now = {"command": command or UNKNOWN, "commit": commit(), "environment": made_on}
    makers = {folder.relative_to(out).as_posix(): origin(folder, [out]) for folder in _begun(out) if before}
    for folder in missing:
        name = folder.relative_to(out).as_posix()
        begun = makers.get(name, now)
        same = all(begun.get(key) == now[key] for key in ("command", "commit"))
        makers[name] = now if same else {**now, "begun": begun}
    told = about(plan)
    seeds = max(told["seeds"], before.get("seeds", 1))
    write_checked(
        out / NOTE, {**told, "seeds": seeds, "runs": len(plan.runs), **now, "made": dict(sorted(makers.items()))}
    )


def _begun(out: Path) -> list[Path]:
    return [file.parent for file in sorted(out.rglob("scenario.toml"))]


def origin(folder: Path, sources: Sequence[Path]) -> dict[str, Any]:
    """Command, commit, hardware and versions of a run, as the reproduce.json above it, inside a source, has them."""
    own = folder.resolve()
    roots = {source.resolve() for source in sources}
    for above in (own, *own.parents):
        if (above / NOTE).is_file():
            note = noted(above)
            one = note.get("made", {}).get(own.relative_to(above).as_posix(), note)
            begun = {"begun": one["begun"]} if "begun" in one else {}
            command, commit = one.get("command") or UNKNOWN, one.get("commit", "")
            return {"command": command, "commit": commit, "environment": one.get("environment", {}), **begun}
        if above in roots:
            break
    raise UserError(f"there is no {NOTE} that says where {folder} was made; give the folder that has it")


def about(plan: Plan) -> dict[str, Any]:
    """What is run and what was chosen for it, as plain data."""
    return {
        "item": plan.preset.item,
        "title": plan.preset.title,
        "source": plan.preset.source,
        "scale": plan.scale,
        **({"scaled": TINY} if plan.scale == "tiny" else {}),
        "rows": [row.name for row in plan.rows],
        "columns": [column.name for column in plan.columns],
        "seeds": len({one.scenario.seed for one in plan.runs}),
        "chosen": list(plan.preset.chosen),
    }


def noted(folder: Path) -> dict[str, Any]:
    """What reproduce.json says of the runs in a folder, where there is one."""
    return read_checked(folder / NOTE) if (folder / NOTE).is_file() else {}
