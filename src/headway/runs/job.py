"""A run that is to be trained, and where it stands: at its checkpoint, or at its start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headway.engine import simulation
from headway.engine.executor import RemoteExecutor
from headway.engine.experiment import Experiment
from headway.engine.ranks import ALONE, Ranks, all_or_none
from headway.engine.simulation import Progress
from headway.engine.states import ClientStates
from headway.errors import UserError
from headway.runs import records, splits
from headway.runs.callbacks.hooks import Callback, Hooked
from headway.runs.checkpoint import Checkpoint
from headway.runs.files import write_atomically
from headway.runs.fingerprints import settle
from headway.runs.folder import ROUNDS, sealed
from headway.runs.folder import read as read_folder
from headway.runs.manifest import Fingerprinted
from headway.runs.observer import Observer
from headway.runs.records import Rounds


@dataclass(frozen=True)
class Job:
    """A run that is to be trained: what, where it is kept, and who watches."""

    experiment: Experiment
    folder: Path | None
    observer: Observer
    callbacks: Sequence[Hooked] = ()
    trackers: Mapping[str, Callback] = field(default_factory=dict)
    """Callbacks that write to other programs, by the names that were given for them."""
    accept_changes: bool = False
    """Whether data, an own model and an own method may be others than those that the run began with."""
    ranks: Ranks = ALONE
    """The processes that run it together; all but the first have nobody who watches, and write only client states."""
    remote: RemoteExecutor | None = None
    """Brings the uploads of clients at other places, in the place of an executor that trains them here."""


def check_unchanged(folder: Path, experiment: Experiment, observer: Observer, accept: bool = False) -> Fingerprinted:
    """Refuse data, an own model or an own method that the run in a folder did not begin with, unless it is accepted.

    Returns what the run's next manifest says of its fingerprints.
    """
    checkpoint = Checkpoint(folder / "checkpoint", experiment)
    return settle(checkpoint.read() if checkpoint.exists() else None, experiment, folder, accept, observer.tell)


def start_of(job: Job, checkpoint: Checkpoint | None) -> tuple[Progress, ClientStates, Rounds]:
    """Where a run stands on this rank: rank 0 first brings the folder in order, then the others read it."""
    ranks = job.ranks
    if ranks.rank > 0:
        ranks.tell({})
    with all_or_none(ranks):
        found = _start_here(job, checkpoint)
    if ranks.rank == 0:
        ranks.tell({})
    ranks.tell({})
    return found


def _start_here(job: Job, checkpoint: Checkpoint | None) -> tuple[Progress, ClientStates, Rounds]:
    """Where a run stands: at its checkpoint, with what came after it removed, or at the start."""
    experiment, folder = job.experiment, job.folder
    if folder is None or checkpoint is None:
        return simulation.begin(experiment), ClientStates(experiment.state_limit), Rounds([], True, 0)
    path, exists = folder / ROUNDS, checkpoint.exists()
    if job.ranks.rank > 0:
        return _beside_first(job, checkpoint, folder)
    if not exists and path.stat().st_size:
        raise UserError(
            f"{checkpoint.manifest} is missing, though rounds were run: put the checkpoint back from a copy, or start "
            f"again: headway run --scenario {folder / 'scenario.toml'} --out NEW"
        )
    expected = checkpoint.read()["split"] if exists else None
    checkpoint.facts.split = splits.write_or_check(folder, experiment, job.accept_changes, expected)
    if not exists:
        return simulation.begin(experiment), ClientStates(experiment.state_limit, folder), Rounds([], True, 0)
    found = read_folder(folder)  # all of it, before anything is changed
    progress, store = checkpoint.reopen()
    records.cut(path, found.rounds)
    if checkpoint.read()["ends"] is None:  # of an earlier version: from here on it has the checksums of this one
        write_atomically(folder / "scenario.toml", sealed(found.scenario))
    return progress, store, found.rounds


def _beside_first(job: Job, checkpoint: Checkpoint, folder: Path) -> tuple[Progress, ClientStates, Rounds]:
    """Where a run stands, on another rank than the first: nothing is written."""
    if not checkpoint.exists():
        experiment = job.experiment
        return simulation.begin(experiment), ClientStates(experiment.state_limit, folder), Rounds([], True, 0)
    progress, store = checkpoint.reopen()
    return progress, store, read_folder(folder).rounds
