"""The processes of workers: how they are started, and how they end.

Runs that a name and settings say in full are trained by new processes, which get them as text. A user's own model, data
or method cannot be told so; with these a worker is a fork of this process, on a CPU and with one thread.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch

from headway.engine.pool import SHUTDOWN_SECONDS
from headway.engine.shared_memory import START_METHOD
from headway.errors import UserError
from headway.runs.lanes.jobs import Jobs, Lane, environment
from headway.runs.lanes.messages import Link, Request, tracked
from headway.runs.lanes.worker import serve
from headway.runs.planned import Beside, PlannedRun

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from headway.runs.lanes.worker import main; main(int(sys.argv[2]))"
)


@dataclass(eq=False)
class Worker:
    """A worker of a lane, as this process sees it."""

    lane: Lane
    link: Link
    process: int
    """Its number for the system."""
    code: Callable[[], int | None]
    """Its exit code, negative for the signal that ended it; None while it lives."""
    is_ready: bool = False
    is_stopping: bool = False
    """Whether it was asked to end its run."""

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, number)

    @property
    def end(self) -> str:
        """How it ended."""
        late = time.monotonic() + SHUTDOWN_SECONDS
        while (code := self.code()) is None and time.monotonic() < late:
            time.sleep(0.01)
        if code is None or code >= 0:
            return f"ended with code {code}"
        memory = ", as the system does where memory runs out" if code == -signal.SIGKILL else ""
        return f"was killed by {signal.Signals(-code).name}{memory}"


Start = Callable[[Lane, Sequence[Worker]], Worker]
"""Starts a worker in a lane; the second argument are those that live already."""


def own_objects(planned: Mapping[str, PlannedRun], beside: Beside) -> list[str]:
    """What of these runs cannot be told as text."""
    return sorted(beside.own) + sorted({run.name for run in planned.values() if not run.is_named})


def starter(planned: Mapping[str, PlannedRun], beside: Beside, jobs: Jobs) -> Start:
    """How workers for these runs are started."""
    own = own_objects(planned, beside)
    if not own:
        return lambda lane, others: _new(lane, beside, jobs)
    _check_can_fork(own[0], jobs, [run.scenario.device for run in planned.values()])
    return lambda lane, others: _fork(lane, planned, beside, others)


def _check_can_fork(own: str, jobs: Jobs, devices: Sequence[str]) -> None:
    """Refuse own objects where no fork of this process can have them."""
    why = ""
    if START_METHOD != "fork":
        why = "on this system"
    elif jobs.threads != 1:
        why = f"with {jobs.threads} threads (OMP_NUM_THREADS)"
    elif jobs.kind == "cuda" or (jobs.kind is None and torch.cuda.is_available() and set(devices) != {"cpu"}):
        why = "on a GPU"
    if why:
        raise UserError(
            f"jobs is given with objects of your own ({own}), which {why} cannot be handed to other processes; leave "
            "jobs and devices out"
        )


def _new(lane: Lane, beside: Beside, jobs: Jobs) -> Worker:
    """A new process, which is told everything as text. Its standard output is this process's standard error."""
    mine, theirs = multiprocessing.Pipe()
    with theirs:
        words = [sys.executable, "-P", "-c", _PROGRAM, json.dumps([str(place) for place in sys.path])]
        process = subprocess.Popen(
            [*words, str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            env=environment(lane, jobs.threads),
            stdin=subprocess.DEVNULL,
            stdout=2,
            process_group=0,  # else Ctrl-C in a terminal would reach it twice: from there, and from this process
        )
    link = Link(mine)
    with contextlib.suppress(OSError):  # it may be gone already, which is noticed soon
        link.send({"threads": jobs.threads, "track": tracked(beside.track), "accept_changes": beside.accept_changes})
    return Worker(lane, link, process.pid, process.poll)


def _fork(lane: Lane, planned: Mapping[str, PlannedRun], beside: Beside, others: Sequence[Worker]) -> Worker:
    """A fork of this process, which has the user's objects as they are here."""
    context = multiprocessing.get_context(START_METHOD)
    mine, theirs = context.Pipe()
    ends = [mine, *(other.link.connection for other in others)]
    process = context.Process(target=_forked, args=(theirs, ends, planned, beside))  # type: ignore[attr-defined]
    with theirs, warnings.catch_warnings():
        # It uses one thread and none of this process's locks, as the workers of the pool.
        warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
        process.start()
    return Worker(lane, Link(mine), process.pid, lambda: process.exitcode)


def _forked(own: Connection, ends: Sequence[Connection], planned: Mapping[str, PlannedRun], beside: Beside) -> None:
    """The life of a fork."""
    os.setpgid(0, 0)
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # a display of this process's has its own
    for end in ends:
        end.close()  # else this process's end would not be noticed there
    torch.set_num_threads(1)

    def run_of(request: Request) -> PlannedRun:
        run = planned[request["folder"]]
        scenario = run.scenario.with_settings(request["scenario"])
        return PlannedRun(run.method, scenario, run.folder)

    serve(Link(own), beside, run_of)


def end_all(workers: Sequence[Worker], seconds: float = SHUTDOWN_SECONDS) -> None:
    """Close the pipes, at which idle workers end by themselves; one that is still there after a while is killed."""
    for worker in workers:
        worker.link.connection.close()
    late = time.monotonic() + seconds
    try:
        while any(worker.code() is None for worker in workers) and time.monotonic() < late:
            time.sleep(0.01)
    finally:  # a signal ends the waiting
        for worker in workers:
            if worker.code() is None:
                worker.signal(signal.SIGKILL)
        for worker in workers:
            while worker.code() is None:
                time.sleep(0.01)
