"""A claim: an item's runs without what only a resume needs, and where each was made, for others to check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headway.papers.plan import Plan
from headway.papers.reproduce import Outcomes, about, found_in, made, places
from headway.runs.files import read_json, write_atomically, write_json
from headway.scenario import scenario as scenario_of

NOTE = "reproduce.json"
_FILES = ("rounds.jsonl", "summary.json")


def keep(plan: Plan, outcomes: Outcomes, whole: Plan, into: Path) -> Outcomes:
    """Copy the runs into a claim's folder; those of the whole item that are then there.

    No file of a claim names a folder of this machine.
    """
    note = read_json(made(into) / NOTE) if (into / NOTE).is_file() else {}
    origins: dict[str, Any] = dict(note.get("made", {}))
    for one, target in places(plan, into).items():
        folder = outcomes[one].folder if one in outcomes else None
        if folder is None:
            continue
        origins[target.relative_to(into).as_posix()] = _origin(folder)
        made(target)
        for name in _FILES:
            if (folder / name).is_file():
                write_atomically(target / name, (folder / name).read_bytes())
        scenario = scenario_of(folder).changed(data_dir=None)
        write_atomically(target / "scenario.toml", scenario.as_toml().encode())
    there = found_in(whole, into)
    write_json(into / NOTE, {**about(whole.only(there)), "runs": len(there), "made": dict(sorted(origins.items()))})
    return there


def _origin(folder: Path) -> dict[str, Any]:
    """Commit, date, hardware and versions of a run, as the reproduce.json above it has them."""
    for above in folder.parents:
        if (above / NOTE).is_file():
            note = read_json(above / NOTE)
            one = note.get("made", {}).get(folder.relative_to(above).as_posix(), note)
            return {"commit": one["commit"], "environment": one["environment"]}
    return {"commit": "", "environment": read_json(folder / "summary.json")["environment"]}
