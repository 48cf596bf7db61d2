"""A checkpoint: the server's tensors in safetensors, client rows, and a manifest that makes them count.

The manifest is written last. Until then the one before is in force, with the files it names still there. Nothing in a
checkpoint depends on the clock but, unless told or deterministic, which rounds have one: so equal runs that save after
the same rounds have equal bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError

from headway.engine.round import Model
from headway.engine.simulation import Progress, begin
from headway.engine.states import ClientStates
from headway.engine.world import World
from headway.errors import UserError
from headway.measure.curves import Smoothed
from headway.runs.client_rows import ClientRows
from headway.runs.files import read_json, sync_folder, write_atomically, write_json
from headway.scenario import FREE, Scenario
from headway.vectors import laid_out, moved, named_leaves, refill

FORMAT = 1
_FREE = FREE - {"deterministic"} | {"rounds", "target", "stop_at_target", "seeds", "on_failure"}
"""Settings that may change between a run and its resume: when it ends too, but not that its bits can be repeated."""
_TOTALS = ("bytes_down", "bytes_up", "steps", "best_loss")


def _tree(progress: Progress) -> dict[str, Any]:
    model, best = progress.model, progress.best
    tree = {"model": model.theta, "buffers": model.buffers, "server": model.server}
    return tree if best is None else {**tree, "best": {"model": best.theta, "buffers": best.buffers}}


def _check(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


class Pace:
    """When a checkpoint is due: after so many rounds, or whenever saving has had less than its share of the time.

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


class Checkpoint:
    """The checkpoint folder of one run."""

    def __init__(self, folder: Path, world: World) -> None:
        self.folder, self.world = folder, world
        self.manifest = folder / "manifest.json"
        self.rows = ClientRows(folder / "clients.rows", world.newcomer, world.population)
        self.committed: int | None = None
        self.fingerprints: dict[str, Any] = {}
        """Of data, own model and own method, as `fingerprints.settle` has them."""

    def exists(self) -> bool:
        return self.manifest.is_file()

    def save(self, progress: Progress, store: ClientStates, executor: str) -> None:
        if self.committed is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            if self.rows.used:
                self.rows.create()
        elif progress.round == self.committed:
            return  # it is there already
        if self.rows.used and store.touched:
            self.rows.save(store.get, store.touched, self.committed or 0, progress.round)
        name = f"server-{progress.round:07d}.safetensors"
        tensors = {path: leaf.cpu().contiguous() for path, leaf in named_leaves(_tree(progress)).items()}
        content = safetensors.torch.save(tensors)
        write_atomically(self.folder / name, content)
        self._commit(
            {
                "format": FORMAT,
                "round": progress.round,
                "scenario": self._scenario(),
                "fingerprints": self.fingerprints,
                "server": name,
                "sha256": hashlib.sha256(content).hexdigest(),
                "executor": executor,
                "totals": {total: getattr(progress, total) for total in _TOTALS},
                "smoothed": dataclasses.asdict(progress.smoothed),
                "clients": self.rows.layout() if self.rows.used else [],
                "stamps": self.rows.digest(progress.round) if self.rows.used else "",
            }
        )
        self.committed = progress.round
        store.touched.clear()
        self._remove_others(name)

    def _commit(self, manifest: dict[str, Any]) -> None:
        write_json(self.manifest, {**manifest, "check": _check(manifest)})

    def read(self) -> dict[str, Any]:
        """The manifest in force."""
        manifest = read_json(self.manifest)
        if manifest.get("format") != FORMAT:
            raise UserError(f"{self.manifest} is no checkpoint manifest of format {FORMAT}")
        if manifest.pop("check", None) != _check(manifest):
            raise UserError(f"the checkpoint is damaged: {self.manifest} fails its checksum")
        return manifest

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
        totals = {total: manifest["totals"][total] for total in _TOTALS}
        progress = Progress(manifest["round"], model, smoothed=smoothed, best=best, **totals)
        store = ClientStates(self.world.state_limit, self.folder)
        if self.rows.used:
            if manifest["clients"] != self.rows.layout():
                raise UserError(f"the client states in {self.folder} are not those of this method and model")
            for client, state in self.rows.load(progress.round, manifest["stamps"]):
                store.put(client, moved(state, self.world.device))
            store.touched.clear()
        return progress, store

    def reopen(self) -> tuple[Progress, ClientStates]:
        """Load to go on from here: what was written after the checkpoint is forgotten."""
        progress, store = self.load()
        if self.rows.used:
            self.rows.forget_after(progress.round)
        self.committed = progress.round
        self._remove_others(self.read()["server"])
        return progress, store

    def _scenario(self) -> dict[str, Any]:
        """The settings on which the numbers depend."""
        settings = self.world.scenario.as_dict()
        return {name: value for name, value in settings.items() if name not in _FREE}

    def _check_scenario(self, written: Any) -> None:
        now = self._scenario()
        for name in sorted(now.keys() | written.keys()):
            if now.get(name) != written.get(name):
                raise UserError(
                    f"{name} is {now.get(name)}, but {self.folder.parent} was run with {written.get(name)}; "
                    "start a new run to change it"
                )

    def _models(self, path: Path, checksum: str) -> tuple[Model, Model | None]:
        try:
            content = path.read_bytes()
        except OSError as fault:
            raise UserError(f"the checkpoint is damaged: {path} cannot be read ({fault.strerror})") from None
        if hashlib.sha256(content).hexdigest() != checksum:
            raise UserError(f"the checkpoint is damaged: {path} ({len(content)} bytes) fails its checksum")
        try:
            tensors = safetensors.torch.load(content)
        except SafetensorError as fault:
            raise UserError(f"the checkpoint is damaged: {path}: {fault}") from None
        template = _tree(begin(self.world))
        expected = named_leaves(template)
        if {path: leaf.shape for path, leaf in expected.items()} != {
            path: leaf.shape for path, leaf in tensors.items()
        }:
            raise UserError(f"{path} does not fit this method and model: other tensors or shapes")
        filled = moved(laid_out(refill(template, [tensors[name] for name in expected]), template), self.world.device)
        best = Model(filled["best"]["model"], filled["best"]["buffers"], {}) if "best" in filled else None
        return Model(filled["model"], filled["buffers"], filled["server"]), best
