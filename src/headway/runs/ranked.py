"""A run on several ranks: begun, or gone on with where the folder holds it already, as after a restart by torchrun."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from headway.engine.experiment import Experiment
from headway.engine.ranks import Ranks, all_or_none, check_same, speaker, told_by_first
from headway.errors import is_shared
from headway.runs.callbacks.hooks import Callback, Hooked
from headway.runs.callbacks.of_run import every_callback
from headway.runs.driver import drive
from headway.runs.execution import of_clients_alone
from headway.runs.files import checksum
from headway.runs.fingerprints import fingerprints
from headway.runs.folder import finished
from headway.runs.folder import scenario as scenario_in
from headway.runs.job import Job, check_unchanged
from headway.runs.load import loaded, warned_if_unchecked
from headway.runs.observer import Observer, Silent
from headway.runs.reserve import reserve
from headway.runs.result import Result
from headway.runs.settings import EXECUTION, without
from headway.trees import leaves_of


@contextmanager
def together_to_the_end(ranks: Ranks) -> Iterator[None]:
    """A fault inside is raised on every rank, and one has said what it is when the others end."""
    try:
        with all_or_none(ranks):
            yield
    except BaseException as fault:
        if is_shared(fault):
            ranks.outlive(speaker(ranks, fault))
        raise


def drive_together(
    experiment: Experiment,
    place: Path | None,
    observer: Observer,
    callbacks: Sequence[Hooked],
    trackers: Mapping[str, Callback],
    ranks: Ranks,
) -> Result:
    """Begin a run on several ranks, or go on with the same one in its folder."""
    check_same(ranks, _facts(experiment))
    with all_or_none(ranks):
        if ranks.rank == 0:
            every_callback(experiment, callbacks, trackers)
            if experiment.scenario.deterministic:
                of_clients_alone(experiment.scenario.executor, experiment, ranks.size)
    if place is not None and not told_by_first(ranks, lambda: _holds(place, experiment)):
        told_by_first(ranks, lambda: str(reserve(place, experiment.scenario)))
    return _driven(Job(experiment, place, observer, callbacks, trackers, ranks=ranks))


def go_on_together(
    experiment: Experiment,
    folder: Path,
    observer: Observer,
    callbacks: Sequence[Hooked],
    trackers: Mapping[str, Callback],
    ranks: Ranks,
    accept_changes: bool,
) -> Result:
    """Go on with a run on several ranks, from its last checkpoint."""
    check_same(ranks, _facts(experiment))
    return _driven(Job(experiment, folder, observer, callbacks, trackers, accept_changes, ranks))


def _driven(job: Job) -> Result:
    """The result of a run that is finished already, or of driving it to its end."""
    ranks, folder, observer = job.ranks, job.folder, job.observer if job.ranks.rank == 0 else Silent()
    if folder is not None and told_by_first(ranks, lambda: finished(folder)):
        with all_or_none(ranks):
            check_unchanged(folder, job.experiment, observer, job.accept_changes)
            result = warned_if_unchecked(loaded(job.experiment, folder), observer)
        ranks.tell({})
        return result
    first = ranks.rank == 0
    callbacks, trackers = (job.callbacks, job.trackers) if first else ((), {})
    return drive(Job(job.experiment, folder, observer, callbacks, trackers, job.accept_changes, ranks))


def _holds(folder: Path, experiment: Experiment) -> bool:
    """Whether a folder holds this very run: the same settings, but for those of how it is executed."""
    if not (folder / "scenario.toml").is_file() or (folder / "study.json").is_file():
        return False
    return without(scenario_in(folder), EXECUTION) == without(experiment.scenario, EXECUTION)


def _facts(experiment: Experiment) -> dict[str, str]:
    """Digests of all that must be alike on every rank, by name."""
    network, settings = experiment.network, without(experiment.scenario, EXECUTION - {"deterministic"})
    numbers = [
        [str(leaf.dtype), list(leaf.shape), float(leaf.double().norm()).hex(), float(leaf.double().sum()).hex()]
        for leaf in leaves_of([network.parameters, network.buffers])
    ]
    return {
        "the same settings": checksum(settings),
        **{name: checksum(digest) for name, digest in fingerprints(experiment).items()},
        "the same numbers in the model": checksum(numbers),
    }
