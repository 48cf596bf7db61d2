"""A checkpoint: the server's tensors in safetensors, client rows, and a manifest that makes them count.

The manifest is written last. Until then the one before is in force, with the files it names still there. Nothing in a
checkpoint depends on the clock but, unless told or deterministic, which rounds have one: so equal runs that save after
the same rounds have equal bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from headway.engine.experiment import Experiment
from headway.engine.server import GlobalState
from headway.engine.simulation import Progress, begin
from headway.engine.states import ClientStates
from headway.errors import DamagedRun, UserError
from headway.measure.curves import Smoothed
from headway.methods.renamed import current_name, with_current_names
from headway.runs.client_rows import ClientRows, verify_rows
from headway.runs.files import CHECK, checksum, read_json, read_plain, sync_folder, write_atomically, write_checked
from headway.scenario import EXECUTORS, FREE, Scenario
from headway.trees import laid_out, moved, named_leaves, refill

FORMAT = 2
"""Of the manifest. Format 1 did not have `rounds`, `ends`, `split` and `threads`."""
_ENDS = ("rounds", "target", "stop_at_target", "seeds")
"""Settings that say when a run ends and what it is judged by."""
_FREE = FREE - {"deterministic"} | {*_ENDS, "on_failure"}
"""Settings that may change between a run and its resume: when it ends too, but not that its bits can be repeated."""
_TOTALS = ("bytes_down", "bytes_up", "steps", "best_loss")


def _tree(progress: Progress) -> dict[str, Any]:
    model, best = progress.model, progress.best
    tree = {"model": model.theta, "buffers": model.buffers, "server": model.server}
    return tree if best is None else {**tree, "best": {"model": best.theta, "buffers": best.buffers}}


def _count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _holds(**parts: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Whether a value is an object with these parts and no others."""

    def fits(value: Any) -> bool:
        known = isinstance(value, dict) and value.keys() == parts.keys()
        return known and all(part(value[name]) for name, part in parts.items())

    return fits


def _leaf(value: Any) -> bool:
    """Name, type and shape of a tensor in a client's row."""
    if not isinstance(value, list) or len(value) != 3 or not isinstance(value[2], list):
        return False
    name, kind, shape = value
    return _text(name) and isinstance(getattr(torch, str(kind), None), torch.dtype) and all(map(_count, shape))


_SHAPE: dict[str, Callable[[Any], bool]] = {
    "round": _count,
    "scenario": lambda value: isinstance(value, dict),
    "server": lambda value: _text(value) and re.fullmatch(r"server-\d+\.safetensors", value) is not None,
    "sha256": _text,
    "executor": lambda value: value in EXECUTORS,
    "totals": _holds(
        bytes_down=_count, bytes_up=_count, steps=_count, best_loss=lambda value: value is None or _number(value)
    ),
    "smoothed": _holds(sum=_number, weight=_number),
    "clients": lambda value: isinstance(value, list) and all(map(_leaf, value)),
    "stamps": _text,
}
_SHAPE_2: dict[str, Callable[[Any], bool]] = {
    "rounds": _text,
    "ends": lambda value: isinstance(value, dict),
    "split": _text,
    "fingerprints": lambda value: not value or (isinstance(value, dict) and isinstance(value.get("now"), dict)),
    "threads": lambda value: value is None or (_count(value) and value > 0),
}


def read_manifest(path: Path) -> dict[str, Any]:
    """A manifest, checked; of format 1, with None for what it did not have."""
    manifest = read_json(path)
    if manifest.get("format") not in (1, FORMAT):
        raise UserError(f"{path} is no checkpoint manifest of format {FORMAT}")
    if manifest.pop(CHECK, None) != checksum(manifest):
        raise DamagedRun(f"the checkpoint is damaged: {path} fails its checksum")
    for name, fits in (_SHAPE | (_SHAPE_2 if manifest["format"] == FORMAT else {})).items():
        if not fits(manifest.get(name)):
            raise DamagedRun(f"the checkpoint is damaged: {path} does not tell its '{name}'")
    return dict.fromkeys(_SHAPE_2) | manifest


def other_setting(written: Mapping[str, Any], scenario: Scenario) -> tuple[str, Any, Any] | None:
    """The first setting on which the numbers depend that is not what a checkpoint has: name, what it is, what it was.

    A setting that the checkpoint does not have came later: its default is what was done before.
    """
    now, plain = numeric(scenario), Scenario().as_dict()
    for name in sorted(now.keys() | written.keys()):
        was = written.get(name, plain.get(name))
        if now.get(name) != was:
            return name, now.get(name), was
    return None


def numeric(scenario: Scenario) -> dict[str, Any]:
    """The settings on which the numbers depend."""
    return {name: value for name, value in scenario.as_dict().items() if name not in _FREE}


def ends(scenario: Scenario) -> dict[str, Any]:
    """The settings that say when a run ends."""
    return {name: getattr(scenario, name) for name in _ENDS}


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

    def __init__(self, folder: Path, experiment: Experiment) -> None:
        self.folder, self.experiment = folder, experiment
        self.manifest = folder / "manifest.json"
        self.rows = ClientRows(folder / "clients.rows", experiment.initial_client_state, experiment.population)
        self.committed: int | None = None
        self.fingerprints: dict[str, Any] = {}
        """Of data, own model and own method, as `fingerprints.settle` has them."""
        self.threads: int | None = None
        """How many threads torch has, where the bits are to be repeated."""
        self.split = ""
        """A digest of split.npz."""

    def exists(self) -> bool:
        return self.manifest.is_file()

    def save(self, progress: Progress, store: ClientStates, executor: str, rounds: str = "") -> None:
        """Write the state after a round; `rounds` is the checksum of the numbers in rounds.jsonl up to it."""
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
        write_checked(
            self.manifest,
            {
                "format": FORMAT,
                "round": progress.round,
                "scenario": numeric(self.experiment.scenario),
                "ends": ends(self.experiment.scenario),
                "fingerprints": self.fingerprints,
                "server": name,
                "sha256": hashlib.sha256(content).hexdigest(),
                "rounds": rounds,
                "split": self.split,
                "threads": self.threads,
                "executor": executor,
                "totals": {total: getattr(progress, total) for total in _TOTALS},
                "smoothed": dataclasses.asdict(progress.smoothed),
                "clients": self.rows.layout() if self.rows.used else [],
                "stamps": self.rows.digest(progress.round) if self.rows.used else "",
            },
        )
        self.committed = progress.round
        store.touched.clear()
        self._remove_others(name)

    def read(self) -> dict[str, Any]:
        """The manifest in force, with the current names of slots."""
        manifest, parts = read_manifest(self.manifest), self._parts
        manifest["clients"] = [[current_name(name, parts), *form] for name, *form in manifest["clients"]]
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
        totals = {total: manifest["totals"][total] for total in _TOTALS}
        progress = Progress(manifest["round"], model, smoothed=smoothed, best=best, **totals)
        store = ClientStates(self.experiment.state_limit, self.folder)
        if self.rows.used:
            if manifest["clients"] != self.rows.layout():
                raise UserError(f"the client states in {self.folder} are not those of this method and model")
            for client, state in self.rows.load(progress.round, manifest["stamps"]):
                store.put(client, moved(state, self.experiment.device))
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

    def _check_scenario(self, written: dict[str, Any]) -> None:
        other = other_setting(written, self.experiment.scenario)
        if other is not None:
            name, now, was = other
            raise UserError(
                f"{name} is {now}, but {self.folder.parent} was run with {was}; start a new run to change it"
            )

    def _models(self, path: Path, digest: str) -> tuple[GlobalState, GlobalState | None]:
        tensors = with_current_names(read_tensors(path, digest), self._parts)
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
