"""Kills: a process dies at one of its calls that change the disk; what it goes on with ends as if it had not died."""

from __future__ import annotations

import builtins
import io
import json
import os
import random
import shutil
import signal
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import safetensors.torch
import torch

import headway
from fuzzing.attempts import Attempt, Finding
from headway.errors import UserError
from headway.runs import records
from headway.runs.observer import Unwatched
from killed_runs import CONTEXT, Case

LITTLE: dict[str, Any] = {"model": "linear", "clients": 6, "participation": 0.5, "steps": 1, "device": "cpu"}
QUICK: dict[str, Any] = {
    **LITTLE,
    "executor": "serial",
    "eval_samples": 20,
    "deterministic": True,
    "checkpoint_every": 1,
}


class Job(Protocol):
    """Something that keeps its state in a folder and can be begun again there."""

    def begin(self, folder: Path) -> object: ...
    def go_on(self, folder: Path) -> object: ...


@dataclass(frozen=True)
class OneRun:
    method: str
    executor: str
    deterministic: bool
    network: str = "norm_free"
    every: int | None = 1
    more: tuple[tuple[str, Any], ...] = ()
    """Further settings."""

    @property
    def case(self) -> Case:
        settings = {"executor": self.executor, "deterministic": self.deterministic, "checkpoint_every": self.every}
        return Case(self.method, self.network, {"rounds": 3, **settings, **dict(self.more)})

    def begin(self, folder: Path) -> object:
        return self.case.simulate(folder)

    def go_on(self, folder: Path) -> object:
        return self.case.resume(folder)


@dataclass(frozen=True)
class Comparison:
    methods: tuple[str, ...] = ("fedavg", "scaffold")

    def begin(self, folder: Path) -> object:
        return headway.compare(self.methods, out=folder, rounds=2, seeds=2, **QUICK)

    def go_on(self, folder: Path) -> object:
        from headway.runs.study import resume_study  # here: every life imports what it needs only

        return resume_study(folder)


@dataclass(frozen=True)
class Sweeping:
    budget: int | None = None

    def begin(self, folder: Path) -> object:
        return headway.sweep("fedavg", {"rate": [0.1, 0.2, 0.4]}, out=folder, budget=self.budget, rounds=2, **QUICK)

    def go_on(self, folder: Path) -> object:
        return self.begin(folder)


@dataclass(frozen=True)
class Reproduction:
    """A small item on the embedded data: one column, two methods."""

    methods: tuple[str, ...] = ("fedavg", "fedacg")

    def begin(self, folder: Path) -> object:
        from headway.papers.plan import plan
        from headway.papers.preset import Column, Preset, Row, Spelling
        from headway.papers.reproduce import reproduce

        settings = {**QUICK, "rounds": 2}
        del settings["participation"], settings["clients"]
        column = Column("fashion/dir0.3/6x50%", ("accuracy@2",), settings=settings)
        about = {"paper": "paper", "name": "item", "kind": "table", "title": "a table", "source": "somebody"}
        item = Preset(
            **about,
            profile="paper",
            seeds=1,
            rows=tuple(Row(name) for name in self.methods),
            columns=(column,),
            methods={name: {"": Spelling(name)} for name in self.methods},
        )
        return reproduce(plan(item), folder, Unwatched())

    def go_on(self, folder: Path) -> object:
        return self.begin(folder)


JOBS: tuple[Job, ...] = (
    OneRun("fedavg", "serial", True),
    OneRun("fedacg", "serial", True),
    OneRun("scaffold", "serial", True),
    OneRun("gradma-s", "serial", True),
    OneRun("mifa", "serial", True),
    OneRun("scaffold", "serial", True, "batch_norm_dropout"),
    OneRun("scaffold", "serial", True, every=2),
    OneRun("mifa", "serial", False),
    OneRun("fedacg", "serial", False, every=None),
    OneRun("scaffold", "batched", True),
    OneRun("mifa", "batched", False),
    OneRun("gradma-s", "batched", True),
    OneRun("scaffold", "pool", True),
    OneRun("fedacg", "pool", False),
    OneRun("fedavg+adamw:state=keep", "serial", True),
    OneRun("scaffold+lesam", "batched", True, every=2),
    OneRun("fedavg+muon:state=average", "serial", True, more=(("keep_best", True), ("client_test", 0.3))),
    OneRun("fedacg+sgd:state=keep", "serial", True, every=2, more=(("keep_best", True), ("patience", 2))),
    OneRun("fedavg+adam:state=keep", "serial", False, every=None, more=(("schedule", "cosine:warmup=1,over=steps"),)),
    Comparison(),
    Sweeping(),
    Sweeping(budget=6),
    Reproduction(),
)


class Deaths:
    """Counts calls that change what is below a folder, and dies at one of them: before, within or after it."""

    def __init__(self, folder: Path, at: int | None, how: str) -> None:
        self.folder, self.at, self.how = os.fspath(folder), at, how
        self.calls: list[str] = []

    def passes(self, call: str, real: Callable[[], Any], half: Callable[[], Any] | None = None) -> Any:
        dies = len(self.calls) == self.at
        self.calls.append(call)
        if dies and self.how == "within" and half is not None:
            half()
        if dies and self.how != "after":
            os.kill(os.getpid(), signal.SIGKILL)
        result = real()
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    def ours(self, place: Any) -> bool:
        return isinstance(place, str | os.PathLike) and os.path.abspath(os.fspath(place)).startswith(self.folder)

    def install(self) -> None:
        for name in ("replace", "rename", "unlink", "mkdir", "rmdir", "truncate"):
            setattr(os, name, self._of_a_path(name, getattr(os, name)))
        for name in ("fsync", "ftruncate"):
            setattr(os, name, self._of_a_handle(name, getattr(os, name)))
        pwrite, opened, append = os.pwrite, io.open, records.append

        def watched_pwrite(handle: int, content: bytes, offset: int) -> Any:
            def half() -> object:
                return pwrite(handle, content[: len(content) // 2], offset)

            return self.passes("pwrite", lambda: pwrite(handle, content, offset), half)

        def watched_open(file: Any, mode: str = "r", *given: Any, **named: Any) -> Any:
            if set(mode) & set("wax+") and self.ours(file):
                return self.passes(f"open {Path(file).name}", lambda: opened(file, mode, *given, **named))
            return opened(file, mode, *given, **named)

        def watched_append(file: Any, *given: Any) -> Any:
            def half() -> None:
                line = io.BytesIO()
                append(line, *given)
                file.write(line.getvalue()[: len(line.getvalue()) // 2])
                file.flush()

            return self.passes("append", lambda: append(file, *given), half)

        os.pwrite = watched_pwrite
        io.open = builtins.open = watched_open  # type: ignore[assignment]
        records.append = watched_append

    def _of_a_path(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def watched(place: Any, *given: Any, **named: Any) -> Any:
            if not self.ours(place):
                return real(place, *given, **named)
            told = Path(given[0] if name in ("replace", "rename") else place)
            call = f"{name} {told.parent.name}/{told.name}"
            return self.passes(call, lambda: real(place, *given, **named))

        return watched

    def _of_a_handle(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda handle, *given: self.passes(name, lambda: real(handle, *given))


def _live(job: Job, folder: Path, at: int | None, how: str, connection: Connection) -> None:
    """One life: to its end, or to its death."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    os.environ["XDG_CACHE_HOME"] = str(folder.parent / "cache")
    deaths = Deaths(folder, at, how)
    begun = any(folder.rglob("scenario.toml"))
    deaths.install()
    job.go_on(folder) if begun else job.begin(folder)
    connection.send(deaths.calls)


def lived(job: Job, folder: Path, at: int | None = None, how: str = "before") -> list[str] | None:
    """The calls of a life that reached its end; None of one that was killed."""
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=_live, args=(job, folder, at, how, theirs))
    process.start()
    theirs.close()
    try:
        calls: list[str] | None = ours.recv()
    except EOFError:
        calls = None
    process.join()
    code, _ = process.exitcode, process.close()
    ours.close()
    if calls is None and code != -signal.SIGKILL:
        raise Finding(f"the life ended with exit code {code}, neither killed nor at its end")
    return calls


def left(folder: Path, clocked: bool = False) -> dict[str, Any]:
    """What lies below a folder and does not depend on the clock: rounds, every tensor kept, tables, names of files.

    Where the clock says which rounds have a checkpoint, a client's state may lie in either of its two places.
    """
    found: dict[str, Any] = {"files": sorted(str(file.relative_to(folder)) for file in folder.rglob("*"))}
    for file in sorted(folder.rglob("*")):
        name = str(file.relative_to(folder))
        if file.name == "rounds.jsonl":
            found[name] = [_timeless(json.loads(line)) for line in file.read_bytes().splitlines()]
        elif file.suffix == ".safetensors":
            found[name] = {key: value.numpy().tobytes() for key, value in safetensors.torch.load_file(file).items()}
        elif file.name == "clients.rows":
            found[name] = _newest_rows(file.read_bytes()) if clocked else file.read_bytes()
        elif file.name in ("summary.json", "sweep.json") or name.endswith("best/manifest.json"):
            found[name] = _timeless(json.loads(file.read_bytes()))
    return found


def _newest_rows(content: bytes) -> list[bytes]:
    """The newest of the two rows of each client."""
    population = LITTLE["clients"]
    head = population * 2 * 16
    rounds = np.frombuffer(content[:head], "<i8").reshape(population, 2, 2)[:, :, 0]
    rows = np.frombuffer(content[head:], np.uint8).reshape(population, 2, -1)
    return [row[np.argmax(round)].tobytes() for row, round in zip(rows, rounds, strict=True)]


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        clock = ("chain", "check", "environment")
        kept = {name: part for name, part in value.items() if "seconds" not in name and name not in clock}
        return {name: _timeless(part) for name, part in kept.items()}
    return [_timeless(part) for part in value] if isinstance(value, list) else value


def _clocked(job: Job) -> bool:
    return isinstance(job, OneRun) and job.every is None and not job.deterministic


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


class Kills:
    """A job is killed one to three times, each time at a call drawn at random, and goes on to its end."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.known: dict[Job, tuple[list[str], dict[str, Any]]] = {}

    def undisturbed(self, job: Job) -> tuple[list[str], dict[str, Any]]:
        if job not in self.known:
            folder = _emptied(self.place / "job") / "run"  # the same path: it stands in tables
            calls = lived(job, folder)
            assert calls
            self.known[job] = calls, left(folder, _clocked(job))
        return self.known[job]

    def attempt(self, draw: random.Random) -> Attempt:
        job = draw.choice(JOBS)
        deaths = [(draw.random(), draw.choice(("before", "within", "after"))) for _ in range(draw.choice((1, 1, 2, 3)))]
        return Attempt(f"{job}, killed at {deaths}", lambda: self.play(job, deaths))

    def play(self, job: Job, deaths: list[tuple[float, str]]) -> str:
        calls, expected = self.undisturbed(job)
        folder, kills = _emptied(self.place / "job") / "run", 0
        for share, how in deaths:
            at = int(share * len(calls))
            kills += lived(job, folder, at, how) is None
            while not kills:  # how often is saved may depend on the clock
                at //= 2
                kills += lived(job, _emptied(folder.parent) / "run", at, how) is None
            self.kept(job, calls[:at], kills, folder)
        lived(job, folder)
        found = left(folder, _clocked(job))
        if found != expected:
            differ = [name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)]
            raise Finding(f"after {kills} kills, the last at call {at} ({calls[at]}), other ends: {differ[:5]}")
        return f"went on after {kills} kill{'s' if kills > 1 else ''}"

    def kept(self, job: Job, calls: list[str], kills: int, folder: Path) -> None:
        """After a first kill of a run that saves each round, no round is lost whose checkpoint was there."""
        if not isinstance(job, OneRun) or job.every != 1 or kills != 1:
            return
        saved = sum(call == "replace checkpoint/manifest.json" for call in calls)
        try:
            rounds = len(job.case.load(folder).records)
        except UserError:
            rounds = -1  # no checkpoint yet
        if rounds < saved - 1:
            raise Finding(f"{saved - 1} rounds were saved and {rounds} are there")
