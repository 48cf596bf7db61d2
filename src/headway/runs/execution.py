"""How a run is executed: with the executor that was chosen before for the same work, and the threads it began with.

Executors round differently, so a stopwatch that decides anew would give other numbers for the same command. What it
decided is kept in the user's cache, one small file for each kind of work and machine: `$HEADWAY_CACHE/executors`, else
`~/.cache/headway/executors`. Nothing that is wrong with the cache is an error: then the stopwatch decides.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from headway.data.federation import Federation
from headway.engine.executor import Executor
from headway.engine.experiment import Experiment
from headway.engine.pool import cores
from headway.engine.ranks import Ranks, all_or_none
from headway.engine.selection import TIMED, choose, runs_on
from headway.errors import MachineError, UserError
from headway.executors import EXECUTORS, KINDS, kind_of
from headway.runs.environment import hardware_and_versions, processor
from headway.runs.files import checksum, read_checked, sealed_json
from headway.runs.settings import SAME_WORK, without
from headway.trees import leaves_of, named_leaves
from headway.user_cache import cache_of


def chosen(experiment: Experiment, requested: str, tell: Callable[[str], None]) -> tuple[Executor, str]:
    """An executor, and its name with how it was chosen where nobody asked for it by name."""
    if requested not in TIMED or experiment.scenario.deterministic:  # then no stopwatch decides
        executor = choose(experiment, requested, tell)
        return executor, executor.name
    path = _path(experiment, requested)
    remembered = _remembered(path, experiment)
    if remembered is not None:
        executor = choose(experiment, remembered, tell)
        if executor.name == remembered:
            return executor, f"{remembered} (remembered)"
        executor.close()  # it cannot take this work any more
    executor = choose(experiment, requested, tell)
    _remember(path, executor.name, experiment, requested)
    return executor, f"{executor.name} (measured)"


def chosen_together(
    experiment: Experiment, requested: str, tell: Callable[[str], None], ranks: Ranks
) -> tuple[Executor, str]:
    """`chosen` by rank 0, for all ranks: they have one executor, as one process has for all its clients."""
    if ranks.size == 1:
        return chosen(experiment, requested, tell)
    if experiment.scenario.deterministic:
        requested = of_clients_alone(requested, experiment, ranks.size)
    if ranks.rank == 0:
        with all_or_none(ranks):
            executor, label = chosen(experiment, requested, tell)
        ranks.tell({"name": executor.name, "label": label})
        ranks.tell({})
        return executor, label
    told = ranks.tell({})[0]
    name, label = str(told["name"]), str(told["label"])
    with all_or_none(ranks):
        executor = choose(experiment, name, lambda line: None)
        if executor.name != name:
            executor.close()
            raise MachineError(f"rank {ranks.rank} cannot take the executor '{name}' that rank 0 has chosen")
    ranks.tell({})
    return executor, label


def of_clients_alone(requested: str, experiment: Experiment, size: int) -> str:
    """An executor whose bits do not depend on who is trained together: that depends on the number of ranks."""
    if requested == "auto":
        return "serial"
    if kind_of(requested).alone:
        return requested
    if experiment.scenario.executor == requested:
        alone = " or ".join(name for name, kind in KINDS.items() if kind.alone)
        raise UserError(
            f"executor is '{requested}' with deterministic and {size} ranks: the bits of a stack depend on who is in "
            f"it, and so on the number of ranks; use {alone}, or leave deterministic out"
        )
    raise UserError(
        f"this run was begun in deterministic mode with the executor '{requested}': its bits depend on who is trained "
        "together, and so on the number of ranks; go on without ranks"
    )


def _path(experiment: Experiment, requested: str) -> Path | None:
    """The file of this work on this machine; None where there is no place for it."""
    with contextlib.suppress(Exception):  # a user's model or slot may not even have a repr
        return cache_of("executors") / f"{checksum(_about(experiment, requested))[:32]}.json"
    return None


def _about(experiment: Experiment, requested: str) -> dict[str, object]:
    """What decides which executor is fastest: the work, the machine and the versions."""
    leaves = named_leaves(experiment.network.parameters).items()
    network = [str(experiment.network.original), [[name, str(leaf.dtype), list(leaf.shape)] for name, leaf in leaves]]
    made_on = hardware_and_versions(experiment.device)
    versions = {name: made_on["versions"].get(name) for name in ("headway", "torch", "cuda")}
    return {
        "asked": requested,
        "machine": {"processor": processor(), "cores": cores(), "hardware": made_on["hardware"], **versions},
        "settings": without(experiment.scenario, SAME_WORK),
        "method": re.sub(r" at 0x[0-9a-fA-F]+", "", repr(experiment.method)),
        "network": checksum(network)[:32],
        "population": experiment.population,
        "sample": _sample(experiment.federation),
        "shapes": {name: list(shape) for name, shape in experiment.shapes.items()},
    }


def _sample(federation: Federation) -> list[object]:
    """Type of the targets and shape of a sample."""
    types, shape = [str(part.dtype) for part in leaves_of(federation.train.y)], federation.sample_shape
    return [*types, *(shape if isinstance(shape, tuple) else shape.items())]


def _remembered(path: Path | None, experiment: Experiment) -> str | None:
    """The executor that was chosen for this work, where it still can run here."""
    if path is None:
        return None
    try:
        name = read_checked(path).get("executor")
    except (UserError, OSError):
        return None
    return name if isinstance(name, str) and name in EXECUTORS and runs_on(name, experiment.device) else None


def _remember(path: Path | None, executor: str, experiment: Experiment, requested: str) -> None:
    """Write beside, then rename over: of two who write at once, one is there in the end, and whole."""
    if path is None:
        return
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, beside = tempfile.mkstemp(dir=path.parent, suffix=".part")
        try:
            with open(handle, "wb") as file:
                file.write(sealed_json({"executor": executor, **json.loads(json.dumps(_about(experiment, requested)))}))
            os.replace(beside, path)
        except BaseException:
            os.unlink(beside)
            raise


@contextmanager
def threads(deterministic: bool, began: int | None) -> Iterator[int | None]:
    """Give a run whose bits are to be repeated the number of threads it began with, or that of now; yields the number.

    Sums of a matrix product are taken in parts, one for each thread, so their last bits depend on it.
    """
    if not deterministic:
        yield None
        return
    before = torch.get_num_threads()
    wanted = began or before
    if wanted != before:
        torch.set_num_threads(wanted)
    try:
        yield wanted
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)
