"""The runs of an item among those in folders, wherever they lie.

Where there is none of a cell's, those are taken that differ from it in how split and cohorts were drawn or in the form
of the method, and are marked: such runs are not the item's, but they are what there is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headway.errors import UserError
from headway.methods.spelling import chosen, pieces
from headway.papers.measures import Records
from headway.papers.plan import Cell, Plan, Run
from headway.papers.reproduce import NOTE, Outcome, Outcomes, difference, read
from headway.records import RoundRecord
from headway.runs import packed
from headway.runs.files import read_checked
from headway.runs.folder import scenario as scenario_in
from headway.scenario import Scenario

There = list[tuple[Scenario, Path]]
_SAME_MIX = {"dirichlet", "authors"}
"""Kinds of splits with one parameter of the same meaning, of which an item has one."""
_SAME_SHARE = {"fixed", "authors"}
"""Ways of drawing as many clients in every round, each client as likely as another."""
_FORMS = {("fedavgm", "rate_ratio"), ("fedadam", "from_momentum"), ("fedacg", "half"), ("feddyn", "mu")}
"""Arguments in which the papers' programs differ from their texts, and one program from another."""


@dataclass(frozen=True)
class Kind:
    """What runs are of; both are empty where it is what the item asks for."""

    draw: str = ""
    form: str = ""


def notes(item: str, *folders: Path) -> list[dict[str, Any]]:
    """What the reproduce.json of the item, in these folders or below, say."""
    files = [file for folder in folders for file in sorted(folder.rglob(NOTE))]
    found = [read_checked(file) for file in files]
    return [note for note in found if note.get("item", item) == item]


def draw_of(scenario: Scenario) -> str:
    """`dirichlet:0.3, split_seed 0, sampling fixed`; a split of the authors' depends on no seed."""
    fixed = scenario.partition.partition(":")[0] == "authors"
    seeded = "" if fixed else f", split_seed {scenario.split_seed}"
    return f"{scenario.partition}{seeded}, sampling {scenario.sampling}"


def other_kind(wanted: Scenario, found: Scenario) -> Kind | None:
    """What a run is of that is the one wanted, but for another draw or form; None for any other run."""
    besides = {"rounds"}
    if wanted.partition != found.partition:
        (kind, *mine), (other, *theirs) = (one.partition.split(":") for one in (wanted, found))
        if {kind, other} == _SAME_MIX and mine == theirs:
            besides |= {"partition", "split_seed"}
    if {wanted.sampling, found.sampling} == _SAME_SHARE:
        besides.add("sampling")
    form = wanted.method != found.method and _forms(str(wanted.method), str(found.method))
    if difference(wanted, found, besides | ({"method"} if form else set())) is not None:
        return None
    return Kind(draw_of(found) if len(besides) > 1 else "", str(found.method) if form else "")


def _forms(wanted: str, found: str) -> bool:
    """Whether two methods differ in nothing but arguments that make other forms of one."""
    if wanted.partition(":")[0] != found.partition(":")[0] or len(pieces(wanted)) > 1 or len(pieces(found)) > 1:
        return False
    try:
        (entry, mine), (_, theirs) = chosen(wanted), chosen(found)
    except UserError:  # of another version of Headway, which has other arguments
        return False
    return all((entry.name, name) in _FORMS for name in mine if mine[name] != theirs[name])


def parting(one: Records, other: Records) -> int | None:
    """The first round in which two runs have other numbers, of those that both have; times may differ."""
    for mine, theirs in zip(*(map(_timeless, packed.rounded(records)) for records in (one, other)), strict=False):
        if mine != theirs:
            return int(mine["round"])
    return None


def _timeless(record: RoundRecord) -> dict[str, Any]:
    return {name: value for name, value in record.items() if not name.startswith("seconds_")}


def _longest(folders: list[Path], kind: Kind) -> Outcome:
    """The run in these folders that has most rounds; all must have the same numbers."""
    there = [read(folder) for folder in folders]
    longest = max(there, key=lambda outcome: len(outcome.records))
    for folder, outcome in zip(folders, there, strict=True):
        at = None if outcome is longest else parting(outcome.records, longest.records)
        if at is not None:
            both = f"{folder} and {longest.folder}"
            raise UserError(f"{both} are the same run with other numbers from round {at} on; name one of them")
    return replace(longest, draw=kind.draw, form=kind.form)


def _of_cell(cell: Cell, there: There, others: There) -> Outcomes:
    """The runs of one kind: the one wanted or, where there is none of it, that of which most are there."""
    own: dict[Run, list[Path]] = {}
    for one in cell.runs:
        same = [path for scenario, path in there if difference(one.scenario, scenario, ("rounds",)) is None]
        own |= {one: same} if same else {}
    if own:
        return {one: _longest(folders, Kind()) for one, folders in own.items()}
    kinds: dict[Kind, dict[Run, list[Path]]] = {}
    for one in cell.runs:
        for scenario, path in others:
            kind = other_kind(one.scenario, scenario)
            if kind is not None:
                kinds.setdefault(kind, {}).setdefault(one, []).append(path)
    if not kinds:
        return {}
    most = max(kinds, key=lambda kind: len(kinds[kind]))
    return {one: _longest(folders, most) for one, folders in kinds[most].items()}


def there_in(*folders: Path) -> There:
    """Every run in folders, wherever it lies in them."""
    there: There = []
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"there is no folder {folder}")
        there += [(scenario_in(file.parent), file.parent) for file in sorted(folder.rglob("scenario.toml"))]
    return there


def of_plan(plan: Plan, there: There) -> Outcomes:
    """The plan's runs among those there are; they may have other rounds than asked for.

    A cell has runs of one kind only; its outcomes name it where it is not the item's.
    """
    wanted = [one.scenario for one in plan.runs]
    others = [pair for pair in there if all(difference(one, pair[0], ("rounds",)) for one in wanted)]
    outcomes: Outcomes = {}
    for cell in plan.cells:
        outcomes |= _of_cell(cell, there, others)
    return outcomes


def found_in(plan: Plan, *folders: Path) -> Outcomes:
    """The plan's runs in folders; an error where there is none."""
    there = there_in(*folders)
    outcomes = of_plan(plan, there)
    if not outcomes:
        names = f"{' and '.join(map(str, folders))} {'has' if len(folders) == 1 else 'have'}"
        raise UserError(f"{names} no run of {plan.preset.item}{_near(plan, there)}")
    return outcomes


def _near(plan: Plan, there: There) -> str:
    """Why the first run that is there is not the one wanted."""
    for scenario, path in there:
        for one in plan.runs:
            if one.method == scenario.method and one.scenario.data == scenario.data:
                other = difference(one.scenario, scenario, ("rounds",))
                return f": in {path} {other}"
    return ""
