"""How many runs are trained at the same time, and where: what `--jobs` and `--devices` mean on this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from headway.engine.building import device_of
from headway.engine.pool import cores
from headway.engine.process_group import started_with
from headway.errors import UserError, shown
from headway.runs.files import ensure_folder, read_checked, write_checked

NAME = "jobs.json"
"""The file of a folder of several runs that says with how many threads each of them is trained."""
MOST = 1024
_ALLOWED = "give cpu, cuda:0, a range such as cuda:0-7, or several with commas"
_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Lane:
    """A place where a worker process trains one run after another."""

    number: int
    device: str | None
    """The kind of device for its runs; None for that of their scenario."""
    visible: str | None = None
    """The only GPU that its process sees, as CUDA_VISIBLE_DEVICES has it; None for all that this one sees."""


@dataclass(frozen=True)
class Jobs:
    """What was asked for: how many runs at the same time (None: `auto`), and on which devices."""

    count: int | None
    devices: tuple[str, ...] = ()
    """Devices by name, in order; empty for that of the scenario."""
    threads: int = 1
    """Of each run. It does not follow from the number of jobs: sums of a product depend on it."""

    @property
    def kind(self) -> str | None:
        """The kind of the devices; None where none were given."""
        return self.devices[0].partition(":")[0] if self.devices else None

    def lanes(self, runs: int, device: str) -> list[Lane]:
        """The lanes for this many runs whose scenario names a device."""
        chosen = self.devices or self._of_scenario(device)
        on_gpu = chosen[0].startswith("cuda")
        count = self.count or (len(chosen) if on_gpu else cores())
        count = max(min(count, runs), 1)
        return [self._lane(number, chosen[number % len(chosen)]) for number in range(count)]

    def _of_scenario(self, device: str) -> tuple[str, ...]:
        """The devices for a scenario's: `auto` is every GPU where how many jobs there are is left to us, too."""
        found = device_of(device)
        several = device == "auto" and self.count is None and found.type == "cuda"
        return tuple(f"cuda:{number}" for number in range(torch.cuda.device_count())) if several else (str(found),)

    def _lane(self, number: int, device: str) -> Lane:
        kind, _, place = device.partition(":")
        named = self.devices or (self.count is None and place)
        if kind != "cuda" or not named:
            return Lane(number, self.kind)
        return Lane(number, "cuda", _visible(int(place or 0)))


def _visible(number: int) -> str:
    """The name of the GPU that this process knows by a number, for an environment in which it is the only one."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = [name.strip() for name in given.split(",") if name.strip()]
    return names[number] if names else str(number)


def environment(lane: Lane, threads: int) -> dict[str, str]:
    """That of a new process in a lane: this one's, without what a launcher of ranks has set."""
    kept = {name: value for name, value in os.environ.items() if name not in _RANKS}
    seen = {} if lane.visible is None else {"CUDA_VISIBLE_DEVICES": lane.visible}
    return {**kept, "OMP_NUM_THREADS": str(threads), **seen}


def jobs_of(jobs: object = None, devices: object = None) -> Jobs | None:
    """The jobs of these arguments, as they were given; None where runs are made one after another in this process.

    >>> jobs_of("2", "cuda:0-1").devices
    ('cuda:0', 'cuda:1')
    """
    if jobs is None and devices is None:
        return None
    if started_with() > 1:
        raise UserError(
            f"jobs is {shown(jobs)}, but this process is one of {started_with()} ranks, which train one run together; "
            "leave jobs out, or start the program alone"
        )
    if os.name != "posix":
        raise UserError(f"jobs is {shown(jobs)}, which needs Linux or macOS; leave jobs and devices out")
    places = () if devices is None else _devices(devices)
    count = None if jobs is None else _count(jobs)
    if count is not None and count < len(places):
        raise UserError(
            f"jobs is {count}, but there are {len(places)} devices, of which some would have nothing to do; give at "
            f"least {len(places)} jobs, or fewer devices"
        )
    return Jobs(count, places, _threads())


def _count(jobs: object) -> int | None:
    """How many; None for `auto`."""
    if jobs == "auto":
        return None
    number = int(jobs) if isinstance(jobs, str) and jobs.isascii() and jobs.isdecimal() else jobs
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MOST:
        raise UserError(f"jobs is {shown(jobs)}; it must be auto or a whole number from 1 to {MOST}")
    return number


def _devices(given: object) -> tuple[str, ...]:
    """`cuda:0-2` as cuda:0, cuda:1, cuda:2; each must be there."""
    words = given.split(",") if isinstance(given, str) else given
    if not isinstance(words, Sequence) or not words or not all(isinstance(word, str) for word in words):
        raise UserError(f"devices is {shown(given)}; {_ALLOWED}")
    found = [name for word in words for name in _named(word.strip(), given)]
    twice = next((name for name in found if found.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"devices is {shown(given)}, with {twice} twice; name it once and give more jobs, such as 2")
    if len({name.partition(":")[0] for name in found}) > 1:
        raise UserError(f"devices is {shown(given)}; runs that are compared are computed on one kind of device")
    for name in found:
        device_of(name)
    return tuple(found)


def _named(word: str, given: object) -> list[str]:
    if word == "cpu":
        return ["cpu"]
    found = re.fullmatch(r"cuda:(\d{1,4})(?:-(\d{1,4}))?", word, re.ASCII)
    if found is None or int(found[2] or found[1]) < int(found[1]):
        raise UserError(f"devices is {shown(given)}; {_ALLOWED}")
    return [f"cuda:{number}" for number in range(int(found[1]), int(found[2] or found[1]) + 1)]


def _threads() -> int:
    """The threads of each run: one, or what the environment says."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return max(int(first), 1) if first.isascii() and first.isdecimal() else 1


def continued(folder: Path, given: Jobs | None) -> Jobs | None:
    """The jobs for a folder of several runs: what it was begun with decides on threads.

    A folder that was begun with jobs goes on so: one after another where none are given, each with as many threads.
    """
    if not (folder / NAME).is_file():
        return given
    threads = read_checked(folder / NAME).get("threads")
    if type(threads) is not int or threads < 1:
        raise UserError(f"{folder / NAME} is damaged: it does not have a number of threads")
    return Jobs(1, (), threads) if given is None else Jobs(given.count, given.devices, threads)


def keep_threads(folder: Path, jobs: Jobs | None) -> None:
    """Write down with how many threads each run is trained, before the first begins."""
    if jobs is not None and not (folder / NAME).is_file():
        write_checked(ensure_folder(folder) / NAME, {"threads": jobs.threads})
