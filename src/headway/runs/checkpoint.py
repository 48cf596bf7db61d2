"""A checkpoint: the server's tensors in safetensors, client rows, and a manifest that makes them count.

The manifest is written last. Until then the one before is in force, with the files it names still there. Only
which rounds have a checkpoint depends on the clock, unless `checkpoint_every` or `deterministic` is given: equal runs
that save after the same rounds have equal bytes.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from headway.engine.experiment import Experiment
from headway.engine.ranks import ALONE, Ranks, all_or_none
from headway.engine.server import GlobalState
from headway.engine.simulation import Progress, begin
from headway.engine.states import ClientStates
from headway.errors import DamagedRun, UserError
from headway.measure.curves import Smoothed
from headway.methods.renamed import current_name, with_current_names
from headway.runs.client_rows import ClientRows, HandedRow, Written, verify_rows
from headway.runs.costs import CostRecord
from headway.runs.files import read_plain, sync_folder, write_atomically, write_checked
from headway.runs.manifest import FORMAT, Fingerprinted, Manifest, Totals, read_manifest
from headway.runs.settings import ENDS, first_difference, fixed
from headway.scenario import Scenario
from headway.trees import laid_out, moved, named_leaves, refill


def _tree(progress: Progress) -> dict[str, Any]:
    model, best = progress.model, progress.best
    tree = {"model": model.theta, "buffers": model.buffers, "server": model.server}
    return tree if best is None else {**tree, "best": {"model": best.theta, "buffers": best.buffers}}


def tensors_of(progress: Progress) -> dict[str, Tensor]:
    """All that the server holds after a round, by name, on the host."""
    return {path: leaf.cpu().contiguous() for path, leaf in named_leaves(_tree(progress)).items()}


def read_tensors(path: Path, digest: str) -> dict[str, Tensor]:
    """The server's tensors, where the file has the digest that the manifest says."""
    try:
        content = read_plain(path)
    except OSError as fault:
        raise DamagedRun(f"the checkpoint is damaged: {path} cannot be read ({fault.strerror})") from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise DamagedRun(f"the checkpoint is damaged: {path} ({len(content)} bytes) fails its checksum")
    try:
        return safetensors.torch.load(content)
    except SafetensorError as fault:
        raise DamagedRun(f"the checkpoint is damaged: {path}: {fault}") from None


def verify(folder: Path) -> None:
    """Read every byte of a checkpoint without its experiment, and refuse one that is damaged."""
    manifest = read_manifest(folder / "manifest.json")
    read_tensors(folder / manifest["server"], manifest["sha256"])
    if manifest["clients"]:
        verify_rows(folder / "clients.rows", manifest["clients"], manifest["round"], manifest["stamps"])


class Pace:
    """When a checkpoint is due: after a number of rounds, or whenever saving has had less than its share of the time.

    A small model is saved after every round. A large one, with the states of many clients, is saved as often as that
    does not slow the run down.
    """

    SHARE = 1 / 20
    DETERMINISTIC = 10
    """Rounds between checkpoints where nothing may depend on the clock."""

    def __init__(self, scenario: Scenario, clock: Callable[[], float] = time.monotonic) -> None:
        self.every = scenario.checkpoint_every or (self.DETERMINISTIC if scenario.deterministic else None)
        self.clock = clock
        self.began = clock()
        self.spent = 0.0

    def due(self, round: int) -> bool:
        if self.every is not None:
            return round % self.every == 0
        return self.spent <= self.SHARE * (self.clock() - self.began)

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Around a save, to count its time."""
        began = self.clock()
        yield
        self.spent += self.clock() - began


@dataclass
class RunFacts:
    """What every manifest of a run says beside the state after its round."""

    fingerprints: Fingerprinted = field(default_factory=lambda: Fingerprinted())
    """Fingerprints of data, own model and own method, as `fingerprints.settle` has them."""
    threads: int | None = None
    """How many threads torch has, where the bits are to be repeated."""
    split: str = ""
    """A digest of split.npz."""
    cost: CostRecord | None = None
    """What the method costs; None for a user's own."""
    stopped: str | None = None
    """Why a callback stopped the run."""


class Checkpoint:
    """The checkpoint folder of one run.

    Several `ranks` share it: each writes the states of the clients that it holds into a file of its own, and rank 0
    brings them together and makes them count. No file is written by two ranks.
    """

    def __init__(self, folder: Path, experiment: Experiment, ranks: Ranks = ALONE) -> None:
        self.folder, self.experiment, self.ranks = folder, experiment, ranks
        self.manifest = folder / "manifest.json"
        self.rows = ClientRows(folder / "clients.rows", experiment.initial_client_state, experiment.population)
        self.committed: int | None = None
        self._stopped: str | None = None
        """What the manifest in force has."""
        self.facts = RunFacts()

    def exists(self) -> bool:
        return self.manifest.is_file()

    def save(
        self, progress: Progress, store: ClientStates, executor: str, rounds: str = "", *, waits: bool = True
    ) -> None:
        """Write the state after a round; `rounds` is the checksum of the numbers in rounds.jsonl up to it.

        Unless it `waits`, the other ranks go on while rank 0 writes, and hear in their next exchange of what failed.
        """
        if (progress.round, self.facts.stopped) == (self.committed, self._stopped):
            return  # it is there already
        if self.committed is None:
            self._begin()
        with all_or_none(self.ranks):
            handed = self._save_clients(progress.round, store)
            if self.ranks.rank == 0:
                written = self._taken_over(progress.round, store, handed)
                self._commit(progress, executor, rounds, written)
        if waits:
            self.ranks.tell({})
        self.committed, self._stopped = progress.round, self.facts.stopped
        store.saved()

    def _begin(self) -> None:
        """Make the folder, and the file of the clients' rows."""
        with all_or_none(self.ranks):
            if self.ranks.rank == 0:
                self.folder.mkdir(parents=True, exist_ok=True)
                if self.rows.used:
                    self.rows.create()
        self.ranks.tell({})

    def _save_clients(self, round: int, store: ClientStates) -> list[list[HandedRow]]:
        """Hand the states that changed since the last checkpoint to rank 0; what each rank has handed over, by rank."""
        if not self.rows.used or self.ranks.size == 1:
            return []
        own: list[HandedRow] = []
        if self.ranks.rank > 0 and store.touched:
            own = self.rows.hand_over(self._handed(self.ranks.rank, round), store.get, store.touched)
        told = self.ranks.tell({"handed": own})
        return [[HandedRow(*row) for row in cast(list[HandedRow], one["handed"])] for one in told]

    def _taken_over(self, round: int, store: ClientStates, handed: Sequence[Sequence[HandedRow]]) -> list[Written]:
        """Write the states that changed on rank 0, and those that other ranks have handed over."""
        committed = self.committed or 0
        written = self.rows.write(store.get, store.touched, committed) if self.rows.used and store.touched else []
        for rank, rows in enumerate(handed):
            if rows:
                written += self.rows.take_over(self._handed(rank, round), rows, committed)
        return written

    def _handed(self, rank: int, round: int) -> Path:
        """The file in which a rank hands over the rows of a round; one that a kill left is removed as any `.part`."""
        return self.folder / f"rows-{round:07d}-of-rank-{rank}.part"

    def _commit(self, progress: Progress, executor: str, rounds: str, written: list[Written]) -> None:
        """Make what was written the checkpoint."""
        if written:
            self.rows.stamp(written, progress.round)
        name = f"server-{progress.round:07d}.safetensors"
        content = safetensors.torch.save(tensors_of(progress))
        write_atomically(self.folder / name, content)
        write_checked(self.manifest, dict(self._described(progress, name, content, executor, rounds)))
        self.committed, self._stopped = progress.round, self.facts.stopped
        self._remove_others(name)

    def _described(self, progress: Progress, name: str, content: bytes, executor: str, rounds: str) -> Manifest:
        scenario = self.experiment.scenario
        return {
            "format": FORMAT,
            "round": progress.round,
            "scenario": fixed(scenario),
            "ends": {setting: getattr(scenario, setting) for setting in ENDS},
            "fingerprints": self.facts.fingerprints,
            "server": name,
            "sha256": hashlib.sha256(content).hexdigest(),
            "rounds": rounds,
            "split": self.facts.split,
            "threads": self.facts.threads,
            "executor": executor,
            "totals": Totals(
                bytes_down=progress.bytes_down,
                bytes_up=progress.bytes_up,
                steps=progress.steps,
                best_loss=progress.best_loss,
            ),
            "smoothed": {"sum": progress.smoothed.sum, "weight": progress.smoothed.weight},
            "clients": self.rows.layout() if self.rows.used else [],
            "stamps": self.rows.digest(progress.round) if self.rows.used else "",
            "cost": self.facts.cost,
            "stopped": self.facts.stopped,
        }

    def read(self) -> Manifest:
        """The manifest in force, with the current names of slots."""
        manifest, parts = read_manifest(self.manifest), self._parts
        manifest["clients"] = [form._replace(name=current_name(form.name, parts)) for form in manifest["clients"]]
        if manifest["fingerprints"]:
            manifest["fingerprints"]["now"] = with_current_names(manifest["fingerprints"]["now"], parts)
        return manifest

    @property
    def _parts(self) -> list[str]:
        return [name for name, _ in self.experiment.method.parts()]

    def _remove_others(self, name: str) -> None:
        for file in self.folder.iterdir():
            if file.name != name and (file.name.startswith("server-") or file.name.endswith(".part")):
                os.unlink(file)
        sync_folder(self.folder)

    def load(self) -> tuple[Progress, ClientStates]:
        """The committed state and its client states."""
        manifest = self.read()
        self._check_scenario(manifest["scenario"])
        model, best = self._models(self.folder / manifest["server"], manifest["sha256"])
        smoothed = Smoothed(**manifest["smoothed"])
        progress = Progress(manifest["round"], model, smoothed=smoothed, best=best, **manifest["totals"])
        store = ClientStates(self.experiment.state_limit, self.folder)
        if self.rows.used:
            if manifest["clients"] != self.rows.layout():
                raise UserError(f"the client states in {self.folder} are not those of this method and model")
            part, parts = self.ranks.rank, self.ranks.size
            for client, state in self.rows.load(progress.round, manifest["stamps"], part, parts):
                store.put(client, moved(state, self.experiment.device))
            store.saved()
        return progress, store

    def reopen(self) -> tuple[Progress, ClientStates]:
        """Load to go on from here: what was written after the checkpoint is forgotten."""
        progress, store = self.load()
        manifest = self.read()
        self.committed = progress.round
        self.facts.stopped = self._stopped = manifest.get("stopped")
        if self.ranks.rank == 0:
            if self.rows.used:
                self.rows.forget_after(progress.round)
            self._remove_others(manifest["server"])
        return progress, store

    def model(self, path: Path, digest: str) -> GlobalState:
        """The server's model and state in a file that a checkpoint of this run was written to."""
        return self._models(path, digest)[0]

    def _check_scenario(self, written: Mapping[str, object]) -> None:
        other = first_difference(written, self.experiment.scenario)
        if other is not None:
            name, now, was = other
            raise UserError(
                f"{name} is {now}, but {self.folder.parent} was run with {was}; start a new run to change it"
            )

    def _models(self, path: Path, digest: str) -> tuple[GlobalState, GlobalState | None]:
        constants = {f"{place}buffers/{name}" for name in self.experiment.network.constants for place in ("", "best/")}
        read = {name: leaf for name, leaf in read_tensors(path, digest).items() if name not in constants}  # once kept
        tensors = with_current_names(read, self._parts)
        template = _tree(begin(self.experiment))
        expected = named_leaves(template)
        if {path: leaf.shape for path, leaf in expected.items()} != {
            path: leaf.shape for path, leaf in tensors.items()
        }:
            raise UserError(f"{path} does not fit this method and model: other tensors or shapes")
        filled = moved(
            laid_out(refill(template, [tensors[name] for name in expected]), template), self.experiment.device
        )
        best = GlobalState(filled["best"]["model"], filled["best"]["buffers"], {}) if "best" in filled else None
        return GlobalState(filled["model"], filled["buffers"], filled["server"]), best
