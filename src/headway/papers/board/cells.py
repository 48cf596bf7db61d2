"""What there is to show: items with how much of them was run, and cells with what was measured and what is printed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from headway.errors import UserError
from headway.papers.found import There, of_plan, there_in
from headway.papers.measures import heading, named
from headway.papers.plan import Plan, plan
from headway.papers.preset import Preset, every_preset
from headway.papers.reproduce import NOTE, UNKNOWN, Outcomes
from headway.papers.table import Entry, entries
from headway.runs.files import read_json

TABLES = ("table.md", "table.csv")


@dataclass(frozen=True)
class Claim:
    """A folder of runs of an item, with its reproduce.json."""

    folder: Path
    note: dict[str, Any] = field(repr=False)

    @property
    def scale(self) -> str:
        return str(self.note.get("scale", "full"))

    @property
    def seeds(self) -> int:
        return int(self.note.get("seeds", 1))

    def links(self, beside: Path) -> dict[str, str]:
        """The claim's table, pictures and note, as seen from a page's folder."""
        there = [*(self.folder / name for name in TABLES), *sorted(self.folder.glob("figure*.png")), self.folder / NOTE]
        return {path.name: Path(os.path.relpath(path, beside)).as_posix() for path in there if path.is_file()}

    def makers(self) -> list[dict[str, Any]]:
        """What made the runs: a command, commit and hardware with the runs it made."""
        found: dict[tuple[str, str, str], list[str]] = {}
        for place, made in self.note.get("made", {}).items():
            hardware = str(made.get("environment", {}).get("hardware", ""))
            key = (str(made.get("command") or UNKNOWN), str(made.get("commit", "")), hardware)
            found.setdefault(key, []).append(place)
        return [
            {"command": command, "commit": commit, "hardware": hardware, "runs": places}
            for (command, commit, hardware), places in found.items()
        ]


@dataclass(frozen=True)
class Item:
    """A table or figure with what was run of it at one scale."""

    preset: Preset
    plan: Plan | None
    """None where there is nothing to run."""
    outcomes: Outcomes = field(repr=False)
    claim: Claim | None = None

    @property
    def trainings(self) -> tuple[int, int]:
        """(Those of which some seed was run, all), each counted once whatever its seeds."""
        if self.plan is None:
            return 0, 0
        groups = {cell.runs for cell in self.plan.cells}
        return sum(any(one in self.outcomes for one in runs) for runs in groups), len(groups)

    @cached_property
    def entries(self) -> list[Entry]:
        """The numbers that were measured, with those that are printed; none of runs that are another item's."""
        if self.plan is None or not self.outcomes:
            return []
        shared = bool(self.preset.shares)
        found = entries(self.plan.only(self.outcomes), self.outcomes)
        return [
            one
            for one in found
            if (one.mean is not None or one.least is not None) and (one.published is not None or not shared)
        ]


def claims(source: Path) -> dict[str, list[Claim]]:
    """The claims in a folder, by item."""
    if not source.is_dir():
        raise UserError(f"there is no folder {source}")
    found: dict[str, list[Claim]] = {}
    for file in sorted(source.rglob(NOTE)):
        claim = Claim(file.parent, read_json(file))
        found.setdefault(str(claim.note.get("item", "")), []).append(claim)
    if not found:
        raise UserError(f"{source} has no runs that `headway reproduce` made: there is no {NOTE} in it")
    return found


def board(source: Path) -> list[Item]:
    """Every item of every paper; one that was run at two scales is there twice."""
    known = claims(source)
    there = {claim.folder: there_in(claim.folder) for many in known.values() for claim in many}
    found = []
    for preset in every_preset():
        own = known.get(preset.item, [])
        shared = [claim for name in preset.shares for claim in known.get(f"{preset.paper}/{name}", [])]
        scales = dict.fromkeys(claim.scale for claim in [*own, *shared]) or {"full": None}
        for scale in scales:
            some = [claim for claim in [*own, *shared] if claim.scale == scale]
            runs = [pair for claim in some for pair in there[claim.folder]]
            found.append(_item(preset, scale, some, runs, next((one for one in own if one.scale == scale), None)))
    return found


def _item(preset: Preset, scale: str, some: Sequence[Claim], runs: There, claim: Claim | None) -> Item:
    if not preset.columns:
        return Item(preset, None, {})
    wanted = plan(preset, scale=scale, seeds=max((one.seeds for one in some), default=preset.seeds))
    return Item(preset, wanted, of_plan(wanted, runs) if runs else {}, claim)


def family(measure: str) -> str:
    """Numbers that are drawn beside each other: accuracies in %, or rounds until a target; '' of others."""
    if measure.startswith("accuracy@") or measure == "top_accuracy":
        return "accuracy"
    return "rounds" if named(measure)[0].counts else ""


def cell(item: Item, entry: Entry, number: int) -> dict[str, Any]:
    """One number as plain data."""
    preset, scale = item.preset, item.plan.scale if item.plan else "full"
    column = next(one for one in preset.columns if one.name == entry.column)
    row = next(one for one in preset.rows if one.name == entry.row)
    printed, scaled = entry.published, scale != "full"
    judged = None if scaled else entry.verdict
    return {
        "number": number,
        "paper": preset.paper,
        "item": preset.item,
        "scale": scale,
        "data": column.data,
        "column": entry.column,
        "method": row.method,
        "row": entry.row,
        "measure": entry.measure,
        "heading": heading(entry.measure),
        "family": family(entry.measure),
        "seeds": len(entry.seeds),
        "measured": entry.mean,
        "std": entry.std,
        "more_than": entry.least,
        "published": printed.value if printed else None,
        "published_std": printed.std if printed else None,
        "published_is_bound": printed.bound if printed else None,
        "gap": None if scaled else entry.gap,
        "verdict": judged.word if judged else "",
        "tolerance": judged.tolerance if judged else None,
        "marks": entry.marks.signs,
        "draw": entry.marks.draw,
        "form": entry.marks.form,
        "ended_early": entry.marks.ended_early,
    }


def plain(items: Sequence[Item], beside: Path) -> dict[str, Any]:
    """The whole board as data: items, and cells with what was measured."""
    pairs = [(item, entry) for item in items for entry in item.entries]
    return {
        "items": [_told(item, beside) for item in items],
        "cells": [cell(item, entry, number) for number, (item, entry) in enumerate(pairs)],
    }


def _told(item: Item, beside: Path) -> dict[str, Any]:
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
        "made": item.claim.makers() if item.claim else [],
    }
