"""A run in a separate process, which dies by SIGKILL at a chosen moment: before, within or after a call that changes
the disk. Nothing is cleaned up in it, so what lies in the run folder afterwards is what a real kill leaves.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor, nn

import headway
from conftest import NETWORKS, SMALL, unequal_clients
from headway.engine.building import build
from headway.engine.experiment import Experiment
from headway.methods.slots import Client, End, Message, State, Step
from headway.random import built
from headway.runs import records
from headway.scenario import Scenario
from headway.vectors import Vector

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["headway.runs.series", "pytest", "torch._dynamo"])  # a child is a fork of these

SHORT = SMALL.changed(rounds=12, checkpoint_every=3, deterministic=True)


def channels_last() -> nn.Module:
    """Convolutions whose weights are laid out in memory with the channels last, as many do for speed."""
    convolutions = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 8, 3, padding=1), nn.ReLU())
    images = nn.Sequential(nn.Linear(6, 3 * 8 * 8), nn.Unflatten(1, (3, 8, 8)))
    module = nn.Sequential(images, convolutions, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 3))
    return module.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


BUILDERS = {**NETWORKS, "channels_last": channels_last}


def _transposed_in_memory(leaf: Tensor) -> Tensor:
    return leaf.transpose(0, -1).contiguous().transpose(0, -1) if leaf.dim() > 1 else leaf


@dataclass(frozen=True)
class control:
    """g − s·c_i/(1 + ‖c_i‖) with c_i ← c_i − s(c_i + Δ_i/Ση): a throw-away rule with state that clients keep.

    c_i is handed back in a memory format that it did not have: the order in which ‖c_i‖ is summed depends on it.
    """

    share: float = 0.5

    def client_state(self, model: Vector) -> State:
        return {"control": model.zeros(), "turns": torch.zeros((), dtype=torch.int64)}

    def begin(self, received: Message, kept: State, client: Client) -> State:
        return {"control": kept["control"]}

    def direction(self, w: Vector, gradient: Vector, memory: State, step: Step) -> tuple[Vector, State]:
        control = memory["control"]
        return gradient - self.share * control / (1 + control.norm()), memory

    def finish(self, end: End, memory: State, kept: State) -> tuple[dict[str, Vector], State]:
        towards = kept["control"] + end.delta / end.rate_sum
        control = (kept["control"] - self.share * towards).map(_transposed_in_memory)
        return {}, {"control": control, "turns": kept["turns"] + 1}


@dataclass(frozen=True)
class lingering:
    """SGD whose clients, in one round, say in a folder that they are busy and stay so until told to go on."""

    folder: Path
    round: int

    def direction(self, w: Vector, gradient: Vector, memory: State, step: Step) -> tuple[Vector, State]:
        if int(step.round) == self.round:
            (self.folder / "busy").touch()
            wait_for(self.folder / "go")
        return gradient, memory


def wait_for(path: Path) -> None:
    """Return when the file is there; give up when it never comes, so that nothing is left hanging."""
    for _ in range(6000):
        if path.exists():
            return
        time.sleep(0.01)
    raise FileNotFoundError(path)


@dataclass(frozen=True)
class Case:
    """What is run: a method, a network, settings. Model and data are the user's own."""

    method: str | headway.Method = "fedacg"
    network: str = "norm_free"
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def scenario(self) -> Scenario:
        return SHORT.changed(**self.settings)

    def with_settings(self, **settings: Any) -> Case:
        return Case(self.method, self.network, {**self.settings, **settings})

    def given(self) -> dict[str, Any]:
        """The user's own model and data."""
        return {"model": built(BUILDERS[self.network], 7, "test"), **unequal_clients()}

    def again(self) -> dict[str, Any]:
        """What `resume` and `load_run` must be given again."""
        return self.given() if isinstance(self.method, str) else {"method": self.method, **self.given()}

    def experiment(self) -> Experiment:
        chosen = headway.method(self.method)
        return build(self.scenario.changed(method=chosen.name), chosen, **self.given())

    def simulate(self, folder: Path) -> headway.Result:
        return headway.simulate(self.method, self.scenario, out=folder, **self.given())

    def resume(self, folder: Path) -> headway.Result:
        return headway.resume(folder, **self.again())

    def load(self, folder: Path) -> headway.Result:
        return headway.load_run(folder, **self.again())


@dataclass(frozen=True)
class Moment:
    """A place in a run's life, such as `round 3: replace manifest.json`, and what happens there."""

    label: str
    how: str = "before"
    """`before`, `within` (half of the bytes are written) or `after` the call, to die; `wait`, to be held up."""


class Watch:
    """Stands before every call that changes the disk. The label of a call is the same in every life of the run."""

    def __init__(self, folder: Path, at: Moment | None, begins: str, connection: Connection) -> None:
        self.folder, self.at, self.stage, self.connection = folder, at, begins, connection
        self.seen: Counter[str] = Counter()
        self.trace: list[str] = []

    def name(self, handle: int) -> str | None:
        """Which file or folder of the run a handle is of; the run folder itself is `run`."""
        places = {self.folder: "run"} | {place: place.name for place in self.folder.rglob("*")}
        found = (name for place, name in places.items() if os.path.samestat(place.stat(), os.fstat(handle)))
        return next(found, None)

    def passes(self, call: str, real: Callable[[], Any], half: Callable[[], Any] | None = None) -> Any:
        place = f"{self.stage}: {call}"
        self.seen[place] += 1
        label = place if self.seen[place] == 1 else f"{place} {self.seen[place]}"
        self.trace.append(label)
        how = self.at.how if self.at is not None and self.at.label == label else None
        if how == "wait":
            self.connection.send("waiting")
            self.connection.recv()
        if how == "within":
            assert half is not None, f"{label} cannot be done by halves"
            half()
        if how in ("before", "within"):
            os.kill(os.getpid(), signal.SIGKILL)
        result = real()
        if how == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    def install(self) -> None:
        fsync, replace, pwrite, unlink, append = os.fsync, os.replace, os.pwrite, os.unlink, records.append

        def watched_pwrite(handle: int, content: bytes, offset: int) -> int:
            if self.name(handle) is None:  # a file outside the run, which dies with the process
                return pwrite(handle, content, offset)

            def half() -> None:
                pwrite(handle, content[: len(content) // 2], offset)

            call = "pwrite row" if offset else "pwrite stamps"
            written: int = self.passes(call, lambda: pwrite(handle, content, offset), half)
            return written

        def watched_append(file: IO[bytes], record: dict[str, Any]) -> None:
            def half() -> None:
                line = json.dumps(record).encode()
                file.write(line[: len(line) // 2])
                file.flush()

            self.stage = f"round {record['round']}"
            self.passes("append", lambda: append(file, record), half)

        os.fsync = lambda handle: self.passes(f"fsync {self.name(handle)}", lambda: fsync(handle))
        os.replace = lambda old, new: self.passes(f"replace {Path(new).name}", lambda: replace(old, new))
        os.unlink = lambda path: self.passes(f"unlink {Path(path).name}", lambda: unlink(path))
        os.pwrite = watched_pwrite
        records.append = watched_append


def _live(case: Case, folder: Path, at: Moment | None, connection: Connection) -> None:
    """One life of a run: from its folder's checkpoint, or from nothing, to its end or to the moment."""
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    started = (folder / "scenario.toml").is_file()
    watch = Watch(folder, at, "resume" if started else "start", connection)
    watch.install()
    (case.resume if started else case.simulate)(folder)
    connection.send(watch.trace)


class Life:
    """A process that starts or resumes the run in a folder."""

    def __init__(self, case: Case, folder: Path, at: Moment | None = None) -> None:
        self.connection, theirs = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=_live, args=(case, folder, at, theirs))
        self.process.start()
        theirs.close()

    def ends(self) -> int:
        """Its exit code; what it said before its end is in `trace`."""
        self.process.join()
        try:
            self.trace: list[str] = self.connection.recv() if self.connection.poll() else []
        except EOFError:
            self.trace = []
        self.connection.close()
        code = self.process.exitcode
        self.process.close()
        assert code is not None
        return code


def lived(case: Case, folder: Path) -> list[str]:
    """Every labelled call of a life that reached its end."""
    life = Life(case, folder)
    assert life.ends() == 0
    return life.trace


def killed(case: Case, folder: Path, *moments: Moment) -> None:
    """One life after another in the same folder, each killed at its moment."""
    for moment in moments:
        assert Life(case, folder, moment).ends() == -signal.SIGKILL, f"was not killed {moment.how} {moment.label}"
