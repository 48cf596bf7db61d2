"""What this process and the workers of its lanes tell each other: lines of JSON over a pipe, nothing pickled."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Literal, TypedDict, cast

from headway.data.sources.files import Damaged, Missing
from headway.engine.experiment import Experiment
from headway.errors import (
    CallbackError,
    ClientError,
    DamagedRun,
    Diverged,
    MachineError,
    OutOfMemory,
    ServerDiverged,
    SlotError,
    UserError,
    WorkerFailed,
    is_short_of_memory,
)
from headway.measure.headline import headline
from headway.records import MetricRecord, RoundRecord, value_of
from headway.scenario_names import Value
from headway.tasks.metrics import record_of


class Beginning(TypedDict):
    """What a new worker is told first."""

    threads: int
    track: list[str]
    accept_changes: bool


class Request(TypedDict, total=False):
    """What a worker is to do: choose an executor for a run, or train it."""

    do: Literal["choose", "train"]
    method: str
    scenario: dict[str, Value]
    """The settings of the run, with the executor that was chosen."""
    folder: str
    cores: int
    """How many it may use."""
    label: str
    """What displays call it; its method's name where this is empty."""


class RunFacts(TypedDict):
    """What a display must know of a run."""

    method: str
    seed: int
    rounds: int
    metric: MetricRecord
    """The headline."""
    task: str
    """In words."""


class Fault(TypedDict):
    """An exception as text."""

    kind: str
    words: str
    number: int
    """Of an error of the operating system."""
    file: str | None


class Answer(TypedDict, total=False):
    """What a worker says: an event of its run, or how a request ended."""

    kind: Literal["ready", "begins", "round", "tell", "chosen", "done", "failed", "stopped"]
    facts: RunFacts
    done: int
    executor: str
    label: str
    round: int
    seconds: float
    score: float | None
    loss: float | None
    message: str
    fault: Fault


ENDS = ("chosen", "done", "failed", "stopped")
"""Answers with which a request has ended."""


@dataclass(frozen=True)
class Link:
    """One end of the pipe between this process and a worker."""

    connection: Connection

    def send(self, content: Beginning | Request | Answer) -> None:
        self.connection.send_bytes(json.dumps(content).encode())

    def beginning(self) -> Beginning:
        return cast(Beginning, json.loads(self.connection.recv_bytes()))

    def request(self) -> Request:
        return cast(Request, json.loads(self.connection.recv_bytes()))

    def answer(self) -> Answer:
        return cast(Answer, json.loads(self.connection.recv_bytes()))


def facts_of(experiment: Experiment) -> RunFacts:
    """What a display must know of a run."""
    return {
        "method": experiment.method.name,
        "seed": experiment.scenario.seed,
        "rounds": experiment.scenario.rounds,
        "metric": record_of(experiment.task.headline),
        "task": experiment.task_in_words,
    }


def round_of(record: RoundRecord, metric: MetricRecord) -> Answer:
    """What a display shows of a round."""
    curve = headline(metric, smoothed=True).curve
    return {
        "kind": "round",
        "round": record["round"],
        "seconds": record["seconds_training"] + record["seconds_evaluation"],
        "score": value_of(record, curve) if curve in record else None,
        "loss": record.get("loss"),
    }


_FAULTS: Mapping[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        UserError,
        DamagedRun,
        Missing,
        Damaged,
        Diverged,
        ServerDiverged,
        ClientError,
        OutOfMemory,
        SlotError,
        CallbackError,
        MachineError,
        WorkerFailed,
    )
}
"""Exceptions that are raised here as they were raised in a worker."""


def told(fault: Exception) -> Fault:
    """An exception as text: of the nearest kind that has a name here."""
    if isinstance(fault, OSError):
        file = None if fault.filename is None else str(fault.filename)
        return {"kind": "OSError", "words": fault.strerror or str(fault), "number": fault.errno or 0, "file": file}
    kind = next((kind.__name__ for kind in type(fault).__mro__ if kind.__name__ in _FAULTS), None)
    words = str(fault)
    if kind is None and is_short_of_memory(fault):
        kind, words = "MachineError", f"there is too little memory ({words or type(fault).__name__})"
    elif kind is None:
        kind, words = "WorkerFailed", " ".join(words.split()) or type(fault).__name__
    return {"kind": kind, "words": words, "number": 0, "file": None}


def raised(fault: Fault) -> Exception:
    """The exception of a text."""
    if fault["kind"] == "OSError":
        return OSError(fault["number"], fault["words"], fault["file"])
    return _FAULTS[fault["kind"]](fault["words"])


def tracked(track: str | Sequence[str]) -> list[str]:
    """Trackers one by one."""
    return [track] if isinstance(track, str) else list(track)
