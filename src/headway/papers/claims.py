"""A claim: an item's runs without what only a resume needs, and where each was made, for others to check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headway.errors import UserError
from headway.papers.plan import Plan
from headway.papers.reproduce import Outcome, Outcomes, about, difference, found_in, places
from headway.runs.files import made, read_checked, write_atomically, write_checked
from headway.runs.folder import read as read_folder
from headway.runs.folder import scenario as scenario_in
from headway.runs.folder import sealed

NOTE = "reproduce.json"
_FILES = ("rounds.jsonl", "summary.json")


def keep(plan: Plan, outcomes: Outcomes, source: Path, whole: Plan, into: Path) -> Outcomes:
    """Copy the runs found in a folder into a claim's; those of the whole item that are then there.

    No file of a claim names a folder of this machine. What a claim has is replaced by the same run only, with as many
    rounds or more.
    """
    note = read_checked(made(into) / NOTE) if (into / NOTE).is_file() else {}
    if note.get("scale", plan.scale) != plan.scale:
        raise UserError(f"{into} holds runs at scale {note['scale']}, not {plan.scale}; give another folder")
    kept = {one: target for one, target in places(plan, into).items() if one in outcomes}
    for one, target in kept.items():
        _check(outcomes[one], target)
    origins = dict(note.get("made", {}))
    origins |= {target.relative_to(into).as_posix(): _origin(outcomes[one], source) for one, target in kept.items()}
    for one, target in kept.items():
        _copy(outcomes[one], made(target))
    there = found_in(whole, into)
    runs = {"runs": len(origins), "made": dict(sorted(origins.items()))}
    write_checked(into / NOTE, {**about(whole.only(there)), **runs})
    return there


def _folder(outcome: Outcome) -> Path:
    assert outcome.folder is not None, "what was found lies in a folder"
    return outcome.folder


def _check(outcome: Outcome, target: Path) -> None:
    folder = _folder(outcome)
    if outcome.failure is not None:
        raise UserError(f"{folder} failed ({outcome.failure}); a claim is of runs that did not")
    if (target / "scenario.toml").is_file():
        other = difference(scenario_in(folder), scenario_in(target), ("rounds",))
        if other is not None:
            raise UserError(f"{target} is another run: {other}")
        had = len(read_folder(target, whole=True).rounds.records)
        if len(outcome.records) < had:
            raise UserError(f"{target} has {had} rounds, {folder} only {len(outcome.records)}")


def _copy(outcome: Outcome, target: Path) -> None:
    folder = _folder(outcome)
    for name in _FILES:
        if (folder / name).is_file():
            write_atomically(target / name, (folder / name).read_bytes())
        else:
            (target / name).unlink(missing_ok=True)
    write_atomically(target / "scenario.toml", sealed(scenario_in(folder).changed(data_dir=None)))


def _origin(outcome: Outcome, source: Path) -> dict[str, Any]:
    """Commit, date, hardware and versions of a run, as the reproduce.json above it, inside the source, has them."""
    folder = _folder(outcome).resolve()
    for above in (folder, *folder.parents):
        if (above / NOTE).is_file():
            note = read_checked(above / NOTE)
            one = note.get("made", {}).get(folder.relative_to(above).as_posix(), note)
            return {"commit": one.get("commit", ""), "environment": one.get("environment", {})}
        if above == source.resolve():
            break
    raise UserError(f"{source} has no {NOTE} that says where {folder} was made; give the folder that has it")
