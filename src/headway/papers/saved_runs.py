"""Finds the runs of an item among those saved in folders, at any depth.

A cell of which no run is saved gets runs that differ from it only in how split and cohorts were drawn, or in the form
of the method. These are marked in every table and figure, as they are not what the item asks for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from headway.errors import UserError
from headway.methods.spelling import chosen, pieces
from headway.papers.measurements import Records
from headway.papers.plan import Cell, Plan, Run
from headway.papers.reproduce import NOTE, Outcome, Outcomes, difference, read
from headway.records import Diagnostics, RoundRecord
from headway.runs import packed
from headway.runs.files import read_checked
from headway.runs.folder import scenario as scenario_in
from headway.scenario import Scenario

_SAME_MIX = {"dirichlet", "authors"}
"""Kinds of splits whose parameter means the same; an item has one of them."""
_SAME_SHARE = {"fixed", "authors"}
"""Kinds of sampling that invite the same number of clients in every round, each with the same probability."""
_FORMS = {("fedavgm", "rate_ratio"), ("fedadam", "from_momentum"), ("fedacg", "half"), ("feddyn", "mu")}
"""(Method, argument) in which a paper's program differs from its text, or one program from another."""


@dataclass(frozen=True)
class SavedRun:
    """A folder with a run's scenario.toml."""

    scenario: Scenario
    folder: Path


@dataclass(frozen=True)
class Kind:
    """How saved runs differ from what the item asks for; both are empty where they do not."""

    draw: str = ""
    """Their split and cohorts, as `describe_draw` says it."""
    form: str = ""
    """Their method."""


def notes(item: str, *folders: Path) -> list[dict[str, object]]:
    """The contents of every reproduce.json of the item in these folders or below."""
    files = [file for folder in folders for file in sorted(folder.rglob(NOTE))]
    found = [read_checked(file) for file in files]
    return [note for note in found if note.get("item", item) == item]


def describe_draw(scenario: Scenario) -> str:
    """`dirichlet:0.3, split_seed 0, sampling fixed`; the authors' own splits depend on no seed."""
    fixed = scenario.partition.partition(":")[0] == "authors"
    seeded = "" if fixed else f", split_seed {scenario.split_seed}"
    return f"{scenario.partition}{seeded}, sampling {scenario.sampling}"


def other_kind(wanted: Scenario, found: Scenario) -> Kind | None:
    """How a run differs from the one wanted, if only in draw or form; None where it differs in more."""
    besides = {"rounds"}
    if _is_same_mix(wanted.partition, found.partition):
        besides |= {"partition", "split_seed"}
    if {wanted.sampling, found.sampling} == _SAME_SHARE:
        besides.add("sampling")
    form = wanted.method != found.method and _other_form(str(wanted.method), str(found.method))
    if difference(wanted, found, besides | ({"method"} if form else set())) is not None:
        return None
    return Kind(describe_draw(found) if len(besides) > 1 else "", str(found.method) if form else "")


def _is_same_mix(wanted: str, found: str) -> bool:
    """Whether two splits are of different kinds that draw from the same distribution."""
    (kind, *mine), (other, *theirs) = wanted.split(":"), found.split(":")
    return {kind, other} == _SAME_MIX and mine == theirs


def _other_form(wanted: str, found: str) -> bool:
    """Whether two methods differ only in arguments that make them two forms of one method."""
    if wanted.partition(":")[0] != found.partition(":")[0] or len(pieces(wanted)) > 1 or len(pieces(found)) > 1:
        return False
    try:
        (entry, mine), (_, theirs) = chosen(wanted), chosen(found)
    except UserError:  # saved by a version of Headway with other arguments
        return False
    return all((entry.name, name) in _FORMS for name in mine if mine[name] != theirs[name])


def first_difference(one: Records, other: Records) -> int | None:
    """The first round in which the numbers of two runs differ, of the rounds that both have; times may differ."""
    for mine, theirs in zip(*(map(_without_times, packed.rounded(records)) for records in (one, other)), strict=False):
        alone = Diagnostics.__annotations__.keys() & (mine.keys() ^ theirs.keys())  # made before there were any
        if any(mine.get(name) != theirs.get(name) for name in (mine.keys() | theirs.keys()) - alone):
            return int(mine["round"])
    return None


def _without_times(record: RoundRecord) -> dict[str, object]:
    return {name: value for name, value in record.items() if not name.startswith("seconds_")}


def _longest(folders: list[Path], kind: Kind) -> Outcome:
    """The run with most rounds among those in these folders, which must all have the same numbers."""
    every = [read(folder) for folder in folders]
    longest = max(every, key=lambda outcome: len(outcome.records))
    for folder, outcome in zip(folders, every, strict=True):
        at = None if outcome is longest else first_difference(outcome.records, longest.records)
        if at is not None:
            both = f"{folder} and {longest.folder}"
            raise UserError(f"{both} are the same run with other numbers from round {at} on; name one of them")
    return replace(longest, draw=kind.draw, form=kind.form)


def _match_cell(cell: Cell, saved: list[SavedRun], others: list[SavedRun]) -> Outcomes:
    """The runs of a cell, all of one kind: the one wanted or, where none of it is saved, the kind with most runs.

    `others` are those saved runs that are wanted by no cell of the item.
    """
    own = _same_runs(cell, saved)
    if own:
        return {one: _longest(folders, Kind()) for one, folders in own.items()}
    kinds = _runs_by_kind(cell, others)
    if not kinds:
        return {}
    most = max(kinds, key=lambda kind: len(kinds[kind]))
    return {one: _longest(folders, most) for one, folders in kinds[most].items()}


def _same_runs(cell: Cell, saved: list[SavedRun]) -> dict[Run, list[Path]]:
    """The folders of each run of a cell that is saved as the item asks for it."""
    found = {
        one: [run.folder for run in saved if difference(one.scenario, run.scenario, ("rounds",)) is None]
        for one in cell.runs
    }
    return {one: folders for one, folders in found.items() if folders}


def _runs_by_kind(cell: Cell, others: list[SavedRun]) -> dict[Kind, dict[Run, list[Path]]]:
    """The folders of runs that differ from those of a cell in draw or form only, by how they differ."""
    kinds: dict[Kind, dict[Run, list[Path]]] = {}
    for one in cell.runs:
        for run in others:
            kind = other_kind(one.scenario, run.scenario)
            if kind is not None:
                kinds.setdefault(kind, {}).setdefault(one, []).append(run.folder)
    return kinds


def saved_runs(*folders: Path) -> list[SavedRun]:
    """Every run in these folders, at any depth."""
    saved: list[SavedRun] = []
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"there is no folder {folder}")
        saved += [SavedRun(scenario_in(file.parent), file.parent) for file in sorted(folder.rglob("scenario.toml"))]
    return saved


def match_runs(plan: Plan, saved: list[SavedRun]) -> Outcomes:
    """The plan's runs among those that are saved; they may have more or fewer rounds than the plan.

    All runs of a cell are of one kind; their outcomes say its draw and form where these are not the item's.
    """
    wanted = [one.scenario for one in plan.runs]
    others = [run for run in saved if all(difference(one, run.scenario, ("rounds",)) for one in wanted)]
    outcomes: Outcomes = {}
    for cell in plan.cells:
        outcomes |= _match_cell(cell, saved, others)
    return outcomes


def find_runs(plan: Plan, *folders: Path) -> Outcomes:
    """The plan's runs in these folders; a `UserError` where none is found."""
    saved = saved_runs(*folders)
    outcomes = match_runs(plan, saved)
    if not outcomes:
        names = f"{' and '.join(map(str, folders))} {'has' if len(folders) == 1 else 'have'}"
        raise UserError(f"{names} no run of {plan.preset.item}{_nearest_miss(plan, saved)}")
    return outcomes


def _nearest_miss(plan: Plan, saved: list[SavedRun]) -> str:
    """Why the first saved run of one of the item's methods on its data is not the one wanted."""
    for run in saved:
        for one in plan.runs:
            if one.method == run.scenario.method and one.scenario.data == run.scenario.data:
                other = difference(one.scenario, run.scenario, ("rounds",))
                return f": in {run.folder} {other}"
    return ""
