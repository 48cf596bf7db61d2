"""The folder of a run or of a study: reserved before the first round, given back where no round could begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from headway.errors import UserError
from headway.runs import records
from headway.runs.files import ensure_folder, write_atomically, write_checked
from headway.runs.folder import finished, seal, sealed
from headway.scenario import Scenario

_LEFT_OVER = {"scenario.toml.part", "study.json", "study.json.part", "grid.json", "grid.json.part"}
"""What a kill in the middle of `reserve` leaves; it is written over."""


def reserve(
    folder: Path,
    scenario: Scenario,
    study: Sequence[str] | None = None,
    tuning: Mapping[str, object] | None = None,
    grid: Mapping[str, object] | None = None,
) -> Path:
    """Make the folder of a run, of a study of these methods, or of a grid; an error where it is in use.

    `tuning` is what the methods of a study are to be tuned with, before they are run.

    scenario.toml is written last: with it the folder is in use.
    """
    check_free(folder)
    ensure_folder(folder)
    beside = folder / "scenario.toml.part"
    with records.appending(beside):  # of several processes that found it free, one goes on
        try:
            check_free(folder)
        except UserError:
            beside.unlink(missing_ok=True)  # made here, after another process was done with its own
            raise
        if study is not None:
            about = {} if tuning is None else {"tuning": tuning}
            write_checked(folder / "study.json", {"methods": list(study), "scenario": seal(scenario), **about})
        else:
            (folder / "study.json").unlink(missing_ok=True)
        if grid is not None:
            write_checked(folder / "grid.json", grid)
        else:
            (folder / "grid.json").unlink(missing_ok=True)
        write_atomically(folder / "scenario.toml", sealed(scenario))
    return folder


def check_free(folder: Path) -> None:
    """Refuse a folder that is in use."""
    if folder.exists() and (not folder.is_dir() or {file.name for file in folder.iterdir()} - _LEFT_OVER):
        advice = "it holds other files" if folder.is_dir() else "it is a file"
        if (folder / "scenario.toml").is_file():
            done = finished(folder)
            advice = f"headway report {folder} shows it" if done else f"headway resume {folder} goes on with it"
        raise UserError(f"{folder} is already used ({advice}); give another --out")


def give_back(folder: Path) -> None:
    """Remove a reserved folder in which no run has begun, so that the corrected command can have it."""
    reserved = {"scenario.toml", "study.json", "grid.json", "jobs.json"}
    if {file.name for file in folder.iterdir()} <= reserved:
        for name in reserved:
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()
