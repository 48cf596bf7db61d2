"""A worker of a lane: it trains one run after another in a process of its own, and says how far it is."""

from __future__ import annotations

import contextlib
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType

import torch

from headway.engine.experiment import Experiment
from headway.engine.pool import CORES, STOPPING
from headway.errors import Interrupted, MachineError
from headway.malloc import keep_freed_memory
from headway.records import RoundRecord
from headway.runs.files import write_atomically
from headway.runs.folder import scenario as scenario_in
from headway.runs.folder import sealed
from headway.runs.lanes.messages import Answer, Link, Request, facts_of, round_of, told
from headway.runs.planned import Beside, PlannedRun, executor_for, made
from headway.scenario import Scenario


class Relay:
    """An observer whose run is watched in another process."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._is_heard = True

    def begins(self, experiment: Experiment, done: int, executor: str) -> None:
        facts = facts_of(experiment)
        self._metric = facts["metric"]
        self._send({"kind": "begins", "facts": facts, "done": done, "executor": executor})

    def round(self, record: RoundRecord) -> None:
        self._send(round_of(record, self._metric))
        if not self._is_heard:  # here, where the round is whole: messages come from the middle of one
            raise MachineError("the process that began this run is gone")

    def tell(self, message: str) -> None:
        self._send({"kind": "tell", "message": message})

    def _send(self, answer: Answer) -> None:
        try:
            self._link.send(answer)
        except OSError:
            self._is_heard = False


def serve(link: Link, beside: Beside, planned: Callable[[Request], PlannedRun]) -> None:
    """A worker's life: do what is requested and answer, until the pipe closes or a signal comes."""
    with contextlib.suppress(EOFError, OSError, Interrupted), _interrupted_by_signals():
        link.send({"kind": "ready"})
        while True:
            request = link.request()
            link.send(_answered(request, planned(request), link, beside))


def _answered(request: Request, run: PlannedRun, link: Link, beside: Beside) -> Answer:
    relay = Relay(link)
    try:
        os.environ[CORES] = str(request["cores"])
        if request["do"] == "choose":
            name, label = executor_for(run, beside, relay)
            return {"kind": "chosen", "executor": name, "label": label}
        _move(run)
        return {"kind": "done", "executor": made(run, beside, relay).executor}
    except Interrupted:
        return {"kind": "stopped"}
    except Exception as fault:
        known = told(fault)
        if known["kind"] == "WorkerFailed":
            traceback.print_exc()  # here is where it can be seen
        return {"kind": "failed", "fault": known}


def _move(run: PlannedRun) -> None:
    """A run that was begun on another device goes on with that of its lane."""
    if run.folder is None or not run.is_begun:
        return
    found = scenario_in(run.folder)
    if run.scenario.device not in ("auto", found.device):
        write_atomically(run.folder / "scenario.toml", sealed(found.changed(device=run.scenario.device)))


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """Inside, where no round is in hand, a signal raises `Interrupted`; afterwards it is ignored, for the end is near.

    One that is ignored before stays so.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    heeded = [number for number in STOPPING if signal.getsignal(number) != signal.SIG_IGN]
    for number in heeded:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number in heeded:
            signal.signal(number, signal.SIG_IGN)


def main(handle: int) -> None:
    """The program of a new process: its runs come as text, and `handle` is its end of the pipe."""
    keep_freed_memory()
    link = Link(Connection(handle))
    try:
        beginning = link.beginning()
    except (EOFError, OSError):
        return
    torch.set_num_threads(beginning["threads"])
    beside = Beside(track=beginning["track"], accept_changes=beginning["accept_changes"])
    serve(link, beside, _from_text)


def _from_text(request: Request) -> PlannedRun:
    return PlannedRun(request["method"], Scenario().with_settings(request["scenario"]), Path(request["folder"]))
