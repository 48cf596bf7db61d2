"""The data of the board: how much of each item was run, and each measured number beside the printed one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, TypedDict

from headway.errors import UserError
from headway.papers.items import every_preset
from headway.papers.measurements import heading, parse_measure
from headway.papers.plan import Plan, plan
from headway.papers.preset import Preset
from headway.papers.reproduce import NOTE, UNKNOWN, Outcomes
from headway.papers.saved_runs import SavedRun, match_runs, saved_runs
from headway.papers.table import Entry, entries, number_row
from headway.papers.verdict import Word
from headway.runs.files import read_json

TABLES = ("table.md", "table.csv")

Family = Literal["accuracy", "rounds", ""]
"""Numbers that are drawn in one panel: accuracies in %, or rounds until a target; '' are all others."""


class MadeRuns(TypedDict):
    """What made some runs of a claim; `runs` are their folders in it."""

    command: str
    commit: str
    hardware: str
    runs: list[str]


class BoardCell(TypedDict):
    """One measured number beside the printed one, if there is one; accuracies are percentages."""

    number: int
    """Its place on the board, from 0."""
    paper: str
    item: str
    scale: str
    data: str
    column: str
    method: str
    row: str
    measure: str
    heading: str
    family: Family
    seeds: int
    measured: float | None
    std: float | None
    more_than: float | None
    """A lower bound of what was measured, where some seed did not reach the target."""
    published: float | None
    published_std: float | None
    published_is_bound: bool | None
    gap: float | None
    verdict: Word | Literal[""]
    tolerance: float | None
    marks: str
    draw: str
    form: str
    ended_early: str


class BoardItem(TypedDict):
    """A table or a figure at one scale, with how much of it was run."""

    item: str
    paper: str
    kind: str
    title: str
    source: str
    scale: str
    trainings_run: int
    trainings: int
    runs: int
    measured: int
    """How many of the published numbers were measured."""
    published: int
    shares: list[str]
    links: dict[str, str]
    made: list[MadeRuns]


class Board(TypedDict):
    """The whole board, which is what `--board --json` prints."""

    items: list[BoardItem]
    cells: list[BoardCell]


@dataclass(frozen=True)
class Claim:
    """A folder with runs of an item and their reproduce.json."""

    folder: Path
    item: str
    scale: str
    seeds: int
    makers: tuple[MadeRuns, ...] = field(repr=False)

    def links(self, beside: Path) -> dict[str, str]:
        """The claim's table, figures and note, by file name, as links from a page in the folder `beside`."""
        files = [*(self.folder / name for name in TABLES), *sorted(self.folder.glob("figure*.png")), self.folder / NOTE]
        return {path.name: Path(os.path.relpath(path, beside)).as_posix() for path in files if path.is_file()}


def read_claim(file: Path) -> Claim:
    """The claim of a reproduce.json; one of an older version may lack the item, the scale, seeds or makers."""
    note = read_json(file)
    runs: dict[tuple[str, str, str], list[str]] = {}
    for place, made in note.get("made", {}).items():
        hardware = str(made.get("environment", {}).get("hardware", ""))
        maker = (str(made.get("command") or UNKNOWN), str(made.get("commit", "")), hardware)
        runs.setdefault(maker, []).append(place)
    makers = tuple(
        MadeRuns(command=command, commit=commit, hardware=hardware, runs=places)
        for (command, commit, hardware), places in runs.items()
    )
    item, scale, seeds = str(note.get("item", "")), str(note.get("scale", "full")), int(note.get("seeds", 1))
    return Claim(file.parent, item, scale, seeds, makers)


@dataclass(frozen=True)
class Item:
    """A table or figure with the runs of it at one scale."""

    preset: Preset
    plan: Plan | None
    """None where the item has nothing to run."""
    outcomes: Outcomes = field(repr=False)
    claim: Claim | None = None

    @property
    def trainings(self) -> tuple[int, int]:
        """(Trainings of which at least one seed was run, all trainings). Seeds are not counted apart."""
        if self.plan is None:
            return 0, 0
        groups = {cell.runs for cell in self.plan.cells}
        return sum(any(one in self.outcomes for one in runs) for runs in groups), len(groups)

    @cached_property
    def entries(self) -> list[Entry]:
        """The numbers that were measured. Of an item that shares its runs, only those that it prints itself."""
        if self.plan is None or not self.outcomes:
            return []
        shared = bool(self.preset.shares)
        found = entries(self.plan.only(self.outcomes), self.outcomes)
        return [
            one
            for one in found
            if (one.mean is not None or one.lower_bound is not None) and (one.published is not None or not shared)
        ]


def claims(source: Path) -> dict[str, list[Claim]]:
    """The claims in a folder, at any depth, by item."""
    if not source.is_dir():
        raise UserError(f"there is no folder {source}")
    found: dict[str, list[Claim]] = {}
    for file in sorted(source.rglob(NOTE)):
        claim = read_claim(file)
        found.setdefault(claim.item, []).append(claim)
    if not found:
        raise UserError(f"{source} has no runs that `headway reproduce` made: there is no {NOTE} in it")
    return found


def board(source: Path) -> list[Item]:
    """Every item of every paper, with its runs in the claims of a folder; once for each scale it was run at."""
    known = claims(source)
    saved = {claim.folder: saved_runs(claim.folder) for many in known.values() for claim in many}
    return [
        _item(preset, scale, some, [run for claim in some for run in saved[claim.folder]])
        for preset in every_preset()
        for scale, some in _by_scale(preset, known).items()
    ]


def _by_scale(preset: Preset, known: dict[str, list[Claim]]) -> dict[str, list[Claim]]:
    """The claims that may have runs of an item, its own and those it shares runs with, by scale.

    Where there is none, the item stands at full scale without claims.
    """
    items = [preset.item, *(f"{preset.paper}/{name}" for name in preset.shares)]
    found: dict[str, list[Claim]] = {}
    for claim in (claim for item in items for claim in known.get(item, [])):
        found.setdefault(claim.scale, []).append(claim)
    return found or {"full": []}


def _item(preset: Preset, scale: str, some: Sequence[Claim], runs: list[SavedRun]) -> Item:
    """An item with its runs among those of some claims."""
    if not preset.columns:
        return Item(preset, None, {})
    wanted = plan(preset, scale=scale, seeds=max((one.seeds for one in some), default=preset.seeds))
    own = next((claim for claim in some if claim.item == preset.item), None)
    return Item(preset, wanted, match_runs(wanted, runs) if runs else {}, own)


def family(measure: str) -> Family:
    """The panel in which numbers of this measure are drawn."""
    if measure.startswith("accuracy@") or measure == "top_accuracy":
        return "accuracy"
    return "rounds" if parse_measure(measure)[0].counts else ""


def cell(item: Item, entry: Entry, number: int) -> BoardCell:
    """One number of an item; `number` is its place on the board."""
    assert item.plan is not None, "an item without runs has no numbers"
    preset, same = item.preset, number_row(item.plan, entry)
    column = next(one for one in preset.columns if one.name == entry.column)
    row = next(one for one in preset.rows if one.name == entry.row)
    return {
        "number": number,
        "paper": preset.paper,
        "item": same["item"],
        "scale": same["scale"],
        "data": column.data,
        "column": same["column"],
        "method": row.method,
        "row": same["row"],
        "measure": same["measure"],
        "heading": heading(entry.measure),
        "family": family(entry.measure),
        "seeds": same["seeds"],
        "measured": same["measured"],
        "std": same["std"],
        "more_than": same["more_than"],
        "published": same["published"],
        "published_std": same["published_std"],
        "published_is_bound": same["published_is_bound"],
        "gap": same["gap"],
        "verdict": same["verdict"] or "",
        "tolerance": same["tolerance"],
        "marks": entry.marks.signs,
        "draw": same["draw"],
        "form": same["form"],
        "ended_early": same["ended_early"],
    }


def plain(items: Sequence[Item], beside: Path) -> Board:
    """The whole board as plain data, with links for a page in the folder `beside`."""
    pairs = [(item, entry) for item in items for entry in item.entries]
    return {
        "items": [_item_as_data(item, beside) for item in items],
        "cells": [cell(item, entry, number) for number, (item, entry) in enumerate(pairs)],
    }


def _item_as_data(item: Item, beside: Path) -> BoardItem:
    done, all_ = item.trainings
    measured = item.entries
    return {
        "item": item.preset.item,
        "paper": item.preset.paper,
        "kind": item.preset.kind,
        "title": item.preset.title,
        "source": item.preset.source,
        "scale": item.plan.scale if item.plan else "full",
        "trainings_run": done,
        "trainings": all_,
        "runs": len(item.outcomes),
        "measured": sum(entry.published is not None and entry.mean is not None for entry in measured),
        "published": len(item.preset.numbers),
        "shares": list(item.preset.shares),
        "links": item.claim.links(beside) if item.claim else {},
        "made": list(item.claim.makers) if item.claim else [],
    }
